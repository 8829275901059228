"""Batches of runs that wait for a runner."""

from __future__ import annotations

from collections import deque
from collections.abc import Set
from typing import TypeAlias

from gridengine.serialize.payload import Payload
from gridengine.wire.messages import Assignment

AssignedRun: TypeAlias = tuple[Assignment, Payload]
Batch: TypeAlias = deque[AssignedRun]


class BatchQueue:
    """Batches in the order in which they are to begin; one of which all was taken out is gone."""

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()

    def __bool__(self) -> bool:
        return bool(self._batches)

    def append(self, batch: Batch) -> None:
        """Add a batch."""
        self._batches.append(batch)

    def prepend(self, batch: Batch) -> None:
        """Add a batch before all others."""
        self._batches.appendleft(batch)

    @property
    def first(self) -> Batch:
        """The batch to begin next; there must be one."""
        return self._batches[0]

    def pop_first(self) -> Batch:
        """Take out the batch to begin next."""
        return self._batches.popleft()

    def clear(self) -> None:
        """Drop all."""
        self._batches.clear()

    def take_out(self, runs: Set[int]) -> list[int]:
        """Take out these runs; return those that were here."""
        taken = [run for batch in self._batches for run in take_out(batch, runs)]
        if taken:
            self._batches = deque(batch for batch in self._batches if batch)
        return taken


def take_out(batch: Batch, runs: Set[int]) -> list[int]:
    """Take these runs out of a batch; return those that were in it."""
    taken = [assignment.run for assignment, _ in batch if assignment.run in runs]
    if taken:
        kept = [work for work in batch if work[0].run not in runs]
        batch.clear()
        batch.extend(kept)
    return taken
