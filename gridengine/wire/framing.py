"""Messages to frames and back. Pure: no socket, no pickle.

On the wire a message is a list of frames:

    frame 0     MAGIC (the version is its last byte), then msgpack of [sizes of all buffers, header]
    frame 1     the small buffers (up to `SMALL` bytes), one after the other; absent when none
    frames 2..  each larger buffer, a frame of its own, not copied

`decode` checks that sizes and counts agree before anybody acts on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gridengine.errors import MessageTooLong, ProtocolError
from gridengine.serialize.payload import Buffer
from gridengine.wire.messages import VERSION, Message

MAGIC = b"GEp" + bytes([VERSION])
SMALL = 32 * 1024
MOST_BUFFERS = 1_000_000

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(tuple[list[int], Message])
_sizes_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
    tuple[list[int], msgspec.Raw]
)


def encode(message: Message, buffers: Sequence[Buffer] = ()) -> list[Buffer]:
    """Return the frames of a message and its buffers, whose `len` is their size in bytes. Large
    buffers are passed on, not copied.
    """
    sizes: list[int] = []
    small: list[Buffer] = []
    large: list[Buffer] = []
    for buffer in buffers:
        if type(buffer) is memoryview and buffer.nbytes != len(buffer):
            buffer = buffer.cast("B")
        size = len(buffer)
        sizes.append(size)
        (small if size <= SMALL else large).append(buffer)
    frames: list[Buffer] = [MAGIC + _encoder.encode((sizes, message))]
    if small:
        frames.append(small[0] if len(small) == 1 else b"".join(small))
    return frames + large


def decode(frames: Sequence[Buffer]) -> tuple[Message, list[Buffer]]:
    """Return the message and its buffers, views of the frames.

    Raises:
        ProtocolError: the frames are not a message of this version, or their sizes and counts do
        not agree.
    """
    sizes, message = _decode_header(frames[0] if frames else b"", _decoder)
    has_small = bool(sizes) and min(sizes) <= SMALL
    small = memoryview(frames[1] if has_small and len(frames) > 1 else b"")
    larges = iter(frames[1 + has_small :])
    buffers: list[Buffer] = []
    offset = 0
    for size in sizes:
        if size <= SMALL:
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
    announced = message.count_buffers()
    if len(buffers) != announced:
        raise ProtocolError(
            f"{type(message).__name__} announces {announced} buffers and brings {len(buffers)}"
        )
    return message, buffers


def rest_of(header: Buffer, most: int) -> int:
    """Return how many bytes the frames of a message have that follow its first.

    Raises:
        ProtocolError: it is no first frame.
        MessageTooLong: they have more than `most`.
    """
    sizes, _ = _decode_header(header, _sizes_decoder)
    if sum(sizes) > most:
        raise MessageTooLong(f"a message has {sum(sizes):,} bytes, and this machine {most:,}")
    return sum(sizes)


def _decode_header(frame: Buffer, decoder: msgspec.msgpack.Decoder[Any]) -> Any:
    view = memoryview(frame)
    if view[: len(MAGIC)] != MAGIC:
        raise ProtocolError(f"not a message of protocol version {VERSION}")
    try:
        sizes, message = decoder.decode(view[len(MAGIC) :])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"malformed header: {error}") from None
    if len(sizes) > MOST_BUFFERS or (sizes and min(sizes) < 0):
        raise ProtocolError("buffer sizes out of range")
    return sizes, message
