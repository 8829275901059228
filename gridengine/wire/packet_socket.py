"""A Unix socket that carries envelopes, for a session between two processes of one machine.

An envelope is a list of frames (see `session`). On the socket it is

    number of frames, bytes that follow (4 bytes each)    size of each frame (4 bytes)    the frames

cut into packets of at most `MOST_PACKET` bytes. The socket keeps packets apart (`SOCK_SEQPACKET`),
so a packet is sent whole or not at all, and each envelope begins a packet.

Nothing here waits. What the socket does not take stays queued, as references to the frames: the
session stores numbered messages until they are acknowledged, so a peer that does not read costs
no more memory than its session has anyway.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import deque
from collections.abc import Sequence

from gridengine.errors import ProtocolError
from gridengine.serialize.payload import Buffer
from gridengine.system import NO_SIGNAL
from gridengine.wire.session import Frames

MOST_PACKET = 128 * 1024
"""A socket's default buffer of 208 KiB must have room for a packet."""
_MOST_ENVELOPE = 512 * 1024
"""Refuse longer ones. An envelope of a session has one piece of 256 KiB, and 4 bytes a frame."""
_MOST_PARTS = 64
"""Envelopes of more frames are joined; `sendmsg` takes at most 1024 buffers."""
_BUFFER_BYTES = 1 << 20
"""How many bytes may be under way; the kernel allows less where it is set up so."""
_HEADER = struct.Struct("=II")
_SIZE = 4
_SEND = int(socket.MSG_DONTWAIT) | NO_SIGNAL
_RECEIVE = int(socket.MSG_DONTWAIT | socket.MSG_TRUNC)


class PacketSocket:
    """One end; it owns the socket.

    ended: whether the other end is gone, so that nothing more arrives.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self._socket = sock
        self._unsent: deque[Frames] = deque()
        self._packets: deque[Sequence[Buffer]] = deque()
        """The packets of the envelope that is being sent."""
        self._packet = memoryview(bytearray(MOST_PACKET))
        """Room for a packet that begins an envelope."""
        self._rest = memoryview(b"")
        """Room for the missing part of the envelope that is being received, in `_envelope`."""
        self._envelope = bytearray()
        self.ended = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, frames: Frames) -> bool:
        """Send an envelope, or queue it. Return whether nothing is queued."""
        if self._packets or self._unsent:
            self._unsent.append(frames)
            return False
        self._packets += _packets(frames)
        return self.flush()

    def flush(self) -> bool:
        """Send queued envelopes, as much as the socket takes now; return whether nothing is left.
        When the other end is gone, or the kernel takes no such packets, the socket ends, which
        shows when reading.
        """
        packets, unsent = self._packets, self._unsent
        try:
            while packets or unsent:
                if not packets:
                    packets += _packets(unsent.popleft())
                self._socket.sendmsg(packets[0], (), _SEND)
                packets.popleft()
        except BlockingIOError:
            return False
        except OSError:
            unsent.clear()
            packets.clear()
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        return True

    def receive(self, most: int) -> list[Frames]:
        """Return the envelopes that have arrived, after reading at most this many packets.

        Raises:
            ProtocolError: a packet is not part of an envelope, or its envelope is too long; the
                socket cannot be used any more.
        """
        envelopes: list[Frames] = []
        for _ in range(most):
            room = self._rest or self._packet
            try:
                size = self._socket.recv_into(room, 0, _RECEIVE)
            except BlockingIOError:
                break
            except ConnectionResetError:
                continue  # the other end left packets unread; what it has sent can still be read
            if not size:
                self.ended = True
                break
            if size > len(room):
                raise ProtocolError(f"a packet of {size:,} bytes")
            if (envelope := self._take(size)) is not None:
                envelopes.append(_frames(envelope))
        return envelopes

    def _take(self, size: int) -> Buffer | None:
        """Take a packet of this many bytes from its room; return the envelope if it is complete."""
        if self._rest:
            self._rest = self._rest[size:]
            return None if self._rest else self._envelope
        if size < _HEADER.size:
            raise ProtocolError(f"an envelope's packet of {size} bytes")
        total = _HEADER.size + _HEADER.unpack_from(self._packet)[1]
        if total > _MOST_ENVELOPE or total < size:
            raise ProtocolError(f"an envelope of {total:,} bytes, in a packet of {size:,}")
        if total == size:
            return bytes(self._packet[:size])
        self._envelope = bytearray(total)
        self._rest = memoryview(self._envelope)[size:]
        self._envelope[:size] = self._packet[:size]
        return None

    def close(self) -> None:
        """Close the socket; queued envelopes are dropped. May be called twice."""
        self._unsent.clear()
        self._packets.clear()
        self._socket.close()


def _packets(frames: Frames) -> list[Sequence[Buffer]]:
    """Return the packets of an envelope."""
    sizes = list(map(len, frames))
    count = len(sizes)
    total = _SIZE * count + sum(sizes)
    header = struct.pack(f"=II{count}I", count, total, *sizes)
    if total + _HEADER.size <= MOST_PACKET and count <= _MOST_PARTS:
        return [(header, *frames)]
    whole = memoryview(b"".join((header, *frames)))
    return [(whole[start : start + MOST_PACKET],) for start in range(0, len(whole), MOST_PACKET)]


def _frames(envelope: Buffer) -> Frames:
    """Return the frames of an envelope, views of its memory.

    Raises:
        ProtocolError: the sizes of the frames do not agree with the envelope's.
    """
    count, total = _HEADER.unpack_from(envelope)
    if not 0 < _SIZE * count <= total:
        raise ProtocolError(f"an envelope of {count:,} frames in {total:,} bytes")
    sizes = struct.unpack_from(f"={count}I", envelope, _HEADER.size)
    view, end = memoryview(envelope), _HEADER.size + _SIZE * count
    if end + sum(sizes) != len(view):
        raise ProtocolError("the frames of an envelope are not as long as it says")
    frames: Frames = []
    for size in sizes:
        frames.append(view[end : (end := end + size)])
    return frames
