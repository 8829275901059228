"""A stream socket between an agent and one of its runners, cut into messages (see `framing`).

Both ends use the same class: the agent's never waits (`send`, `flush`, `poll`), the runner's does
(`deliver`, `wait`).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import struct
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import TypeAlias

from gridengine.errors import ProtocolError
from gridengine.serialize.payload import Buffer
from gridengine.serialize.shared_memory import LARGE, adopt, new_block
from gridengine.wire.framing import HEADER_SIZE, SMALL, decode_header, encode_stream
from gridengine.wire.messages import Message

_READ = 64 * 1024
_VECTORS = 512
"""How many pieces one `sendmsg` gets; Linux takes at most 1024 (IOV_MAX)."""
_MAPPED = 1 << 20
"""From this size a buffer is read into memory of its own from the system."""
_WAIT = int(socket.MSG_NOSIGNAL)
_NEVER_WAIT = int(socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
"""Flags for sending, as plain numbers: to combine the enumeration's takes three Python calls."""
_CLOEXEC, _NOW = int(socket.MSG_CMSG_CLOEXEC), int(socket.MSG_DONTWAIT)
_MOST_READS = 64
"""How many reads one `poll` makes, so that a peer that sends much cannot keep the caller from other
work.
"""
_MOST_BESIDE = 16
"""How many large buffers of a message go beside the stream, each by a descriptor of its own: a
process may not have very many.
"""
_ANCILLARY = socket.CMSG_SPACE(4 * _MOST_BESIDE)
_LARGEST_HEADER, _LARGEST = 1 << 26, 1 << 40

Received: TypeAlias = list[tuple[Message, list[Buffer]]]


