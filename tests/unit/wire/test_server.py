"""The addresses of this machine."""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import zmq

from gridengine.errors import ConfigurationError
from gridengine.system.machine import addresses
from gridengine.wire.server import Server, lasting_ports, own_addresses, resolve


def test_an_impossible_host_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"'a\.\.b' .*does not resolve"):
        resolve("a..b")


def test_a_host_that_resolves_is_taken() -> None:
    resolve("127.0.0.1")


def test_loopback_is_the_last_address_that_others_are_told() -> None:
    *outer, last = own_addresses()
    assert last == "127.0.0.1"
    assert not [one for one in outer if one.startswith(("127.", "fe80")) or one == "::1"]


@pytest.mark.parametrize(("given", "count"), [("32768\t60999\n", 100), ("1024 65535", 0)])
def test_ports_that_last_are_none_that_the_kernel_gives(
    given: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda path: given)
    ports = lasting_ports()
    assert len(set(ports)) == count
    assert all(1024 <= port < int(given.split()[0]) for port in ports)


class Binding:
    """A socket that cannot be bound below this port."""

    def __init__(self, least: int, number: int) -> None:
        self.least, self.number = least, number

    def bind(self, address: str) -> None:
        if int(address.rpartition(":")[2]) < self.least:
            raise zmq.ZMQError(self.number)


@pytest.mark.parametrize("number", [errno.EADDRINUSE, errno.EACCES])
def test_a_port_that_cannot_be_had_is_passed_over_for_the_next(number: int) -> None:
    server: Any = SimpleNamespace(_ports=range(1020, 1030), _socket=Binding(1024, number))
    assert Server._bind_to_new_port(server) == 1024
    server._socket.least = 1030
    with pytest.raises(ConfigurationError, match="no port of 1020 to 1029 can be listened at"):
        Server._bind_to_new_port(server)
    server._socket = Binding(1024, errno.ENODEV)
    with pytest.raises(zmq.ZMQError, match="No such device"):
        Server._bind_to_new_port(server)


def test_the_addresses_are_those_that_psutil_finds() -> None:
    families = socket.AF_INET, socket.AF_INET6
    entries = [one for its in psutil.net_if_addrs().values() for one in its]
    found = {one.address.partition("%")[0] for one in entries if one.family in families}
    assert set(addresses()) == found
