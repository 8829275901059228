"""Payloads: pickled objects and their large buffers, which pass through unread.

A `KeptPayload` stands for the payload of a result that has stayed at the worker that made it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

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


class KeptPayload(list[Buffer]):
    """Stands for the payload of a result, by its `reference`; `size` is in bytes, `worker` where it
    was made. It is empty: who needs what is in it fetches it.
    """

    def __init__(self, reference: int, size: int, worker: bytes) -> None:
        super().__init__()
        self.reference = reference
        self.size = size
        self.worker = worker
        self.load: Callable[[], Payload] | None = None
        """Fetches it: set by who passes this on to those who may ask; as the next."""
        self.when_here: Callable[[Callable[[], object]], bool] | None = None
        """Has it fetched, and something done then, in any thread; returns False if it is here."""
        self.outcome: Callable[[], Any] | None = None
        """Returns what came of that, unread, once it is here."""

    def fetch(self) -> Payload:
        """Return the payload itself; waits for it.

        Raises:
            Exception: it was lost and cannot be made again.
        """
        assert self.load is not None
        return self.load()
