"""Open files are named in a pickle, and got by that name where it is loaded."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Iterator

import pytest

from gridengine.errors import PicklingError
from gridengine.serialize import pickling, shared_objects
from gridengine.serialize.descriptors import Descriptor, ReceivedDescriptor


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_socket_arrives_as_one_of_the_same_connection(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    payload = pickling.dump(ends[1])
    with pickling.load(payload) as copy:
        copy.sendall(b"hello")
    assert ends[0].recv(5) == b"hello"


def test_a_payload_keeps_the_file_open_that_is_named_in_it(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    payload = pickling.dump(ends[1])
    (descriptor,) = shared_objects.needs_of(payload)
    assert isinstance(descriptor, Descriptor)
    name, number = descriptor.name, descriptor.descriptor
    assert os.fstat(number)
    del descriptor, payload
    with pytest.raises(LookupError, match="have ended"):
        Descriptor.find(name)


def test_no_socket_travels_to_the_caller(ends: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(PicklingError, match="not back from them"):
        pickling.dump_values([ends[0]])


def test_outside_of_a_runner_a_file_of_elsewhere_is_an_error() -> None:
    with pytest.raises(PicklingError, match="a thing cannot travel to another machine"):
        ReceivedDescriptor(b"unknown", "thing").detach()


def test_a_runner_asks_for_a_file_of_elsewhere_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = shared_objects.Registry()
    monkeypatch.setattr(shared_objects, "registry", lambda: registry)
    asked: list[bytes] = []

    def fetch(name: bytes) -> int:
        asked.append(name)
        return 7

    registry.fetch_descriptor = fetch
    assert ReceivedDescriptor(b"elsewhere", "thing").detach() == 7
    assert asked == [b"elsewhere"]


def test_a_lock_for_forks_alone_is_refused_with_a_remedy() -> None:
    import multiprocessing

    lock = multiprocessing.get_context("fork").Lock()
    with pytest.raises(PicklingError, match="only processes that are forked"):
        pickling.dump(functools.partial(print, lock))
