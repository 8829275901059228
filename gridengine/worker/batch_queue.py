"""Queues of batches that wait for a runner."""

from __future__ import annotations

from collections import deque
from collections.abc import Set
from typing import TypeAlias

from gridengine.serialize.payload import Payload
from gridengine.wire.messages import Assignment

AssignedRun: TypeAlias = tuple[Assignment, Payload]
Batch: TypeAlias = deque[AssignedRun]


class BatchQueue(deque[Batch]):
    """Batches in the order in which they begin. A batch whose runs were all taken out
    disappears.
    """

    def take_out(self, runs: Set[int]) -> list[int]:
        """Take out these runs; return those that were in the queue."""
        taken = [run for batch in self for run in take_out(batch, runs)]
        if taken:
            left = [batch for batch in self if batch]
            self.clear()
            self.extend(left)
        return taken


def take_out(batch: Batch, runs: Set[int]) -> list[int]:
    """Take these runs out of a batch; return those that were in it."""
    taken = [assignment.run for assignment, _ in batch if assignment.run in runs]
    if taken:
        left = [work for work in batch if work[0].run not in runs]
        batch.clear()
        batch.extend(left)
    return taken
