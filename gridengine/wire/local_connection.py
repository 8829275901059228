"""Local connections: a dispatcher and a client of the same user on the same machine exchange the
envelopes of their session by a Unix socket, without TCP, encryption and ZeroMQ's threads.

A session begins over TCP, where both keys are proved. It goes over to the local connection as soon
as that is open, and back to TCP when the local connection has ended. Both may lose or reorder what
is under way at that moment; the session repairs that as it does for TCP alone.

    client                                            dispatcher
    connect; name, nonce        ---Unix socket--->    stays in the backlog
    greeting                    ---TCP, CURVE---->    accept, and find the peer by its name
                                <--Unix socket----    nonce, proof
    proof, a block socket's end ---Unix socket--->    open
    envelopes                   <--Unix socket--->    envelopes

Each end accepts processes of its own user alone, for which the kernel vouches (`peer_user`). That
does not suffice: a process of the same user may be shut into a sandbox that must not reach the
dispatcher. So each end also proves that it knows the client's identity on ZeroMQ, 128 random bits
that have travelled under CURVE alone. The proof is a digest of the identity and both nonces. So who
cannot read the dispatcher's files can neither join a session nor pose as the dispatcher, and a
watcher stays a watcher.

The socket has an abstract name (unix(7)), a digest of the dispatcher's public key. There is no file
to remove, and the name works wherever the folder of the dispatcher is. It is unknown to other
machines and to containers with a network of their own: their clients use TCP.

Rejected: a socket in the dispatcher's folder. A client may have a copy of the connection file
alone, the path may be longer than the 107 bytes that the kernel takes, and a killed dispatcher
leaves the file. Also rejected: to begin the session here, without TCP. Then the keys would have to
be proved here too, and a dispatcher that is started again elsewhere would need a second greeting.
"""

from __future__ import annotations

import contextlib
import os
import socket
from _blake2 import blake2b  # not `hashlib` nor `secrets`, which load OpenSSL
from _operator import _compare_digest
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator

from gridengine.display import log
from gridengine.errors import ProtocolError
from gridengine.serialize.payload import Buffer
from gridengine.system import CLOSED_ON_EXEC, PACKETS, packet_address, peer_user
from gridengine.system.polling import READABLE, WRITABLE, Polling
from gridengine.wire.block_socket import BlockSocket
from gridengine.wire.channel import socket_pair
from gridengine.wire.packet_socket import PacketSocket
from gridengine.wire.session import IDENTITY_BYTES, Frames

_BACKLOG = 128
MOST_WAITING = 128
"""Connections whose clients have not greeted yet. Of more, the oldest are closed."""
_MOST_READY = 16
"""How many connections are looked at in turn; the kernel gives those first that waited longest."""
_NONCE, _DIGEST = 16, 32
_FIRST = _DIGEST + _NONCE
"""The sizes of a nonce, a digest and the first packet in bytes."""
_READ_PACKETS = 64


class LocalConnection(ABC):
    """One end. Its methods never wait.

    Args:
        watched: polls as readable when `receive` should be called.
    """

    def __init__(self, sock: socket.socket, watched: Polling) -> None:
        self._socket = sock
        self._packets = PacketSocket(sock)
        self._blocks: BlockSocket | None = None
        """For large buffers; None before the other end has proved who it is."""
        self._watched = watched
        self._is_jammed = False
        """Whether envelopes wait for room in the socket."""
        self._has_ended = False
        self.is_open = False
        """Whether envelopes can be sent."""
        watched.register(sock, READABLE)

    def fileno(self) -> int:
        return self._socket.fileno()

    def has_ended(self) -> bool:
        """Whether nothing more is received. Envelopes that were under way may be lost."""
        return self._has_ended

    def put(self, buffer: Buffer) -> bytes:
        """See `BlockSocket.put`."""
        return self._blocks.put(buffer) if self.is_open and self._blocks is not None else b""

    def take(self, number: bytes, size: int) -> memoryview:
        """See `BlockSocket.take`. Works after the end, too."""
        if self._blocks is None:
            raise ProtocolError("a block before the connection was open")
        return self._blocks.take(number, size)

    def send(self, frames: Frames) -> None:
        """Send an envelope, or queue it while the socket is full."""
        if not self._packets.send(frames):
            self._watch(jammed=True)

    def receive(self, most: int = _READ_PACKETS) -> list[Frames]:
        """Return envelopes that have arrived, read from at most this many packets. Send queued
        envelopes, as far as there is room.

        Raises:
            ProtocolError: the other end sent something else; the connection has ended.
        """
        if self._blocks is None:
            self._open()
            return []
        if self._is_jammed and self._packets.flush():
            self._watch(jammed=False)
        try:
            envelopes = self._packets.receive(most)
        except ProtocolError:
            self.end()
            raise
        if self._packets.ended:
            self.end()
        return envelopes

    def _watch(self, *, jammed: bool) -> None:
        if jammed is not self._is_jammed:
            self._is_jammed = jammed
            events = READABLE | WRITABLE if jammed else READABLE
            self._watched.modify(self._socket, events)

    def _open(self) -> None:
        try:
            self._blocks = self._prove()
        except BlockingIOError:  # the proof has not come yet
            return
        except OSError as error:
            log().debug("a local connection was not opened: %s", error)
            self.end()
        else:
            self.is_open = True

    @abstractmethod
    def _prove(self) -> BlockSocket:
        """Read the other end's proof, and return the socket for large buffers.

        Raises:
            OSError: the proof is wrong, the other end is gone, or no descriptor is left.
        """

    def end(self) -> None:
        """Send and receive no more envelopes. Blocks that have arrived can still be taken."""
        if not self._has_ended:
            self._has_ended, self.is_open = True, False
            self._watched.unregister(self._socket)
            self._packets.close()

    def close(self) -> None:
        """End, and close the blocks that nobody has taken. May be called twice."""
        self.end()
        if self._blocks is not None:
            self._blocks.close()


