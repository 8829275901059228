"""Waiting for a ZeroMQ socket by its descriptor."""

from __future__ import annotations

import contextlib
import random
import select
import threading
from collections.abc import Iterator

import pytest
import zmq

from gridengine.wire.sockets import PolledSocket

PATIENCE_MILLISECONDS = 120_000
MESSAGES = 3_000


def wait(end: PolledSocket) -> None:
    poller = select.poll()
    poller.register(end.fd, select.POLLIN)
    assert end.pending or poller.poll(PATIENCE_MILLISECONDS), "nobody was woken"


@pytest.fixture
def pair() -> Iterator[tuple[PolledSocket, PolledSocket]]:
    """Two sockets that are connected by TCP."""
    with zmq.Context() as context:
        one, other = (PolledSocket(context.socket(zmq.PAIR)) for _ in range(2))
        port = one.socket.bind_to_random_port("tcp://127.0.0.1")
        other.socket.connect(f"tcp://127.0.0.1:{port}")
        other.send([b"here"])  # before, the other one would have nobody to send to
        wait(one)
        while not one.receive():
            wait(one)
        yield one, other
        for end in (one, other):
            end.socket.close(linger=0)


def talk(end: PolledSocket, seed: int, got: list[bytes]) -> None:
    """Send messages, some at a time, and take in what comes, now and then not all of it."""
    chance, sent = random.Random(seed), 0
    while sent < MESSAGES or len(got) < MESSAGES:
        for _ in range(min(chance.randrange(4), MESSAGES - sent)):
            end.send([b"%d" % sent, b"", b"more"])
            sent += 1
        if sent == MESSAGES and len(got) < MESSAGES:
            wait(end)
        for _ in range(chance.randrange(1, 9)):
            frames = end.receive()
            if not frames:
                break
            assert [frame.bytes for frame in frames[1:]] == [b"", b"more"]
            got.append(frames[0].bytes)


def test_waiting_for_the_descriptor_misses_nothing(pair: tuple[PolledSocket, PolledSocket]) -> None:
    one, other = pair
    here: list[bytes] = []
    there: list[bytes] = []
    thread = threading.Thread(target=talk, args=(other, 1, there), daemon=True)
    thread.start()
    talk(one, 2, here)
    thread.join(PATIENCE_MILLISECONDS / 1000)
    assert here == there == [b"%d" % number for number in range(MESSAGES)]


def test_events_that_zeromq_noted_by_the_way_are_pending(
    pair: tuple[PolledSocket, PolledSocket],
) -> None:
    one, other = pair
    assert not one.pending  # from here on it is not asked, until something is done
    other.send([b"word"])
    assert one.socket.poll(PATIENCE_MILLISECONDS)  # which takes the descriptor's word from it
    assert one.pending
    assert [frame.bytes for frame in one.receive()] == [b"word"]
    assert one.receive() == []


def test_messages_that_came_by_the_time_of_a_send_are_pending(
    pair: tuple[PolledSocket, PolledSocket],
) -> None:
    one, other = pair
    assert not one.pending
    other.send([b"word"])
    poller = select.poll()
    poller.register(one.fd, select.POLLIN)
    assert poller.poll(PATIENCE_MILLISECONDS)
    one.send([b"answer"])  # which may take the descriptor's word from it, too
    assert one.pending


def test_an_unconnected_socket_drops_messages() -> None:
    with zmq.Context() as context, contextlib.closing(context.socket(zmq.DEALER)) as socket:
        end = PolledSocket(socket)
        end.send([b"word", b"more"])
        assert not end.pending
