"""Sessions that go by a Unix socket, and when that ends by TCP; large buffers, which go beside
them.
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gridengine.serialize.payload import Buffer
from gridengine.wire.connection_file import ClientConnection
from gridengine.wire.dispatcher_connection import DispatcherConnection
from gridengine.wire.framing import NUMBER
from gridengine.wire.local_connection import LocalConnection
from gridengine.wire.messages import Beat, ClientHello, Goodbye, Message, Pushed, Refuse, Rejoin
from gridengine.wire.server import Server
from tests.support.cable import Cable

PATIENCE_SECONDS = 120
HELLO = ClientHello(1, "1", 1, "3.11", "here", 1)


class Ends:
    """A server of clients, and one client: both in one thread."""

    epoch = 0

    def __init__(self, server: Server, address: str = "") -> None:
        keys = server.keys
        connection = ClientConnection(
            name="night",
            addresses=(address or server.addresses[0],),
            version="1",
            host="here",
            pid=1,
            beat_seconds=0.2,
            server_key=keys.public,
            client_public=keys.peer_public,
            client_secret=keys.peer_secret,
        )
        self.server, self.client = server, DispatcherConnection(connection)
        self.client.introduce = self.introduce
        self.of_client: list[tuple[bytes, Message, list[Buffer]]] = []
        self.of_server: list[tuple[Message, list[Buffer]]] = []

    def until(self, done: Any) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not done():
            assert time.monotonic() < deadline, "it never came"
            timeout = 1000 * self.client.tick(time.monotonic())
            poller = select.poll()
            for fd in (self.server.fd, self.client.fd):
                poller.register(fd, select.POLLIN)
            poller.poll(0 if self.server.pending or self.client.pending else timeout)
            for peer, message, buffers in self.server.receive():
                if isinstance(message, Beat):
                    self.server.beat(peer)
                else:
                    self.of_client.append((peer, message, buffers))
            for message, buffers in self.client.receive():
                if not (isinstance(message, Rejoin) and self.client.rejoin(message)):
                    self.of_server.append((message, buffers))

    def introduce(self) -> None:
        """Greet a server that does not know the client."""
        self.client.begin_again()
        self.client.send(HELLO)

    def greet(self) -> bytes:
        """Have the client be known, and wait until its local connection is open, if it has one."""
        self.client.send(HELLO)
        self.until(lambda: self.of_client)
        [(peer, _, _)] = self.of_client
        self.of_client.clear()
        if self.client._local is not None:
            self.until(lambda: self.local(peer) is not None)
        return peer

    def local(self, peer: bytes) -> LocalConnection | None:
        """Return the server's end of the client's local connection, once it is open."""
        return self.server._local_to(peer)


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


SIZE = 3_000_000


def large(letter: str) -> bytes:
    return letter.encode() * SIZE


def swap(ends: Ends, peer: bytes) -> None:
    """Have each end send the other a large buffer, of which the session has only the number."""
    ends.of_client.clear()
    ends.of_server.clear()
    before = ends.client._session.sent, ends.server._sessions[peer].sent
    ends.client.send(Pushed(1), [large("c")])
    ends.server.send(peer, Pushed(2), [large("s")])
    assert (ends.client._session.sent, ends.server._sessions[peer].sent) == tuple(
        number + 1 for number in before
    )
    ends.until(lambda: ends.of_client and ends.of_server)
    [[_, _, [of_client]]], [[_, [of_server]]] = ends.of_client, ends.of_server
    assert (bytes(of_client), bytes(of_server)) == (large("c"), large("s"))


def test_large_buffers_go_beside_the_session_both_ways(ends: Ends) -> None:
    swap(ends, ends.greet())


def test_large_buffers_go_beside_a_session_that_has_begun_again(ends: Ends) -> None:
    peer = ends.greet()
    ends.client.send(Pushed(1), [large("x")])  # nobody takes it
    ends.server.forget(peer)
    ends.client.begin_again()
    swap(ends, ends.greet())


def test_large_buffers_arrive_once_while_tcp_breaks_again_and_again(server: Server) -> None:
    with contextlib.closing(Cable(int(server.addresses[0].rpartition(":")[2]))) as cable:
        ends = Ends(server, cable.address)
        peer = ends.greet()
        for number in range(30):
            ends.client.send(Pushed(number), [large("c")])
            server.send(peer, Pushed(number), [large("s")])
            if number % 10 == 9:
                cable.cut()
        ends.until(lambda: len(ends.of_client) >= 30 <= len(ends.of_server))
        ends.client.close(0)
    assert [message for _, message, _ in ends.of_client] == [Pushed(n) for n in range(30)]
    assert {bytes(one) for _, _, [one] in ends.of_client} == {large("c")}
    assert {bytes(one) for _, [one] in ends.of_server} == {large("s")}


def test_large_buffers_travel_in_the_session_where_nobody_listens(server: Server) -> None:
    assert server._local is not None
    server._local._listener.close()
    ends = Ends(server)
    peer = ends.greet()
    ends.client.send(Pushed(1), [large("c")])
    server.send(peer, Pushed(1), [large("s")])
    ends.until(lambda: ends.of_client and ends.of_server)
    assert (bytes(ends.of_client[0][2][0]), bytes(ends.of_server[0][1][0])) == (
        large("c"),
        large("s"),
    )
    ends.client.close(0)


def test_a_client_whose_buffer_does_not_come_is_refused(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends.greet()
    monkeypatch.setattr(ends.client._local, "put", lambda buffer: NUMBER.pack(7))
    ends.client.send(Pushed(1), [large("c")])
    ends.until(lambda: ends.of_client and ends.of_server)
    [[_, goodbye, _]], [[refused, _], *_] = ends.of_client, ends.of_server
    assert isinstance(goodbye, Goodbye)
    assert isinstance(refused, Refuse)
    assert "a block of 3,000,000 bytes has not arrived" in refused.reason


def test_a_dispatcher_has_no_unix_socket_for_workers() -> None:
    with contextlib.closing(Server(host="127.0.0.1")) as server:
        assert server._local is None
        ends = Ends(server)
        assert ends.client._local is None
        ends.client.close(0)
