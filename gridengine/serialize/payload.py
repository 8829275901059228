"""What travels without being looked into: pickled objects and their large buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
Payload: TypeAlias = Sequence[Buffer]
"""The pickle (protocol 5) of an object, then each large buffer of it (an array's data, say)."""
Place: TypeAlias = tuple[int, int, int]
"""Of a buffer that lies in a block of memory: its index in the payload, its offset in the block,
and its size in bytes.
"""
ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})
"""Types whose values never change and refer to nothing."""
SINGLE, STAR, FULL = 0, 1, 2
"""What a list of calls holds: one argument each, a tuple of arguments each, or a pair of arguments
and keywords each.
"""


def size_of(payload: Payload) -> int:
    """Return how many bytes the buffers of a payload have together."""
    size = 0
    for buffer in payload:
        size += len(buffer) if type(buffer) is bytes else memoryview(buffer).nbytes
    return size
