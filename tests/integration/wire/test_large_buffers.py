"""Large buffers between a dispatcher and a client of its machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from gridengine.wire.messages import ClientHello, Pushed
from gridengine.wire.server import Server
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
    """Have each end send the other a large buffer."""
    ends.of_client.clear()
    ends.of_server.clear()
    ends.client.send(Pushed(1), [large("c")])
    ends.server.send(peer, Pushed(2), [large("s")])
    ends.until(lambda: ends.of_client and ends.of_server)
    [[_, _, [of_client]]], [[_, [of_server]]] = ends.of_client, ends.of_server
    assert (bytes(of_client), bytes(of_server)) == (large("c"), large("s"))


def test_large_buffers_go_both_ways(ends: Ends) -> None:
    swap(ends, ends.greet())


def test_large_buffers_go_both_ways_after_the_session_has_begun_again(ends: Ends) -> None:
    peer = ends.greet()
    ends.client.send(Pushed(1), [large("x")])  # nobody takes it
    ends.server.forget(peer)
    ends.client.begin_again()
    swap(ends, ends.greet())


def test_large_buffers_go_by_tcp_where_nobody_listens_at_the_local_socket(server: Server) -> None:
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


def test_a_dispatcher_has_no_local_socket_for_workers() -> None:
    with contextlib.closing(Server(host="127.0.0.1")) as server:
        assert server._local is None
        ends = Ends(server)
        assert ends.client._local is None
        ends.client.close(0)
