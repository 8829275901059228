"""The keys of a server, and whose it accepts."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import zmq
from zmq.utils import z85

from gridengine.wire.sockets import KeyCheck, new_keys


def test_keys_are_never_used_again() -> None:
    first, second = new_keys(watchers=True), new_keys(watchers=True)
    keys = [getattr(one, name) for one in (first, second) for name in one.__struct_fields__]
    keys = [key for key in keys if isinstance(key, str)]
    assert len(set(keys)) == len(keys) == 12


def test_only_the_key_of_a_role_may_connect(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    keys = new_keys(watchers=True)
    check = KeyCheck(context, keys)
    for text in (keys.peer_public, keys.watcher_public):
        assert _answer(check, z85.decode(text)) == [b"200", b"OK", text.encode()]
    for text in (keys.public, new_keys().peer_public):
        assert _answer(check, z85.decode(text))[0] == b"400"


def test_who_shows_no_key_may_not_connect(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    keys = new_keys()
    check = KeyCheck(context, keys)
    assert _answer(check)[0] == b"400"
    assert _answer(check, b"")[0] == b"400"
    assert _answer(check, z85.decode(keys.peer_public), mechanism=b"NULL")[0] == b"400"


def test_the_thread_that_checks_keys_ends_with_its_context() -> None:
    before = set(threading.enumerate())
    context = zmq.Context()
    KeyCheck(context, new_keys())
    [thread] = set(threading.enumerate()) - before
    context.term()
    thread.join(30.0)
    assert not thread.is_alive()


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    made = zmq.Context()
    yield made
    made.term()


def _answer(check: KeyCheck, *credentials: bytes, mechanism: bytes = b"CURVE") -> list[bytes]:
    """Return status, text and user of the answer to a question of ZeroMQ's (RFC 27)."""
    question = [b"1.0", b"7", b"", b"127.0.0.1", b"any", mechanism, *credentials]
    version, number, *said, metadata = check.answer(question)
    assert (version, number, metadata) == (b"1.0", b"7", b"")
    return said
