"""Large buffers between a dispatcher and a client of its machine, which go beside their session."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from gridengine.wire.framing import NUMBER
from gridengine.wire.messages import ClientHello, Goodbye, Pushed, Refuse
from gridengine.wire.server import Server
from tests.support.cable import Cable
from tests.support.client_ends import Ends

SIZE = 3_000_000


def large(letter: str) -> bytes:
    return letter.encode() * SIZE


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(host="127.0.0.1", greeting=ClientHello)
    yield server
    server.close()


@pytest.fixture
def ends(server: Server) -> Iterator[Ends]:
    ends = Ends(server)
    yield ends
    ends.client.close(0)


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


def test_they_do_so_again_after_the_session_has_begun_again(ends: Ends) -> None:
    peer = ends.greet()
    ends.client.send(Pushed(1), [large("x")])  # nobody takes it
    ends.server.forget(peer)
    ends.client.begin_again()
    swap(ends, ends.greet())


def test_they_do_so_while_tcp_breaks_again_and_again(server: Server) -> None:
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


def test_buffers_travel_in_the_session_where_nobody_listens(server: Server) -> None:
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


def test_a_dispatcher_has_no_such_socket_for_workers() -> None:
    with contextlib.closing(Server(host="127.0.0.1")) as server:
        assert server._local is None
        ends = Ends(server)
        assert ends.client._local is None
        ends.client.close(0)
