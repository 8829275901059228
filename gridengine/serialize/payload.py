"""Payloads: pickled objects and their large buffers, which pass through unread.

A `PayloadAtWorker` stands for the payload of a result that has stayed at the worker that made it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
Payload: TypeAlias = Sequence[Buffer]
"""The pickle (protocol 5) of an object, then each large buffer of it (an array's data, say)."""
Place: TypeAlias = tuple[int, int, int]
"""The place of a buffer in a block: its index in the payload, its offset in the block, and its
size in bytes.
"""
ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})
"""Types whose values never change and refer to nothing."""
SINGLE, STAR, FULL = 0, 1, 2
"""The forms of calls in a list: one argument each, a tuple of arguments each, or a pair of
arguments and keywords each.
"""


def size_of(payload: Payload) -> int:
    """Return the size of all buffers of a payload in bytes."""
    size = 0
    for buffer in payload:
        size += len(buffer) if type(buffer) is bytes else memoryview(buffer).nbytes
    return size


class PayloadAtWorker(list[Buffer]):
    """Stands for the payload of a result that has stayed at the worker that made it. It is empty;
    `fetch` returns the payload itself.

    reference: the number of the result.
    size: the size of the payload in bytes.
    """

    def __init__(self, reference: int, size: int, worker: bytes) -> None:
        super().__init__()
        self.reference = reference
        self.size = size
        self.worker = worker
        self.load: Callable[[], Payload] | None = None
        """Fetches the payload. Set, as the next two, before others may ask for it."""
        self.when_here: Callable[[Callable[[], object]], bool] | None = None
        """Starts to fetch the payload, and calls a function, in any thread, when it has come.
        Returns False if the payload is here already.
        """
        self.outcome: Callable[[], Any] | None = None
        """Returns the call's outcome, still pickled, once the payload is here."""

    def fetch(self) -> Payload:
        """Wait for the payload itself, and return it.

        Raises:
            Exception: the result was lost, and cannot be made again.
        """
        assert self.load is not None
        return self.load()
