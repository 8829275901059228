"""How far ahead single calls are handed over, on simulated workers.

They are as quick on ten thousand slots as on one, and not much is handed over ahead of what slow
calls need.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

import gridengine
from gridengine.client import executor_lifetime
from gridengine.dispatcher.core.calls import Pace
from gridengine.dispatcher.core.workers_and_queues import BATCH_SECONDS, LEAST_SECONDS
from gridengine.dispatcher.io_loop import MOST_EVENTS
from gridengine.requests import CallsFinished, Function, Task
from gridengine.serialize import pickling
from tests.support.fake_dispatcher import FakeDispatcher, FakeScheduler

SUBMIT_SECONDS, TASK_SECONDS, ANSWER_SECONDS, CALL_SECONDS = 3e-6, 50e-6, 30e-6, 1e-6
"""What it takes to submit a call, to hand a task over, to take an answer in, and each call of
these: about as measured.
"""


def work(x: int) -> int:
    return x


class Simulated(FakeDispatcher):
    """Workers on which each call takes so many seconds of a clock of their own, and an I/O thread
    that does one thing after the other.
    """

    def __init__(self, slots: int, seconds: float) -> None:
        super().__init__(slots=slots, seconds=seconds)
        self.now = 0.0
        self.requests: deque[Callable[[], object]] = deque()
        self.most_in_flight = self.in_flight = 0
        self.submitted_at = 0.0
        self._inbox: deque[tuple[Task, Any]] = deque()
        self._free = [0.0] * slots
        self._ends: list[tuple[float, int, Task, Any, int, int]] = []
        self._numbers = itertools.count()
        self._pace = Pace()

    def submit(self, function: Function, tasks: Sequence[Task], listener: Any) -> None:
        for task in tasks:
            self.departures.append(task.count)
            self.in_flight += task.count
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            self._inbox.append((task, listener))
            self.submitted_at += TASK_SECONDS / 2

    def _begin(self, task: Task, listener: Any) -> None:
        self.now += TASK_SECONDS + task.count * CALL_SECONDS
        size = self._batch(task.count)
        for start in range(0, task.count, size):
            stop = min(start + size, task.count)
            end = max(self.now, heapq.heappop(self._free)) + (stop - start) * self.seconds
            heapq.heappush(self._free, end)
            heapq.heappush(self._ends, (end, next(self._numbers), task, listener, start, stop))

    def _end(self) -> None:
        _, _, task, listener, start, stop = heapq.heappop(self._ends)
        self.now += ANSWER_SECONDS + (stop - start) * CALL_SECONDS
        self.in_flight -= stop - start
        seconds = (stop - start) * self.seconds
        self._pace.measured(stop - start, seconds)
        listener.settled(
            CallsFinished(
                task.id, start, stop, pickling.dump_values([None] * (stop - start)), seconds=seconds
            )
        )
        while self.requests:  # what the batcher's threads are asked for
            self.requests.popleft()()

    def _batch(self, count: int) -> int:
        """Return how many calls make one batch, as `pools` has it."""
        known = self._pace.seconds
        share = -(-count // (2 * self.slots))
        return (
            1
            if known is None
            else max(1, min(max(share, int(LEAST_SECONDS / known)), int(BATCH_SECONDS / known)))
        )

    def advance(self, until: float) -> None:
        """Let time pass, and the I/O thread do its rounds."""
        while self.now < until:
            for _ in range(min(len(self._inbox), MOST_EVENTS)):
                self._begin(*self._inbox.popleft())
            while self._ends and self._ends[0][0] <= self.now:
                self._end()
            if not self._inbox:
                self.now = max(self.now, min(self._ends[0][0] if self._ends else until, until))

    def finish(self) -> None:
        """Let time pass until nothing is left."""
        while self._inbox or self._ends:
            self.advance(max(self.now, self._ends[0][0] if self._ends else 0.0) + TASK_SECONDS)

    def recall(self, calls: Iterable[tuple[int, int, int]]) -> None:
        """Take all for begun."""


class Request:
    """Takes the place of a thread: has the simulation do what it is asked for."""

    requests: deque[Callable[[], object]]

    def __init__(self, name: str) -> None:
        self.do = self.requests.append

    def end(self, *, wait: bool) -> None:
        """Nothing is left to be ended."""


def played(monkeypatch: pytest.MonkeyPatch, *, slots: int, seconds: float, calls: int) -> Simulated:
    """Submit so many calls, one by one, and return the workers that have done them."""
    dispatcher = Simulated(slots, seconds)
    monkeypatch.setattr(Request, "requests", dispatcher.requests, raising=False)
    monkeypatch.setattr(executor_lifetime, "HelperThread", Request)
    with gridengine.Executor(scheduler=FakeScheduler(dispatcher)) as executor:
        futures = []
        for index in range(calls):
            futures.append(executor.submit(work, index))
            dispatcher.submitted_at += SUBMIT_SECONDS
            dispatcher.advance(dispatcher.submitted_at)
        dispatcher.finish()
        assert all(future.done() for future in futures)
    return dispatcher


CALLS = 20_000


@pytest.mark.parametrize("slots", [1, 10, 100, 900, 1_000, 1_100, 5_000, 10_000])
def test_quick_calls_are_as_many_a_second_whatever_the_number_of_slots(
    monkeypatch: pytest.MonkeyPatch, slots: int
) -> None:
    dispatcher = played(monkeypatch, slots=slots, seconds=1e-6, calls=CALLS)
    assert dispatcher.now < 3 * CALLS * SUBMIT_SECONDS
    assert len(dispatcher.departures) < CALLS / 20


@pytest.mark.parametrize("seconds", [1e-4, 1e-3, 1e-2, 5e-2])
@pytest.mark.parametrize("slots", [1, 30, 1_000, 10_000])
def test_workers_are_kept_busy_whatever_calls_take(
    monkeypatch: pytest.MonkeyPatch, slots: int, seconds: float
) -> None:
    dispatcher = played(monkeypatch, slots=slots, seconds=seconds, calls=CALLS)
    least = max(CALLS * seconds / slots, CALLS * (ANSWER_SECONDS + CALL_SECONDS))
    assert dispatcher.now < 1.5 * least


@pytest.mark.parametrize("slots", [1, 30, 1_000])
def test_two_slow_calls_for_each_slot_are_handed_over(
    monkeypatch: pytest.MonkeyPatch, slots: int
) -> None:
    dispatcher = played(monkeypatch, slots=slots, seconds=0.5, calls=5 * slots)
    assert dispatcher.most_in_flight == 2 * slots
    assert max(dispatcher.departures) == 1


@pytest.mark.parametrize("slots", [1, 30, 1_000])
def test_no_more_is_handed_over_than_some_tenths_of_a_second_take(
    monkeypatch: pytest.MonkeyPatch, slots: int
) -> None:
    dispatcher = played(monkeypatch, slots=slots, seconds=0.01, calls=CALLS)
    assert dispatcher.most_in_flight * dispatcher.seconds / slots <= 0.3