class ClientEnd(LocalConnection):
    """A client's end, see `connect`."""

    def __init__(
        self, sock: socket.socket, watched: Polling, identity: bytes, nonce: bytes
    ) -> None:
        super().__init__(sock, watched)
        self._identity, self._nonce = identity, nonce

    def _prove(self) -> BlockSocket:
        said = self._socket.recv(_NONCE + _DIGEST)
        theirs, proof = said[:_NONCE], said[_NONCE:]
        _check(proof, _digest(b"dispatcher", self._identity, self._nonce, theirs))
        proof = _digest(b"client", self._identity, self._nonce, theirs)
        near, far = socket_pair()
        with far, contextlib.ExitStack() as undo:
            undo.enter_context(near)
            socket.send_fds(self._socket, [proof], [far.fileno()])
            undo.pop_all()
        return BlockSocket(near)


class DispatcherEnd(LocalConnection):
    """A dispatcher's end.

    Args:
        identity: of the client, which has greeted.
        nonce: the client's.
    """

    def __init__(
        self, sock: socket.socket, watched: Polling, identity: bytes, nonce: bytes
    ) -> None:
        super().__init__(sock, watched)
        ours = os.urandom(_NONCE)
        self._expected = _digest(b"client", identity, nonce, ours)
        with contextlib.suppress(OSError):  # the client is gone, which shows when reading
            sock.send(ours + _digest(b"dispatcher", identity, nonce, ours))

    def _prove(self) -> BlockSocket:
        proof, descriptors, _, _ = socket.recv_fds(self._socket, _DIGEST, 1, CLOSED_ON_EXEC)
        with contextlib.ExitStack() as undo:
            for fd in descriptors:
                undo.callback(os.close, fd)
            _check(proof, self._expected)
            if not descriptors:
                raise OSError("no descriptor is left")
            sock = socket.socket(fileno=descriptors[0])
            undo.pop_all()
        return BlockSocket(sock)


