"""Large buffers between a dispatcher and a client of the same user on the same machine: they go as
descriptors of blocks, through a Unix socket beside the session.

    put: buffer -> block -> descriptor, number ---Unix socket---.
    message with the number in the buffer's place ---session (TCP, CURVE)---> take: number -> block

So a large result is neither encrypted nor copied. The message itself, its order and its
acknowledgement stay the session's. A block is sent before its message, so the receiver finds it
when the message is there, without waiting. When a block cannot be sent, its buffer travels in the
message: the socket is full, too many descriptors are in flight, or nobody listens.

The socket has an abstract name (unix(7)), made from the dispatcher's public key: no file must be
removed, and the name works wherever the folder of the dispatcher is. The kernel says whose process
is at the other end. Both ends talk to processes of their own user alone, and those may do anything
to each other anyway. A block is sealed, so its sender cannot change it later.

The socket has packets (`SOCK_SEQPACKET`). The client's first is the identity of its ZeroMQ socket;
the dispatcher answers `accepted` when it gets the client's greeting. Each later packet, of either
end, is a number of 8 bytes with one descriptor.

Rejected: the whole session over the Unix socket. It would have to move to TCP in the middle, when
the dispatcher is started again on another machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import struct
from collections.abc import Iterator

from gridengine.errors import MessageTooLong
from gridengine.serialize.payload import Buffer
from gridengine.serialize.shared_memory import adopt, disown, sealed_block
from gridengine.wire.framing import NUMBER

_CREDENTIALS = struct.Struct("3i")
"""`struct ucred` of unix(7): process, user and group."""
_DESCRIPTOR = struct.Struct("=i")
_ANCILLARY = socket.CMSG_LEN(_DESCRIPTOR.size)
_CLOEXEC = int(socket.MSG_CMSG_CLOEXEC)
_BACKLOG = 128
_ACCEPTED = b"accepted"
_MOST_IDENTITY = 256
_KIND = int(socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)


class BlockSocket:
    """One end of the socket. Its methods never wait.

    accepted: whether the other end is known to have accepted the connection. If not, its first
        packet will say so; a dispatcher with very many clients leaves some connections unaccepted.
    """

    def __init__(self, sock: socket.socket, *, accepted: bool = True) -> None:
        self._socket = sock
        self._accepted = accepted
        self._put = 0
        self._blocks: dict[bytes, int] = {}
        """Descriptors that have arrived, by number, whose messages have not."""
        self._spare = os.dup(sock.fileno())
        """A descriptor that is free while a block is received, even if no other is left."""

    def put(self, buffer: Buffer) -> bytes:
        """Send a buffer, and return its number; empty if it cannot be sent this way."""
        number = NUMBER.pack(self._put)
        try:
            if not self._is_accepted():
                return b""
            with sealed_block(buffer) as fd:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, _DESCRIPTOR.pack(fd))]
                self._socket.sendmsg([number], rights, socket.MSG_NOSIGNAL)
        except OSError:  # the socket is full, no descriptor is left, or the other end is gone
            return b""
        self._put += 1
        return number

    def take(self, number: bytes, size: int) -> memoryview:
        """Return the buffer of this number and size in bytes. It may be written to.

        Raises:
            MessageTooLong: it has not arrived, or this process has no descriptor or memory for it.
        """
        self._close_spare()
        try:
            while number not in self._blocks:
                self._receive()
            with _closed_on_error(self._blocks.pop(number)) as fd:
                view = adopt(fd, size)
        except (OSError, EOFError, ValueError) as error:
            raise MessageTooLong(f"a block of {size:,} bytes has not arrived: {error!r}") from error
        disown([view])
        with contextlib.suppress(OSError):  # another thread was quicker
            self._spare = os.dup(self._socket.fileno())
        return view

    def _is_accepted(self) -> bool:
        if not self._accepted:
            with contextlib.suppress(BlockingIOError):
                self._accepted = self._socket.recv(len(_ACCEPTED)) == _ACCEPTED
        return self._accepted

    def _receive(self) -> None:
        if not self._is_accepted():
            raise EOFError("the other end has no connection")
        number, ancillary, _, _ = self._socket.recvmsg(NUMBER.size, _ANCILLARY, _CLOEXEC)
        if not ancillary:
            raise EOFError("no descriptor is left" if number else "the other end is gone")
        [(_, _, descriptor)] = ancillary
        [self._blocks[number]] = _DESCRIPTOR.unpack(descriptor)

    def _close_spare(self) -> None:
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1

    def close(self) -> None:
        """Close the socket, and all blocks that nobody has taken. May be called twice."""
        self._close_spare()
        while self._blocks:
            os.close(self._blocks.popitem()[1])
        self._socket.close()


class BlockListener:
    """A dispatcher's end, before clients connect. Without abstract sockets, nobody connects.

    Args:
        key: the dispatcher's public key.
    """

    def __init__(self, key: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, _KIND)
        with contextlib.suppress(OSError):
            self._socket.bind(_name(key))
            self._socket.listen(_BACKLOG)

    def accept(self) -> Iterator[tuple[bytes, BlockSocket]]:
        """Yield the connections of this user's clients, each with the client's identity. Others are
        closed; at most `_BACKLOG` are looked at, so that nobody can keep the caller here.
        """
        with contextlib.suppress(OSError):  # none is left
            for _ in range(_BACKLOG):
                sock, _ = self._socket.accept()
                sock.setblocking(False)
                with contextlib.suppress(OSError):
                    if is_own(sock) and (identity := sock.recv(_MOST_IDENTITY)):
                        sock.send(_ACCEPTED)
                        yield identity, BlockSocket(sock)
                        continue
                sock.close()

    def close(self) -> None:
        self._socket.close()


def connect(key: str, identity: bytes) -> BlockSocket | None:
    """Return a client's end, connected to the dispatcher with this public key; None if that has
    none here, or is another user's.
    """
    sock = socket.socket(socket.AF_UNIX, _KIND)
    with contextlib.suppress(OSError):
        sock.connect(_name(key))
        if is_own(sock):
            sock.send(identity)
            return BlockSocket(sock, accepted=False)
    sock.close()
    return None


def is_own(sock: socket.socket) -> bool:
    """Return whether the process at the other end is this user's."""
    said = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(said)
    return bool(user == os.geteuid())


@contextlib.contextmanager
def _closed_on_error(fd: int) -> Iterator[int]:
    try:
        yield fd
    except BaseException:
        os.close(fd)
        raise


def _name(key: str) -> str:
    return f"\0gridengine-{hashlib.blake2b(key.encode(), digest_size=16).hexdigest()}"
