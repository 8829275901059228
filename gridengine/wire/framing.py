"""Convert messages to frames and back. Pure: no socket, no pickle.

On the wire a message is a list of frames:

    frame 0     MAGIC (the version is its last byte), then msgpack of [sizes of all buffers, header]
    frame 1     the small buffers (up to `SMALL` bytes), one after the other; absent when none
    frames 2..  each larger buffer, a frame of its own, not copied

A buffer that travels beside the message (`block_socket`) has a negative size, and its number in the
place of its frame.

A stream carries the length of the header (frame 0), the header, and the buffers in order.

Decoding checks that sizes and counts agree before anybody acts on them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from gridengine._version import __version__
from gridengine.errors import MessageTooLong, ProtocolError
from gridengine.serialize.payload import Buffer
from gridengine.serialize.shared_memory import LARGE
from gridengine.wire.messages import VERSION, Message

MAGIC = b"GEp" + bytes([VERSION])
SMALL = 32 * 1024
MOST_BUFFERS = 1_000_000
HEADER_SIZE = struct.Struct("=I")
NUMBER = struct.Struct(">Q")
"""The number of a buffer that travels beside its message."""
_JOINED = 16 * 1024
"""Buffers up to this size are joined with their neighbours for a stream: copying them is cheaper
than one more element in the list that `sendmsg` takes.
"""

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(tuple[list[int], Message])


class OtherProtocol(ProtocolError):
    """A message of another protocol version."""


def encode(
    message: Message,
    buffers: Sequence[Buffer] = (),
    put: Callable[[Buffer], bytes] | None = None,
) -> list[Buffer]:
    """Return the frames of a message and its buffers. `len` of each frame is its size in bytes.
    Large buffers are passed on, not copied. `put` sends a buffer beside the message, and returns
    its number, or nothing if that is not possible.
    """
    sizes: list[int] = []
    small: list[Buffer] = []
    large: list[Buffer] = []
    for buffer in buffers:
        if type(buffer) is memoryview and buffer.nbytes != len(buffer):
            buffer = buffer.cast("B")
        size = len(buffer)
        if put is not None and size >= LARGE and (number := put(buffer)):
            sizes.append(-size)
            large.append(number)
            continue
        sizes.append(size)
        (small if size <= SMALL else large).append(buffer)
    frames: list[Buffer] = [MAGIC + _encoder.encode((sizes, message))]
    if small:
        frames.append(small[0] if len(small) == 1 else b"".join(small))
    return frames + large


def decode(
    frames: Sequence[Buffer], take: Callable[[bytes, int], Buffer] | None = None
) -> tuple[Message, list[Buffer]]:
    """Return the message and its buffers, which are views of the frames. `take` returns a buffer
    that was sent beside the message, by its number and size.

    Raises:
        ProtocolError: the frames are not a message of this version, or their sizes and counts do
        not agree.
    """
    sizes, message = decode_header(frames[0] if frames else b"", beside=take is not None)
    has_small = bool(sizes) and min(map(abs, sizes) if take else sizes) <= SMALL
    small = memoryview(frames[1] if has_small and len(frames) > 1 else b"")
    if has_small and len(frames) == 2 and max(sizes) <= SMALL and sum(sizes) == small.nbytes:
        return message, [
            small[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)
        ]
    larges = iter(frames[1 + has_small :])
    buffers: list[Buffer] = []
    offset = 0
    for size in sizes:
        if size < 0 and take is not None:
            buffers.append(take(bytes(next(larges, b"")), -size))
        elif size <= SMALL:
            buffers.append(small[offset : offset + size])
            offset += size
            if offset > small.nbytes:
                break
        else:
            large = next(larges, b"")
            if memoryview(large).nbytes != size:
                raise ProtocolError("a large buffer is missing, or not of the size announced")
            buffers.append(large)
    if offset != small.nbytes or next(larges, None) is not None or len(frames) < 1 + has_small:
        raise ProtocolError("buffer sizes and frames do not agree")
    return message, buffers


def foreign_greeting(frames: Sequence[Buffer]) -> tuple[int, str] | None:
    """Return (protocol, version of gridengine) when a worker or client of another protocol sent
    these frames as its first message; None for any other message.
    """
    header = bytes(frames[0]) if frames else b""
    if header[:3] != MAGIC[:3] or header[:4] == MAGIC:
        return None
    try:
        _, [kind, _, version, *_] = msgspec.msgpack.decode(header[4:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError, ValueError):
        return None
    return (header[3], str(version)) if kind in ("Hello", "ClientHello") else None


def foreign_protocol(frames: Sequence[Buffer]) -> int | None:
    """Return the protocol of the first of these frames that begins a message of another protocol;
    None without such a frame.
    """
    for frame in frames:
        head = bytes(frame[: len(MAGIC)])
        if len(head) == len(MAGIC) and head[:3] == MAGIC[:3] and head != MAGIC:
            return head[3]
    return None


def in_protocol(version: int, frames: list[Buffer]) -> list[Buffer]:
    """Return the frames of a message relabelled for another protocol version. The message must have
    the same form in both versions.
    """
    return [MAGIC[:3] + bytes([version]) + bytes(frames[0])[4:], *frames[1:]]


def rest_of(header: Buffer, most: int) -> int:
    """Return the total size in bytes of the frames that follow a message's first frame.

    Raises:
        ProtocolError: `header` is not a first frame.
        MessageTooLong: the total is more than `most`.
    """
    sizes, _ = decode_header(header, beside=True)
    total = sum(size if size >= 0 else NUMBER.size for size in sizes)
    if total > most:
        raise MessageTooLong(f"a message has {total:,} bytes, and this machine {most:,}")
    return total


def encode_stream(
    message: Message, buffers: Sequence[Buffer] = (), beside: Container[int] = ()
) -> list[Buffer]:
    """Return the pieces to write to a stream for a message: the length of its header, the header,
    and its buffers in order. Small neighbouring buffers are joined; large ones are not copied.

    Buffers whose indices are in `beside` are left out, because they travel as file descriptors
    beside the stream. The header gives their sizes as negative numbers.
    """
    sizes: list[int] = []
    parts: list[list[Buffer]] = [[]]
    for index, buffer in enumerate(buffers):
        if type(buffer) is memoryview and buffer.nbytes != len(buffer):
            buffer = buffer.cast("B")
        size = len(buffer)
        if index in beside:
            sizes.append(-size)
            continue
        sizes.append(size)
        if size <= _JOINED:
            parts[-1].append(buffer)
        else:
            parts += [buffer], []
    header = MAGIC + _encoder.encode((sizes, message))
    parts[0][:0] = HEADER_SIZE.pack(len(header)), header
    if len(parts) == 1:
        return [b"".join(parts[0])]
    return [part[0] if len(part) == 1 else b"".join(part) for part in parts if part]


def decode_header(header: Buffer, *, beside: bool = False) -> tuple[list[int], Message]:
    """Return the sizes of a message's buffers, and the message. With `beside`, a negative size
    marks a buffer that travels as a file descriptor beside the stream.

    Raises:
        ProtocolError: `header` is not a header of this version, or its sizes and counts do not
        agree.
    """
    if header[: len(MAGIC)] != MAGIC:
        if (other := foreign_protocol([header])) is not None:
            raise OtherProtocol(
                f"the other end speaks protocol {other}, and this one, gridengine {__version__}, "
                f"speaks {VERSION}: have the same gridengine on both sides"
            )
        raise ProtocolError(f"not a message of protocol version {VERSION}")
    try:
        sizes, message = _decoder.decode(memoryview(header)[len(MAGIC) :])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"malformed header: {error}") from None
    if len(sizes) > MOST_BUFFERS or (sizes and min(sizes) < 0 and not beside):
        raise ProtocolError("buffer sizes out of range")
    announced = message.count_buffers()
    if len(sizes) != announced:
        raise ProtocolError(
            f"{type(message).__name__} announces {announced} buffers and brings {len(sizes)}"
        )
    return sizes, message
