"""The keys of a server, whose it accepts, and its port."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import zmq

from gridengine.errors import ConfigurationError
from gridengine.wire.sockets import PeersKeys, bind_to_any, new_keys


def test_keys_are_never_used_again() -> None:
    first, second = new_keys(watchers=True), new_keys(watchers=True)
    keys = [getattr(one, name) for one in (first, second) for name in one.__struct_fields__]
    keys = [key for key in keys if isinstance(key, str)]
    assert len(set(keys)) == len(keys) == 12


def test_only_the_key_of_a_role_may_connect() -> None:
    keys = new_keys(watchers=True)
    check = PeersKeys(keys).callback
    assert check("global", keys.peer_public.encode())
    assert check("global", keys.watcher_public.encode())
    assert not check("global", keys.public.encode())
    assert not check("global", new_keys().peer_public.encode())


def test_no_key_is_empty_without_watchers() -> None:
    assert not PeersKeys(new_keys()).callback("global", b"")


class Binding:
    """A socket that cannot be bound below this port."""

    def __init__(self, least: int, number: int) -> None:
        self.least, self.number = least, number

    def bind(self, address: str) -> None:
        if int(address.rpartition(":")[2]) < self.least:
            raise zmq.ZMQError(self.number)


@pytest.mark.parametrize("number", [errno.EADDRINUSE, errno.EACCES])
def test_a_port_that_cannot_be_had_is_passed_over_for_the_next(number: int) -> None:
    ports = range(1020, 1030)
    socket: Any = Binding(1024, number)
    assert bind_to_any(socket, ports) == 1024
    socket.least = 1030
    with pytest.raises(ConfigurationError, match="no port of 1020 to 1029 can be listened at"):
        bind_to_any(socket, ports)
    socket = Binding(1024, errno.ENODEV)
    with pytest.raises(zmq.ZMQError, match="No such device"):
        bind_to_any(socket, ports)