class Channel:
    """One end of the socket pair; owns the socket. Messages arrive in order and whole; their large
    buffers may be written to.

    Where one end takes blocks, large buffers that the other delivers are not copied through the
    stream: they are in memory whose descriptor goes with the message, and is that of nobody else
    once it has arrived, whatever has become of the sender. What arrives are views of a `Block`.
    """

    def __init__(self, sock: socket.socket, *, takes_blocks: bool = False) -> None:
        self._socket = sock
        self._takes_blocks = takes_blocks
        self._descriptors: deque[int] = deque()
        """Those that have come, of messages not all of which have."""
        self._unsent: deque[Buffer] = deque()
        self._bytes = b""
        self._message: Message | None = None
        """The message whose buffers are coming, of these sizes, and those that have come."""
        self._sizes: list[int] = []
        self._buffers: list[Buffer] = []
        self._room: memoryview | None = None
        """Where the next buffer, a large one, is read into; so far so many bytes of it."""
        self._filled = 0
        self.ended = False
        """Whether the peer has closed its end: nothing more will come."""
        self.more = False
        """Whether the last `poll` stopped before it had read everything."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket; what was not sent is dropped."""
        self._unsent.clear()
        self._socket.close()
        while self._descriptors:
            os.close(self._descriptors.popleft())

    def end(self) -> None:
        """Let the peer know that nothing more will come; what it sends can still be read."""
        with contextlib.suppress(OSError):  # it is gone
            self._socket.shutdown(socket.SHUT_WR)

    def send(self, message: Message, buffers: Sequence[Buffer] = ()) -> bool:
        """Queue a message and send what the socket takes now; return whether everything is out.
        Never waits.

        That the peer is gone shows when reading.
        """
        self._unsent += encode_stream(message, buffers)
        return self._push(_NEVER_WAIT)

    def flush(self) -> bool:
        """Send what the socket takes now; return whether everything is out."""
        return self._push(_NEVER_WAIT)

    def deliver(self, message: Message, buffers: Sequence[Buffer] = ()) -> None:
        """Send a message to who takes blocks, and wait until the socket has taken it all.

        Raises:
            EOFError: the peer is gone.
        """
        if max(map(len, buffers), default=0) < LARGE or not self._deliver_beside(message, buffers):
            self._unsent += encode_stream(message, buffers)
        self._push(_WAIT)

    def _deliver_beside(self, message: Message, buffers: Sequence[Buffer]) -> bool:
        """Begin to send a message whose large buffers go beside the stream, as many as can; return
        False when none can.
        """
        blocks: dict[int, int] = {}
        try:
            with contextlib.suppress(OSError):  # no descriptor is left, or no memory for files
                for index, buffer in enumerate(buffers):
                    if len(buffer) >= LARGE and len(blocks) < _MOST_BESIDE:
                        blocks[index] = new_block(buffer)
            parts = encode_stream(message, buffers, blocks)
            descriptors = struct.pack(f"={len(blocks)}i", *blocks.values())
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)] if blocks else []
            sent = self._socket.sendmsg(parts[:1], rights, _WAIT)
        except OSError:  # too many are on their way; or the peer is gone, which shows again
            return False
        finally:
            for fd in blocks.values():
                os.close(fd)
        self._unsent += memoryview(parts[0])[sent:], *parts[1:]
        return True

    def _push(self, flags: int) -> bool:
        """Send until nothing is left, or, with `_NEVER_WAIT`, the socket takes no more; return
        whether everything is out.

        Raises:
            EOFError: the peer is gone; not with `_NEVER_WAIT`.
        """
        unsent = self._unsent
        try:
            while unsent:
                sent = self._socket.sendmsg(list(islice(unsent, _VECTORS)), (), flags)
                while unsent and sent >= len(unsent[0]):
                    sent -= len(unsent.popleft())
                if sent:
                    unsent[0] = memoryview(unsent[0])[sent:]
        except OSError as error:
            if flags == _WAIT:  # or user code has made the socket one that never waits
                raise EOFError from error
            if isinstance(error, BlockingIOError):
                return False
            if not isinstance(error, ConnectionError):
                raise
            unsent.clear()  # the peer is gone; what it sent before can still be read
        return True

    def poll(self) -> Received:
        """Return the messages that have come, oldest first; never waits.

        Raises:
            ProtocolError: what came is no message; the channel is of no more use.
        """
        messages: Received = []
        self.more = False
        for _ in range(_MOST_READS):
            self.more = not self.ended and self._pull(messages, _NOW)
            if not self.more:
                break
        return messages

    def wait(self) -> Received:
        """Return the next messages, at least one; wait for it.

        Raises:
            EOFError: the peer is gone.
            ProtocolError: what came is no message.
        """
        messages: Received = []
        while not messages:
            self._pull(messages, 0)
            if self.ended:
                raise EOFError
        return messages

    def _pull(self, messages: Received, flags: int) -> bool:
        """Make one read and add the messages it completes; return whether there may be more to
        read: a stream gives less than it is asked for only when it has no more.
        """
        try:
            if self._room is not None:
                room = self._room[self._filled :]
                most, count = len(room), self._socket.recv_into(room, 0, flags)
                self._filled += count
            elif self._takes_blocks:
                data, ancillary, _, _ = self._socket.recvmsg(_READ, _ANCILLARY, flags | _CLOEXEC)
                for _, _, descriptors in ancillary:
                    self._descriptors += struct.unpack(f"={len(descriptors) // 4}i", descriptors)
                # where descriptors come with it a read ends, although there may be more
                most, count = len(data) if ancillary else _READ, len(data)
                self._bytes = self._bytes + data if self._bytes else data
            else:
                data = self._socket.recv(_READ, flags)
                most, count = _READ, len(data)
                self._bytes = self._bytes + data if self._bytes else data
        except BlockingIOError:
            return False
        except OSError:
            most = count = 0
        if not count:
            self.ended = True
            return False
        self._parse(messages)
        return count == most

    def _parse(self, messages: Received) -> None:
        """Cut what was read into messages."""
        data, offset = self._bytes, 0
        while True:
            message, buffers = self._message, self._buffers
            if message is None:
                begin = offset + HEADER_SIZE.size
                if len(data) < begin:
                    break
                (size,) = HEADER_SIZE.unpack_from(data, offset)
                if size > _LARGEST_HEADER:
                    raise ProtocolError(f"a header of {size} bytes")
                if len(data) < begin + size:
                    break
                offset = begin + size
                self._sizes, self._message = decode_header(
                    memoryview(data)[begin:offset], beside=self._takes_blocks
                )
                self._buffers = []
            elif len(buffers) == len(self._sizes):
                messages.append((message, buffers))
                self._message = None
            elif self._room is not None:
                if self._filled < len(self._room):
                    break
                buffers.append(self._room)
                self._room = None
            elif (size := self._sizes[len(buffers)]) < 0:
                buffers.append(self._take_block(-size))
            elif size > SMALL:
                offset = self._make_room(size, offset)
            elif len(data) - offset < size:
                break
            else:
                buffers.append(data[offset : offset + size])
                offset += size
        self._bytes = data[offset:]

    def _take_block(self, size: int) -> memoryview:
        try:
            return adopt(self._descriptors.popleft(), size)
        except (IndexError, OSError, ValueError) as error:
            raise ProtocolError(f"a buffer of {size} bytes has not come: {error}") from error

    def _make_room(self, size: int, offset: int) -> int:
        """Begin a large buffer, which is then read into place without a copy; return the new
        offset.
        """
        if size > _LARGEST:
            raise ProtocolError(f"a buffer of {size} bytes")
        try:
            # Mapped memory is not filled with zeros first, and goes back to the system in the end.
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            room = memoryview(
                mmap.mmap(-1, size, flags=flags) if size >= _MAPPED else bytearray(size)
            )
        except OSError as error:
            raise ProtocolError(f"no memory for a buffer of {size} bytes: {error}") from error
        taken = min(size, len(self._bytes) - offset)
        room[:taken] = memoryview(self._bytes)[offset : offset + taken]
        self._room, self._filled = room, taken
        return offset + taken
