"""How a result travels from one worker to another."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from gridengine.errors import ProtocolError
from gridengine.serialize.payload import Buffer, Payload
from gridengine.system.polling import Poller
from gridengine.wire.connection_file import ServerKeys
from gridengine.wire.framing import SMALL, decode, encode
from gridengine.wire.messages import Beat, Part, Pull, Stop
from gridengine.wire.peer_results import (
    MOST_BUFFERS,
    PIECES,
    IncomingResult,
    ResultClient,
    ResultServer,
    parts_of,
)
from gridengine.wire.session import PIECE
from gridengine.wire.sockets import new_keys

PATIENCE = 60
PAYLOADS = {
    "one small buffer": [b"x"],
    "empty buffers": [b"pickle", b"", bytes(5), b""],
    "many small buffers": [bytes([n % 251]) * SMALL for n in range(100)],
    "large ones among small ones": [b"p", bytes(3 * PIECE + 7), b"q" * 10, bytes(PIECE), b"r"],
    "more than a part": [b"pickle", bytes(range(256)) * (PIECES * PIECE // 100)],
}


class Workers:
    """A worker with results, and the connections of others to it."""

    def __init__(self, results: dict[bytes, Payload]) -> None:
        self.keys = new_keys()
        self.poller = Poller()
        self.context = zmq.Context()
        self.server = ResultServer(self.context, self.poller, self.keys, (), results.get)
        self.clients: list[ResultClient] = []
        self.asked = 0

    def connect(self, *hosts: str, keys: ServerKeys | None = None) -> ResultClient:
        keys = keys or self.keys
        addresses = [f"tcp://{host}:{self.server.port}" for host in hosts or ["127.0.0.1"]]
        pair = keys.peer_public, keys.peer_secret
        client = ResultClient(self.context, self.poller, addresses, self.keys.public, pair)
        self.clients.append(client)
        return client

    def fetch(self, client: ResultClient, name: str) -> Pull:
        self.asked += 1
        pull = Pull(name.encode(), self.asked)
        client.fetch(pull, 0.0)
        return pull

    def received(self, client: ResultClient) -> dict[bytes, Payload | None]:
        """Return what has come."""
        self.poller.poll(0.05)
        self.server.answer()
        return {pull.name: payload for pull, payload in client.receive(0.0)}

    def wait_for(self, client: ResultClient, count: int = 1) -> dict[bytes, Payload | None]:
        deadline, got = time.monotonic() + PATIENCE, dict[bytes, Payload | None]()
        while len(got) < count:
            assert time.monotonic() < deadline, got
            got |= self.received(client)
        return got

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.server.close()
        self.context.term()


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers({name.encode(): payload for name, payload in PAYLOADS.items()})
    yield made
    made.close()


def joined(payload: Payload | None) -> list[bytes]:
    return [bytes(buffer) for buffer in payload or ()]


def test_results_of_all_shapes_arrive_as_they_were(workers: Workers) -> None:
    client = workers.connect()
    for name in PAYLOADS:
        workers.fetch(client, name)
    got = workers.wait_for(client, len(PAYLOADS))
    assert {name.decode(): joined(payload) for name, payload in got.items()} == PAYLOADS


def test_a_result_that_is_not_there_is_told_to_be_absent(workers: Workers) -> None:
    client = workers.connect()
    workers.fetch(client, "nothing")
    assert workers.wait_for(client) == {b"nothing": None}


def test_the_first_address_to_answer_is_used(workers: Workers) -> None:
    client = workers.connect("192.0.2.1", "127.0.0.1")  # nobody has the first (RFC 5737)
    workers.fetch(client, "one small buffer")
    assert joined(workers.wait_for(client)[b"one small buffer"]) == [b"x"]
    assert client.is_connected


def test_a_result_that_was_given_up_is_not_told(workers: Workers) -> None:
    client = workers.connect()
    client.give_up(workers.fetch(client, "more than a part"))
    workers.fetch(client, "one small buffer")
    assert list(workers.wait_for(client)) == [b"one small buffer"]


def test_who_has_not_the_key_of_the_runs_workers_gets_nothing(workers: Workers) -> None:
    stranger, friend = workers.connect(keys=new_keys()), workers.connect()
    workers.fetch(stranger, "one small buffer")
    workers.fetch(friend, "one small buffer")
    workers.wait_for(friend)
    assert not stranger.is_connected
    assert list(stranger.receive(0.0)) == []


def test_nobody_gets_a_result_while_nothing_checks_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridengine.wire.peer_results.KeyCheck", lambda context, keys: None)
    unchecked = Workers({b"there": [b"x"]})
    try:
        client = unchecked.connect()
        unchecked.fetch(client, "there")
        for _ in range(20):  # a connection that is let in has its result after two
            assert unchecked.received(client) == {}
        assert not client.is_connected
    finally:
        unchecked.close()


def test_who_has_not_the_key_of_the_holder_is_not_believed(workers: Workers) -> None:
    other = Workers({b"one small buffer": [b"false"]})
    try:
        addresses = [f"tcp://127.0.0.1:{one.server.port}" for one in (other, workers)]
        pair = workers.keys.peer_public, workers.keys.peer_secret
        client = ResultClient(workers.context, workers.poller, addresses, workers.keys.public, pair)
        workers.clients.append(client)
        workers.fetch(client, "one small buffer")
        assert joined(workers.wait_for(client)[b"one small buffer"]) == [b"x"]
        other.server.answer()
    finally:
        other.close()


@given(frames=st.lists(st.binary(max_size=40), max_size=4), place=st.integers(0, 3))
def test_whatever_a_peer_sends_the_server_goes_on(frames: list[bytes], place: int) -> None:
    workers = Workers({b"there": [b"x"]})
    try:
        client = workers.connect()
        workers.fetch(client, "there")
        workers.wait_for(client)
        good = encode([Beat(), Pull(b"no", 1), Part(1), Stop()][place])
        for sent in (frames, good[:-1] + frames, good + frames):
            if sent:
                client.send(sent)
        workers.fetch(client, "there")
        assert joined(workers.wait_for(client)[b"there"]) == [b"x"]
    finally:
        workers.close()


def test_no_frame_is_longer_than_a_connection_takes() -> None:
    for payload in PAYLOADS.values():
        frames = [frame for message in parts_of(1, payload) for frame in message]
        assert max(map(len, frames)) <= PIECE + 1024


def test_a_result_of_very_many_buffers_does_not_go_this_way() -> None:
    [frames] = parts_of(1, [b"x"] * (MOST_BUFFERS + 1))
    assert decode(frames) == (Part(1, []), [])


@pytest.mark.parametrize(
    ("sizes", "start", "pieces"),
    [
        ([5], 1, [b"abcde"]),
        ([5], 0, [b"abcdef"]),
        ([2, 3], 0, [b"ab", b"cdef"]),
        ([0, 3], 0, [b"abcd"]),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    sizes: list[int], start: int, pieces: list[bytes]
) -> None:
    with pytest.raises(ProtocolError):
        IncomingResult(Pull(b"name", 1)).add(Part(1, sizes, start, len(pieces)), pieces)


def test_the_kernel_looks_whether_idle_peers_are_still_there(workers: Workers) -> None:
    socket = workers.server._polled.socket
    options = zmq.TCP_KEEPALIVE, zmq.TCP_KEEPALIVE_IDLE, zmq.TCP_MAXRT
    assert [socket.getsockopt(option) for option in options] == [1, 10, 10_000]


def test_parts_of_an_earlier_request_do_not_mix_with_those_of_the_next(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[list[Buffer]] = []

    def slowly(number: int, payload: Payload | None) -> Iterator[list[Buffer]]:
        first, *others = parts_of(number, payload)
        yield from (*late, first) if late else (first,)
        yield from others if late else ()
        late[:] = others

    monkeypatch.setattr("gridengine.wire.peer_results.parts_of", slowly)
    client = workers.connect()
    first = workers.fetch(client, "more than a part")
    while not client.incoming[first.number]._size:
        assert workers.received(client) == {}
    client.give_up(first)
    workers.fetch(client, "more than a part")
    [payload] = workers.wait_for(client).values()
    assert joined(payload) == PAYLOADS["more than a part"]


def test_a_result_that_was_lost_on_the_way_is_told_when_a_later_one_comes(workers: Workers) -> None:
    client = workers.connect()
    workers.fetch(client, "one small buffer")
    workers.wait_for(client)
    client.send = lambda frames: None  # type: ignore[method-assign]
    workers.fetch(client, "empty buffers")
    del client.send  # type: ignore[method-assign]
    workers.fetch(client, "one small buffer")
    got = workers.wait_for(client, 2)
    assert [joined(payload) for payload in got.values()] == [[], [b"x"]]
