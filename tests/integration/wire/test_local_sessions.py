"""Sessions that go by a Unix socket, and what becomes of them when that ends."""

from __future__ import annotations

import contextlib
import select
import threading
from collections.abc import Iterator

import pytest

from gridengine.wire.messages import Beat, ClientHello, Goodbye, Message, Pushed
from gridengine.wire.server import Server
from tests.support.cable import Cable
from tests.support.client_ends import PATIENCE_SECONDS, Ends

MANY = 300


@pytest.fixture
def server() -> Iterator[Server]:
    with contextlib.closing(Server(host="127.0.0.1", greeting=ClientHello, epoch=1)) as server:
        yield server


@pytest.fixture
def ends(server: Server) -> Iterator[Ends]:
    ends = Ends(server)
    yield ends
    ends.client.close(0)


def talk(ends: Ends, peer: bytes, begin: int = 0) -> None:
    """Have each end send the other many messages."""
    for number in range(begin, begin + MANY):
        ends.client.send(Pushed(number), [bytes(30_000)])
        ends.server.send(peer, Pushed(number), [bytes(30_000)])


def check(ends: Ends, count: int = MANY) -> None:
    """Check that each end gets all messages of the other, once and in order."""
    ends.until(lambda: len(ends.of_client) >= count <= len(ends.of_server))
    expected = [Pushed(number) for number in range(count)]
    assert [message for _, message, _ in ends.of_client] == expected
    assert [message for message, _ in ends.of_server] == expected


def test_a_session_needs_no_tcp_once_it_goes_by_the_unix_socket(server: Server) -> None:
    cable = Cable(int(server.addresses[0].rpartition(":")[2]))
    ends = Ends(server, cable.address)
    peer = ends.greet()
    cable.close()
    talk(ends, peer)
    check(ends)
    ends.client.close(0)


@pytest.mark.parametrize("whose", ["the client's", "the server's"])
def test_when_the_unix_socket_ends_the_session_goes_on_over_tcp(ends: Ends, whose: str) -> None:
    peer = ends.greet()
    local = ends.local(peer) if whose == "the server's" else ends.client._local
    assert local is not None
    talk(ends, peer)  # more than a socket takes, so that something is lost
    local.end()
    talk(ends, peer, MANY)
    check(ends, 2 * MANY)
    assert ends.local(peer) is None
    assert ends.client._local is not None
    assert not ends.client._local.is_open


def test_a_session_goes_by_the_next_servers_unix_socket_when_that_knows_nobody(ends: Ends) -> None:
    ends.client.epoch = 1
    peer = ends.greet()
    before = ends.client._local
    ends.server.close(0)
    ends.server = Server(
        host="127.0.0.1", greeting=ClientHello, epoch=2, keys=ends.server.keys, workers=1
    )
    try:
        ends.until(lambda: ends.of_client)
        ends.of_client.clear()
        ends.until(lambda: ends.local(peer) is not None)
        assert ends.client._local is not before
        talk(ends, peer)
        check(ends)
    finally:
        ends.server.close(0)


def test_a_client_that_closes_with_a_full_socket_waits_until_all_has_arrived(
    server: Server,
) -> None:
    ends = Ends(server)
    ends.greet()
    for number in range(MANY):
        ends.client.send(Pushed(number), [bytes(30_000)])
    ends.client.send(Goodbye("closed"))
    heard: list[bool] = []
    closing = threading.Thread(target=lambda: heard.append(ends.client.close(PATIENCE_SECONDS)))
    closing.start()
    come: list[Message] = []
    while len(come) <= MANY:
        select.select([server.fd], [], [], 0.0 if server.pending else PATIENCE_SECONDS)
        come += [one for _, one, _ in server.receive() if not isinstance(one, Beat)]
    closing.join(PATIENCE_SECONDS)
    assert come == [*(Pushed(number) for number in range(MANY)), Goodbye("closed")]
    assert heard == [True]
