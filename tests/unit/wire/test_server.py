"""The addresses of this machine."""

from __future__ import annotations

import socket
from pathlib import Path

import psutil
import pytest

from gridengine.errors import ConfigurationError
from gridengine.system.machine import addresses
from gridengine.wire.server import lasting_ports, resolve


def test_an_impossible_host_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"'a\.\.b' .*does not resolve"):
        resolve("a..b")


def test_a_host_that_resolves_is_taken() -> None:
    resolve("127.0.0.1")


@pytest.mark.parametrize(("given", "count"), [("32768\t60999\n", 100), ("1024 65535", 0)])
def test_ports_that_last_are_none_that_the_kernel_gives(
    given: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda path: given)
    ports = lasting_ports()
    assert len(set(ports)) == count
    assert all(1024 <= port < int(given.split()[0]) for port in ports)


def test_the_addresses_are_those_that_psutil_finds() -> None:
    families = socket.AF_INET, socket.AF_INET6
    entries = [one for its in psutil.net_if_addrs().values() for one in its]
    found = {one.address.partition("%")[0] for one in entries if one.family in families}
    assert set(addresses()) == found
