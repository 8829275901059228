"""What rows of a dispatcher's journal hold: messages, and which calls of tasks have ended."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from gridengine.serialize.payload import Buffer, size_of
from gridengine.wire.framing import decode, encode
from gridengine.wire.messages import FinishedItem, Message, TaskItem

ROW_BYTES = 64 * 1024 * 1024
"""In one row of the journal come as many calls as have so many bytes together, or one."""
LARGE = 256 * 1024
"""From so many bytes on what is written to a row is put together without msgpack's encoder, which
copies all again and again while its own buffer grows.
"""
_HEAD = struct.Struct(">BI")
_ARRAY, _BINARY = 0xDD, 0xC6
"""What msgpack's arrays and binary data of any length begin with, then comes their length
(https://github.com/msgpack/msgpack/blob/master/spec.md).
"""
Part = TypeVar("Part", TaskItem, FinishedItem)


class RowContent(Struct):
    """A message as a row has it: its frames as a msgpack array. It is made in the thread that
    writes, of large buffers by one copy, for which other threads need not wait.
    """

    message: Message
    buffers: Sequence[Buffer]

    def __conform__(self, protocol: object) -> bytes:
        frames = encode(self.message, self.buffers)
        if size_of(frames) < LARGE:
            return msgspec.msgpack.encode(frames)
        parts: list[Buffer] = [_HEAD.pack(_ARRAY, len(frames))]
        for frame in frames:
            parts += _HEAD.pack(_BINARY, size_of([frame])), frame
        return b"".join(parts)


def portions_of(
    items: Sequence[Part], buffers: Sequence[Buffer]
) -> Iterator[tuple[list[Part], Sequence[Buffer]]]:
    """Yield what a message lists in parts that a row can hold, each with its buffers."""
    if size_of(buffers) <= ROW_BYTES:
        if items:
            yield list(items), buffers
        return
    some: list[Part] = []
    start = stop = size = 0
    for one in items:
        end = stop + (one.count_buffers() if isinstance(one, FinishedItem) else one.buffers)
        more = size_of(buffers[stop:end])
        if some and size + more > ROW_BYTES:
            yield some, buffers[start:stop]
            some, start, size = [], stop, 0
        some.append(one)
        stop, size = end, size + more
    yield some, buffers[start:stop]


def task_ids(tasks: Iterable[TaskItem]) -> array[int]:
    """Return the ids of tasks, sorted."""
    return array("q", sorted(task.id for task in tasks))


def read_content(content: bytes) -> tuple[Any, list[Buffer]]:
    """Return the message of a row, and its buffers."""
    return decode(msgspec.msgpack.decode(content))


def ranges_of(many: Iterable[array[int]]) -> dict[int, list[tuple[int, int, int]]]:
    """Return the calls of each task: the first, the one after the last, whether none is left."""
    found: dict[int, list[tuple[int, int, int]]] = {}
    for calls in many:
        for place in range(0, len(calls), 4):
            task, start, stop, last = calls[place : place + 4]
            found.setdefault(task, []).append((start, stop, last))
    return found
