"""Large buffers between a dispatcher and a client of the same user on the same machine: they go as
descriptors of blocks, through a Unix socket beside the session (see `local_connection`).

    put: buffer -> block -> descriptor, number ---Unix socket---.
    message with the number in the buffer's place ---session----> take: number -> block

So a large result is not copied. The message itself, its order and its acknowledgement stay the
session's. A block is sent before its message, so the receiver finds it when the message is there,
without waiting. When a block cannot be sent, its buffer travels in the message: the socket is full,
or too many descriptors are in flight.

A block is sealed, so its sender cannot change it later. Through the socket, a stream, go numbers of
8 bytes, each with one descriptor.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterator

from gridengine.errors import MessageTooLong, memory_limits
from gridengine.serialize.payload import Buffer
from gridengine.serialize.shared_memory import adopt, disown, sealed_block
from gridengine.system import CLOSED_ON_EXEC, NO_SIGNAL
from gridengine.wire.framing import NUMBER

_DESCRIPTOR = struct.Struct("=i")
_ANCILLARY = socket.CMSG_LEN(_DESCRIPTOR.size)
_SEND = int(socket.MSG_DONTWAIT) | NO_SIGNAL
_RECEIVE = int(socket.MSG_DONTWAIT) | CLOSED_ON_EXEC


class BlockSocket:
    """One end of the socket. Its methods never wait."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._put = 0
        self._blocks: dict[bytes, int] = {}
        """Descriptors that have arrived, by number, whose messages have not."""
        self._spare = -1
        """A descriptor that is free while a block is received, even if no other is left."""
        self._take_spare()

    def put(self, buffer: Buffer) -> bytes:
        """Send a buffer, and return its number; empty if it cannot be sent this way."""
        number = NUMBER.pack(self._put)
        try:
            with sealed_block(buffer) as fd:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, _DESCRIPTOR.pack(fd))]
                self._socket.sendmsg([number], rights, _SEND)
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
            if getattr(error, "errno", 0) == errno.ENOMEM:
                told = f"there is no memory for {size:,} bytes in this process{memory_limits()}"
                raise MessageTooLong(told, hint="raise that limit") from error
            raise MessageTooLong(f"a block of {size:,} bytes has not arrived: {error!r}") from error
        disown([view])
        self._take_spare()
        return view

    def _receive(self) -> None:
        number, ancillary, _, _ = self._socket.recvmsg(NUMBER.size, _ANCILLARY, _RECEIVE)
        if not ancillary:
            raise EOFError("no descriptor is left" if number else "the other end is gone")
        [(_, _, descriptor)] = ancillary
        [self._blocks[number]] = _DESCRIPTOR.unpack(descriptor)

    def _take_spare(self) -> None:
        with contextlib.suppress(OSError):  # another thread was quicker
            self._spare = os.dup(self._socket.fileno())

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


@contextlib.contextmanager
def _closed_on_error(fd: int) -> Iterator[int]:
    try:
        yield fd
    except BaseException:
        os.close(fd)
        raise
