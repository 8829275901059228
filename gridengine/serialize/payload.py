"""What travels without being looked into: pickled objects and their large buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


Payload: TypeAlias = Sequence[Buffer]


Place: TypeAlias = tuple[int, int, int]
"""Of a buffer that lies in a block of memory: its index in the payload, its offset in the block,
and its size in bytes.
"""


SINGLE, STAR, FULL = 0, 1, 2
