"""A server of clients, and its clients: all ends of conversations in one thread."""

from __future__ import annotations

import select
import time
from typing import Any

from gridengine.serialize.payload import Buffer
from gridengine.wire.connection_file import ClientConnection
from gridengine.wire.dispatcher_connection import DispatcherConnection
from gridengine.wire.local_connection import LocalConnection
from gridengine.wire.messages import Beat, ClientHello, Message, Rejoin
from gridengine.wire.server import Server

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
