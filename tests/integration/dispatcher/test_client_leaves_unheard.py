"""A client of a dispatcher that takes nothing, and is gone when the client leaves."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gridengine._version import __version__
from gridengine.calls.remote import RemoteDispatcher
from gridengine.wire.connection_file import ClientConnection, replace_private, to_json
from gridengine.wire.messages import ClientHello, ClientWelcome
from gridengine.wire.server import Server
from tests.support.pollers import poller_of


@contextmanager
def welcoming(file: Path) -> Iterator[None]:
    """Have a dispatcher welcome clients while the block runs; then it is gone, as if killed."""
    server, ended = Server(host="127.0.0.1", greeting=ClientHello, epoch=1), threading.Event()
    keys = server.keys
    facts = {"name": "night", "version": __version__, "host": socket.gethostname(), "pid": 1}
    own = {"client_public": keys.peer_public, "client_secret": keys.peer_secret}
    made = ClientConnection(
        addresses=server.addresses, beat_seconds=0.2, server_key=keys.public, **facts, **own
    )
    replace_private(file, to_json(made))

    def serve() -> None:
        poller = poller_of(server)
        while not ended.is_set():
            poller.poll(20)
            for peer, message, _ in server.receive():
                if isinstance(message, ClientHello):
                    server.send(peer, ClientWelcome(0, 7, 1, taken=message.durable, epoch=1))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        server.close(linger_seconds=0)


@pytest.mark.parametrize("detach", [True, False])
def test_an_end_of_calls_that_the_dispatcher_did_not_hear_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, detach: bool
) -> None:
    file = tmp_path / "client.json"
    with welcoming(file):
        heard, unheard = RemoteDispatcher(file), RemoteDispatcher(file)
        heard.close()
    assert not caplog.messages
    unheard.close(detach=detach)
    told = "the dispatcher 'night' has not heard that this client has left"
    assert any(one.startswith(told) for one in caplog.messages) is not detach


def test_a_flush_tells_that_calls_are_not_on_the_dispatcher_s_disk(tmp_path: Path) -> None:
    file = tmp_path / "client.json"
    with welcoming(file):
        client = RemoteDispatcher(file)
        client.want((7 << 40) + 3, 0, 55, lambda: None)
        assert not client.flush(0.1)
    client.close(detach=True)
