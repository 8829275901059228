"""The keys of a server, whose it accepts, and its port."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import zmq
from zmq.utils import z85

from gridengine.errors import ConfigurationError
from gridengine.wire.connection_file import ServerKeys
from gridengine.wire.sockets import KeyCheck, bind_to_any, new_keys, tcp_addresses
from tests.support.interrupts import at_each_point


def test_keys_are_never_used_again() -> None:
    first, second = new_keys(watchers=True), new_keys(watchers=True)
    keys = [getattr(one, name) for one in (first, second) for name in one.__struct_fields__]
    keys = [key for key in keys if isinstance(key, str)]
    assert len(set(keys)) == len(keys) == 12


@contextlib.contextmanager
def check_of(keys: ServerKeys) -> Iterator[KeyCheck]:
    context = zmq.Context()
    try:
        yield KeyCheck(context, keys)
    finally:
        context.term()


def request(
    *credentials: bytes, version: bytes = b"1.0", mechanism: bytes = b"CURVE"
) -> Sequence[bytes]:
    return [version, b"7", b"", b"10.0.0.1", b"", mechanism, *credentials]


def test_only_the_key_of_a_role_may_connect() -> None:
    keys = new_keys(watchers=True)
    with check_of(keys) as check:
        for known in (keys.peer_public, keys.watcher_public):
            answer = check.answer(request(z85.decode(known)))
            assert answer == [b"1.0", b"7", b"200", b"OK", known.encode(), b""]
        for other in (keys.public, new_keys().peer_public):
            assert check.answer(request(z85.decode(other)))[2:5] == [b"400", b"unknown key", b""]


@pytest.mark.parametrize(
    "others",
    [
        {"version": b"2.0"},
        {"mechanism": b"NULL"},
        {"mechanism": b"PLAIN"},
    ],
)
def test_only_curve_is_accepted(others: dict[str, bytes]) -> None:
    keys = new_keys()
    with check_of(keys) as check:
        assert check.answer(request(z85.decode(keys.peer_public), **others))[2] == b"400"


@pytest.mark.parametrize("credentials", [(), (b"",), (b"", b""), (b"x" * 32,)])
def test_no_key_is_empty_without_watchers(credentials: Sequence[bytes]) -> None:
    with check_of(new_keys()) as check:
        assert check.answer(request(*credentials))[2] == b"400"


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


def test_the_thread_that_checks_keys_ends_with_its_context() -> None:
    before = set(threading.enumerate())
    context = zmq.Context()
    KeyCheck(context, new_keys())
    [thread] = set(threading.enumerate()) - before
    context.term()
    thread.join(30.0)
    assert not thread.is_alive()


def test_a_check_whose_thread_cannot_start_leaves_no_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError), check_of(new_keys()):
        pass  # the end of the context has waited for no socket


def test_after_a_ctrl_c_the_thread_that_checks_keys_still_has_its_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads, errors, goes_on = list[threading.Thread](), list[Exception](), threading.Event()
    start, serve = threading.Thread.start, KeyCheck._serve

    def interrupt(thread: threading.Thread) -> None:
        start(thread)
        threads.append(thread)
        raise KeyboardInterrupt

    def serve_later(check: KeyCheck) -> None:
        goes_on.wait()
        try:
            serve(check)
        except Exception as error:
            errors.append(error)

    monkeypatch.setattr(threading.Thread, "start", interrupt)
    monkeypatch.setattr(KeyCheck, "_serve", serve_later)
    context = zmq.Context()
    with pytest.raises(KeyboardInterrupt):
        KeyCheck(context, new_keys())
    goes_on.set()
    context.term()
    [thread] = threads
    thread.join(30.0)
    assert (thread.is_alive(), errors) == (False, [])


def test_loopback_is_the_last_address_that_others_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ["127.0.0.1", "10.0.0.7", "10.0.0.7", "::1", "FE80::2", "fd00::3"]
    monkeypatch.setattr("gridengine.wire.sockets.addresses", lambda: found)
    assert tcp_addresses(5) == ["tcp://10.0.0.7:5", "tcp://[fd00::3]:5", "tcp://127.0.0.1:5"]


def test_others_are_told_the_one_host_that_was_set() -> None:
    assert tcp_addresses(5, "node") == ["tcp://node:5"]


def test_after_a_ctrl_c_at_any_point_while_the_check_of_keys_begins_its_context_can_end() -> None:
    keys, ends = new_keys(), list[threading.Thread]()

    def begin() -> None:
        context = zmq.Context()
        end = threading.Thread(target=context.term, daemon=True)
        try:
            KeyCheck(context, keys)
        finally:  # while the exception has all that was made
            end.start()
            end.join(30.0)
            ends.append(end)

    for _ in at_each_point(begin):
        assert not any(end.is_alive() for end in ends)
    assert ends
