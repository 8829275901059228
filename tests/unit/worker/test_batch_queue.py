"""Batches wait in order, and single runs can be taken out of them."""

from __future__ import annotations

from collections import deque

from gridengine.serialize.payload import SINGLE
from gridengine.wire.messages import Assignment
from gridengine.worker.batch_queue import Batch, BatchQueue, take_out


def batch(*runs: int) -> Batch:
    return deque((Assignment(run, 1, b"f", 0, 1, 0, SINGLE), [b""]) for run in runs)


def runs_of(one: Batch) -> list[int]:
    return [assignment.run for assignment, _ in one]


def test_a_batch_of_which_all_was_taken_out_is_gone() -> None:
    queue = BatchQueue()
    queue.append(batch(1, 2))
    queue.append(batch(3, 4))
    assert queue.take_out({1, 2, 4, 9}) == [1, 2, 4]
    assert runs_of(queue.popleft()) == [3]
    assert not queue


def test_what_stays_in_a_batch_keeps_its_order() -> None:
    one = batch(1, 2, 3, 4)
    assert take_out(one, {2}) == [2]
    assert runs_of(one) == [1, 3, 4]
