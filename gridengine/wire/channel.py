"""A stream socket between an agent and one of its runners, cut into messages (see `framing`), and
the socket pairs for it.

Both ends use the same class. The agent's end never waits (`send`, `flush`, `poll`); the runner's
end does (`deliver`, `wait`).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import islice
from typing import TypeAlias

from gridengine.errors import ProtocolError
from gridengine.serialize.payload import Buffer
from gridengine.serialize.shared_memory import LARGE, adopt, disown, new_block
from gridengine.system import CLOSED_ON_EXEC, NO_SIGNAL, own
from gridengine.wire.framing import HEADER_SIZE, SMALL, decode_header, encode_stream
from gridengine.wire.messages import Assign, Define, Message

_READ = 64 * 1024
_VECTORS = 512
"""How many pieces one `sendmsg` gets; Linux takes at most 1024 (IOV_MAX)."""
_MAPPED = 1 << 20
"""A buffer of at least this size is read into an anonymous mapping of its own."""
_WAIT = NO_SIGNAL
_NEVER_WAIT = NO_SIGNAL | int(socket.MSG_DONTWAIT)
"""Flags for sending, as plain integers: combining members of the enumeration takes three Python
calls.
"""
_NOW = int(socket.MSG_DONTWAIT)
_MOST_READS = 64
"""How many reads one `poll` makes, so that a peer that sends much cannot keep the caller from other
work.
"""
_MOST_BESIDE = 16
"""How many large buffers of one message travel as descriptors beside the stream. Each needs a
descriptor, of which a process has a limited number.
"""
_MOST_COPIED = 1 << 26
"""The end that never waits copies no more into blocks at a time, which takes it 20 to 30 ms. Longer
messages go through the stream, piece by piece.
"""
_ANCILLARY = socket.CMSG_SPACE(4 * _MOST_BESIDE)
_LARGEST_HEADER, _LARGEST = 1 << 26, 1 << 40

Received: TypeAlias = list[tuple[Message, list[Buffer]]]


class Channel:
    """One end of the socket pair; it owns the socket. Messages arrive in order and whole. The
    receiver may write to their large buffers.

    An agent and its runner do not copy large buffers through the stream. The sender writes each to
    shared memory and sends the descriptor with the message. Once received, the memory belongs to
    the receiver alone, even when the sender dies. Such a buffer arrives as a view of a `Block`.
    Where that is not possible, it goes through the stream.

    Args:
        takes_blocks: both ends take blocks.
        keeps_descriptors: keep those of received blocks, so that others can open them.

    Rejected: opening the sender's memory by `/proc/PID/fd`. A runner that has died has then not
    delivered its result.
    """

    def __init__(
        self, sock: socket.socket, *, takes_blocks: bool = False, keeps_descriptors: bool = False
    ) -> None:
        self._socket = sock
        self._takes_blocks = takes_blocks
        self._keeps_descriptors = keeps_descriptors
        self._descriptors: deque[int] = deque()
        """Received descriptors whose messages are not complete yet."""
        self._unsent: deque[Buffer] = deque()
        self._bytes = b""
        self._message: Message | None = None
        """The message whose buffers are being received, with their `_sizes`, and the `_buffers` so
        far.
        """
        self._sizes: list[int] = []
        self._buffers: list[Buffer] = []
        self._room: memoryview | None = None
        """The memory that the next large buffer is read into, and how many bytes of it are
        `_filled`.
        """
        self._filled = 0
        self.ended = False
        """Whether the peer has closed its end, so that no more messages will arrive."""
        self.more = False
        """Whether the last `poll` stopped before it had read everything."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket; unsent messages are dropped."""
        self._unsent.clear()
        self._socket.close()
        while self._descriptors:
            os.close(self._descriptors.popleft())

    def end(self) -> None:
        """Tell the peer that no more messages will come. Messages of the peer can still be read."""
        with contextlib.suppress(OSError):  # the peer is gone
            self._socket.shutdown(socket.SHUT_WR)

    def send(self, message: Message, buffers: Sequence[Buffer] = ()) -> bool:
        """Queue a message and send as much as the socket takes now. Return whether everything was
        sent. Never waits.

        A peer that is gone shows when reading, not here.
        """
        # What a call in progress hears, it must get though it has used up its descriptors.
        begins_calls = self._takes_blocks and isinstance(message, (Assign, Define))
        is_large = begins_calls and max(map(len, buffers), default=0) >= LARGE
        if (
            self._unsent
            or not is_large
            or sum(map(len, buffers)) > _MOST_COPIED
            or not self._deliver_beside(message, buffers, _NEVER_WAIT)
        ):
            self._unsent += encode_stream(message, buffers)
        return self._push(_NEVER_WAIT)

    def flush(self) -> bool:
        """Send as much as the socket takes now; return whether everything was sent."""
        return self._push(_NEVER_WAIT)

    def deliver(self, message: Message, buffers: Sequence[Buffer] = ()) -> None:
        """Send a message to a peer that takes blocks, and wait until the socket has taken all of
        it.

        Raises:
            EOFError: the peer is gone.
        """
        if max(map(len, buffers), default=0) < LARGE or not self._deliver_beside(
            message, buffers, _WAIT
        ):
            self._unsent += encode_stream(message, buffers)
        self._push(_WAIT)

    def _deliver_beside(self, message: Message, buffers: Sequence[Buffer], flags: int) -> bool:
        """Begin to send a message, with as many of its large buffers as possible beside the stream.
        Return False when none can go beside it.
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
            sent = self._socket.sendmsg(parts[:1], rights, flags)
        except OSError:  # too many descriptors are in flight; or the peer is gone: `_push` sees it
            return False
        finally:
            for fd in blocks.values():
                os.close(fd)
        self._unsent += memoryview(parts[0])[sent:], *parts[1:]
        return True

    def _push(self, flags: int) -> bool:
        """Send until nothing is left or, with `_NEVER_WAIT`, until the socket takes no more. Return
        whether everything was sent.

        Raises:
            EOFError: the peer is gone; never with `_NEVER_WAIT`.
        """
        unsent = self._unsent
        try:
            while unsent:
                if len(unsent) == 1:  # `sendmsg` costs one microsecond more
                    sent = self._socket.send(unsent[0], flags)
                else:
                    sent = self._socket.sendmsg(list(islice(unsent, _VECTORS)), (), flags)
                while unsent and sent >= len(unsent[0]):
                    sent -= len(unsent.popleft())
                if sent:
                    unsent[0] = memoryview(unsent[0])[sent:]
        except OSError as error:
            if flags == _WAIT:  # the peer is gone, or user code made the socket non-blocking
                raise EOFError from error
            if isinstance(error, BlockingIOError):
                return False
            if not isinstance(error, ConnectionError):
                raise
            unsent.clear()  # the peer is gone; its earlier messages can still be read
        return True

    def poll(self) -> Received:
        """Return the messages that have arrived, oldest first. Never waits.

        Raises:
            ProtocolError: the bytes are not a message; the channel cannot be used any more.
        """
        messages: Received = []
        self.more = False
        for _ in range(_MOST_READS):
            self.more = not self.ended and self._pull(messages, _NOW)
            if not self.more:
                break
        return messages

    def wait(self) -> Received:
        """Wait for the next messages and return them, at least one.

        Raises:
            EOFError: the peer is gone.
            ProtocolError: the bytes are not a message.
        """
        messages: Received = []
        while not messages:
            self._wait_readable()
            self._pull(messages, 0)
            if self.ended:
                raise EOFError
        return messages

    @cached_property
    def _wait_readable(self) -> Callable[[], object]:
        """Waits until the socket can be read. Linux wakes a reader that sleeps in `recvmsg` also
        when its peer has read what this end sent, once for each call; one that polls, it does not.
        """
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        return poller.poll

    def _pull(self, messages: Received, flags: int) -> bool:
        """Read once, and add the messages that the read completes. Return whether there may be more
        to read. A stream returns fewer bytes than requested only when it has no more.
        """
        try:
            if self._room is not None:
                room = self._room[self._filled :]
                most, count = len(room), self._socket.recv_into(room, 0, flags)
                self._filled += count
            elif self._takes_blocks:
                data, ancillary, _, _ = self._socket.recvmsg(
                    _READ, _ANCILLARY, flags | CLOSED_ON_EXEC
                )
                for _, _, descriptors in ancillary:
                    came = struct.unpack(f"={len(descriptors) // 4}i", descriptors)
                    own(came)
                    self._descriptors += came
                # A read ends where descriptors are attached, although more bytes may be waiting.
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
        """Cut the bytes read so far into messages."""
        data, offset, end = self._bytes, 0, len(self._bytes)
        while True:
            if self._message is None:
                begin = offset + HEADER_SIZE.size
                if end < begin:
                    break
                (size,) = HEADER_SIZE.unpack_from(data, offset)
                if size > _LARGEST_HEADER:
                    raise ProtocolError(f"a header of {size} bytes")
                if end < begin + size:
                    break
                offset = begin + size
                self._sizes, self._message = decode_header(
                    data[begin:offset], beside=self._takes_blocks
                )
                self._buffers = []
            buffers = self._buffers
            for size in islice(self._sizes, len(buffers), None):
                if size > SMALL and self._room is None:
                    offset = self._make_room(size, offset)
                if self._room is not None:
                    if self._filled < len(self._room):
                        break
                    buffers.append(self._room)
                    self._room = None
                elif size < 0:
                    buffers.append(self._take_block(-size))
                elif end - offset < size:
                    break
                else:
                    buffers.append(data[offset : offset + size])
                    offset += size
            else:
                messages.append((self._message, buffers))
                self._message = None
                continue
            break
        self._bytes = data[offset:]

    def _take_block(self, size: int) -> memoryview:
        """Map the next block that has come.

        Raises:
            EOFError: this is a runner whose calls have left it no descriptor. Another takes its
                place.
        """
        if not self._descriptors and not self._keeps_descriptors:
            raise EOFError("no descriptor was left for a large buffer")
        try:
            view = adopt(self._descriptors.popleft(), size)
        except (IndexError, OSError, ValueError) as error:
            raise ProtocolError(f"a buffer of {size} bytes has not come: {error}") from error
        if not self._keeps_descriptors:
            disown([view])
        return view

    def _make_room(self, size: int, offset: int) -> int:
        """Allocate memory for a large buffer, which later reads fill in place without a copy.
        Return the new offset.
        """
        if size > _LARGEST:
            raise ProtocolError(f"a buffer of {size} bytes")
        try:
            # Mapped memory is not zeroed by us first, and returns to the system when freed.
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


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a connection, both blocking.

    A user's `socket.setdefaulttimeout` must not apply: it would make both new sockets non-blocking,
    and the process at the other end would find nothing to read and leave.
    """
    ours, theirs = socket.socketpair()
    ours.setblocking(True)
    theirs.setblocking(True)
    return ours, theirs