class LocalClients:
    """A dispatcher's ends of all local connections, by the identities of its clients.

    Where sockets have neither such names nor packets, as on macOS, nobody connects.

    Args:
        key: the dispatcher's public key.
        beside: a descriptor that `fd` polls too.
    """

    def __init__(self, key: str, beside: int) -> None:
        self._listener = _socket()
        with contextlib.suppress(OSError):
            self._listener.bind(_address(key))
            self._listener.listen(_BACKLOG)
        self._watched = Polling()
        self._watched.register(beside, READABLE)
        self.fd = self._watched.fileno()
        self._waiting: dict[socket.socket, bytes] = {}
        """Accepted sockets of clients that have not greeted, the oldest first, each with its first
        packet; empty before that has arrived.
        """
        self._connections: dict[bytes, DispatcherEnd] = {}
        self.get = self._connections.get
        """Returns a client's connection, open or not; None if it has none."""
        self._peers: dict[int, bytes] = {}
        """The clients of connections that have not ended, by descriptor."""

    def greeted(self, peer: bytes) -> None:
        """Begin to open the connection of a client that has greeted, if it has one. It connects
        before it greets. An identity of another length may be a word that others can guess.
        """
        self.forget(peer)
        self._accept()
        if len(peer) != IDENTITY_BYTES:
            return
        name = _digest(b"name", peer)
        found = [sock for sock, first in self._waiting.items() if first[:_DIGEST] == name]
        for sock in found[:-1]:  # of greetings that never arrived
            self._drop(sock)
        for sock in found[-1:]:
            nonce = self._waiting.pop(sock)[_DIGEST:]
            self._peers[sock.fileno()] = peer
            self._connections[peer] = DispatcherEnd(sock, self._watched, peer, nonce)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # none is left
            for _ in range(_BACKLOG):  # nobody can keep the caller here by connecting
                sock, _ = self._listener.accept()
                self._waiting[sock] = b""
        for sock, first in list(self._waiting.items()):
            if not first:
                self._read_first(sock)
        for sock in list(self._waiting)[:-MOST_WAITING]:
            self._drop(sock)

    def _read_first(self, sock: socket.socket) -> None:
        """Read the first packet of a connection if it is there, and drop other users' processes."""
        try:
            sock.setblocking(False)
            if is_own(sock) and len(first := sock.recv(_FIRST + 1)) == _FIRST:
                self._waiting[sock] = first
                return
        except BlockingIOError:
            return
        except OSError as error:
            log().debug("a local connection has ended: %s", error)
        self._drop(sock)

    def _drop(self, sock: socket.socket) -> None:
        del self._waiting[sock]
        sock.close()

    def poll(self) -> dict[int, int]:
        """Return descriptors that poll as readable, among them perhaps `beside`."""
        return dict(self._watched.poll(0, _MOST_READY))

    def receive(self, ready: Collection[int], most: int) -> Iterator[tuple[bytes, Frames]]:
        """Yield at most `most` envelopes of the connections that poll as readable, each with its
        client. A connection that breaks the protocol is ended.
        """
        share = max(1, most // max(1, len(ready)))
        for fd in ready:
            peer = self._peers.get(fd)
            if peer is None:
                continue
            connection = self._connections[peer]
            envelopes: list[Frames] = []
            try:
                envelopes = connection.receive(min(share, _READ_PACKETS))
            except ProtocolError as error:
                log().warning(
                    "the local connection of %s is closed: %s", peer.hex()[:8], error.message
                )
            if connection.has_ended():
                del self._peers[fd]
            for frames in envelopes:
                if self._connections.get(peer) is connection:  # it may be forgotten meanwhile
                    yield peer, frames

    def forget(self, peer: bytes) -> None:
        """Close a client's connection."""
        connection = self._connections.pop(peer, None)
        if connection is not None:
            if not connection.has_ended():
                del self._peers[connection.fileno()]
            connection.close()

    def close(self) -> None:
        for peer in list(self._connections):
            self.forget(peer)
        for sock in list(self._waiting):
            self._drop(sock)
        self._listener.close()
        self._watched.close()


def connect(key: str, identity: bytes, watched: Polling) -> LocalConnection | None:
    """Return a client's end, connected to the dispatcher with this public key; None if there is
    none on this machine, or it is another user's. It is not open before the client has greeted.
    """
    sock = _socket()
    nonce = os.urandom(_NONCE)
    with contextlib.suppress(OSError):
        sock.connect(_address(key))
        if is_own(sock):
            sock.send(_digest(b"name", identity) + nonce)
            return ClientEnd(sock, watched, identity, nonce)
    sock.close()
    return None


def is_own(sock: socket.socket) -> bool:
    """Return whether the process at the other end is this user's."""
    return peer_user(sock) == os.geteuid()


def _socket() -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, PACKETS)
    sock.setblocking(False)
    return sock


def _address(key: str) -> str:
    name = blake2b(key.encode(), digest_size=16).hexdigest()
    return packet_address(f"gridengine-{name}")


def _digest(purpose: bytes, identity: bytes, *nonces: bytes) -> bytes:
    """Return a digest that only who knows the identity can make."""
    secret = b"".join((identity, *nonces))
    return blake2b(secret, digest_size=_DIGEST, person=purpose).digest()


def _check(proof: bytes, expected: bytes) -> None:
    if not _compare_digest(proof, expected):
        raise ConnectionRefusedError("the other end does not know the client's identity")
