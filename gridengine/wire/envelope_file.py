"""The content of a file with envelopes (see `exchange_folder`). Pure.

MAGIC, keyed hash of the file's place and of the rest
for each envelope: the number of its frames; for each frame its size, and the frame
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from collections.abc import Sequence

from gridengine.errors import ProtocolError
from gridengine.serialize.payload import Buffer
from gridengine.wire.session import Frames

_MAGIC = b"GEf\x01"
_HASH_BYTES = 16
_COUNT, _SIZE = struct.Struct("<I"), struct.Struct("<Q")
_SMALL = 16 * 1024
"""Frames up to this size are copied, so that they do not keep the whole file in memory."""


def encode_file(place: str, envelopes: Sequence[Frames], key: bytes) -> list[Buffer]:
    """Return the content of a file, in parts. `place` is its folder and name."""
    body: list[Buffer] = []
    for frames in envelopes:
        body.append(_COUNT.pack(len(frames)))
        for frame in frames:
            body += _SIZE.pack(len(frame)), frame
    return [_MAGIC, _hash(place, body, key), *body]


def decode_file(place: str, data: Buffer, key: bytes) -> list[Frames]:
    """Return the envelopes in a file.

    Raises:
        ProtocolError: it is not whole, or was written without the key or for another place.
    """
    view = memoryview(data)
    begin = len(_MAGIC) + _HASH_BYTES
    body = view[begin:]
    said = bytes(view[len(_MAGIC) : begin])
    if view[: len(_MAGIC)] != _MAGIC or not secrets.compare_digest(said, _hash(place, [body], key)):
        raise ProtocolError("it is not whole, or none of this run")
    envelopes: list[Frames] = []
    offset = 0
    try:
        while offset < len(body):
            (count,) = _COUNT.unpack_from(body, offset)
            offset += _COUNT.size
            frames: Frames = []
            for _ in range(count):
                (size,) = _SIZE.unpack_from(body, offset)
                offset += _SIZE.size
                frame = body[offset : offset + size]
                frames.append(bytes(frame) if size <= _SMALL else frame)
                offset += size
            envelopes.append(frames)
    except struct.error:
        raise ProtocolError("its sizes do not agree") from None
    return envelopes


def _hash(place: str, parts: Sequence[Buffer], key: bytes) -> bytes:
    made = hashlib.blake2b(f"{place}\n".encode(), key=key[:64], digest_size=_HASH_BYTES)
    for part in parts:
        made.update(part)
    return made.digest()
