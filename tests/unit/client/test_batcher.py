"""How single calls are handed over and recalled, one by one, and how far ahead."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

import gridengine
from gridengine.client import executor_lifetime
from gridengine.client.future import MOST_CALLS
from gridengine.dispatcher.core.calls import Pace
from gridengine.dispatcher.core.workers_and_queues import BATCH_SECONDS, LEAST_SECONDS
from gridengine.dispatcher.io_loop import MOST_EVENTS
from gridengine.errors import ConfigurationError
from gridengine.requests import CallsFinished, Function, Task
from gridengine.serialize import pickling
from tests.support.fake_dispatcher import FakeDispatcher, FakeScheduler
from tests.support.held_dispatcher import SECONDS, HeldDispatcher, calls_of, give, run_all, square
from tests.support.waiting import wait_until

# ------------------------------------------------------------------ gathering


def test_a_call_that_finds_the_workers_idle_is_handed_over_at_once(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    waiting.submit(square, 1)
    assert calls_of(dispatcher.entries) == 1


def test_calls_beyond_the_free_slots_wait(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    for index in range(100):
        waiting.submit(square, index)
    assert calls_of(dispatcher.entries) == 2 * dispatcher.slots


def test_quick_calls_travel_together(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    futures = [waiting.submit(square, index) for index in range(5000)]
    run_all(waiting)
    assert [future.result() for future in futures] == [index * index for index in range(5000)]
    assert len(dispatcher.entries) < 200
    assert max(entry.task.count for entry in dispatcher.entries) <= MOST_CALLS


def test_calls_with_a_priority_are_handed_over_at_once_and_alone_until_they_are_known_to_be_quick(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    prioritised = waiting.with_options(priority=1)
    futures = [prioritised.submit(square, index) for index in range(500)]
    wait_until(lambda: len(dispatcher.entries) == 500)
    assert {entry.task.count for entry in dispatcher.entries} == {1}
    run_all(waiting)
    assert [future.result() for future in futures] == [index * index for index in range(500)]


def test_calls_that_travel_together_are_of_one_function(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    expected = []
    futures = []
    for index in range(1000):
        futures.append(
            waiting.submit(square, index) if index % 3 else waiting.submit(give, index, end=index)
        )
        expected.append(index * index if index % 3 else ((index,), {"end": index}))
    run_all(waiting)
    assert [future.result() for future in futures] == expected


def after_quick_calls(
    executor: gridengine.Executor, dispatcher: HeldDispatcher
) -> list[Future[Any]]:
    """Return the futures of slow calls that were handed over as quick ones, as those before them
    were; the first have begun.
    """
    for index in range(5000):
        executor.submit(square, index)
    run_all(executor)
    futures = [executor.submit(square, index) for index in range(200)]
    dispatcher.run_what_is_there()
    while not all(future.running() or future.done() for future in futures):
        assert dispatcher.submissions.acquire(timeout=SECONDS)
    assert dispatcher.entries[-1].task.count > 1
    return [future for future in futures if not future.done()]


def test_a_call_that_was_handed_over_and_has_not_begun_can_be_cancelled(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    futures = [waiting.submit(square, index) for index in range(2 * dispatcher.slots)]
    called: list[Future[int]] = []
    ended = threading.Event()
    futures[-1].add_done_callback(lambda future: (called.append(future), ended.set()))
    assert [future.running() for future in futures] == [True] * 4
    assert [future.cancel() for future in futures] == [False, False, True, True]
    assert ended.wait(SECONDS)
    assert called == [futures[-1]]
    with pytest.raises(CancelledError):
        futures[-1].result()
    run_all(waiting)
    assert [future.result() for future in futures[:2]] == [0, 1]


def test_cancelling_one_of_several_that_travel_together_leaves_the_others_alone(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    dispatcher.slots = 0  # nothing has begun
    futures = after_quick_calls(waiting, dispatcher)
    assert futures[7].cancel()
    assert not any(future.cancelled() for future in futures if future is not futures[7])
    run_all(waiting)
    assert all(future.result(SECONDS) is not None for future in futures if future is not futures[7])


def test_calls_that_have_become_slow_are_taken_back(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    futures = after_quick_calls(waiting, dispatcher)
    dispatcher.slots, dispatcher.seconds = 0, 0.5
    dispatcher.run(
        next(entry for entry in dispatcher.entries if entry.task.id not in dispatcher.settled)
    )
    running = [future for future in futures if future.running()]
    assert len(running) <= 4
    dispatcher.seconds = 1e-6
    run_all(waiting)
    assert all(future.result(SECONDS) is not None for future in futures)


# ------------------------------------------------------------------ two threads at once


def test_the_shutdown_waits_for_the_callbacks_of_the_calls_that_it_cancels(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    dispatcher.slots = 0
    batcher = waiting._submitter.batcher
    ended: list[bool] = []

    class Waiter:
        def add_cancelled(self, future: Future[Any]) -> None:
            ended.append(batcher.join(0))

    future = waiting.submit(square, 1)
    future._waiters.append(Waiter())  # type: ignore[attr-defined]
    future.add_done_callback(id)
    waiting.shutdown(wait=False, cancel_futures=True)
    assert (future.cancelled(), ended) == (True, [False])


def test_calls_given_back_as_the_shutdown_begins_are_cancelled(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    batcher = waiting._submitter.batcher

    class Unwanted(set[Any]):
        def __contains__(self, _: object) -> bool:
            batcher._cancels = True
            return False

    dispatcher.slots = 0
    future = waiting.submit(square, 1)
    batcher._unwanted = Unwanted()
    dispatcher.recall(batcher.handed())
    waiting.shutdown(wait=False, cancel_futures=True)
    assert future.cancelled()


def test_nothing_is_kept_of_calls_that_the_dispatcher_refused(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    def refuse(_: FakeDispatcher) -> None:
        dispatcher.entries.pop()
        raise ConfigurationError("closed")

    dispatcher.on_submit = refuse
    assert isinstance(waiting.submit(square, 1).exception(), ConfigurationError)
    with pytest.raises(ConfigurationError):
        list(waiting.map(square, [1, 2]))
    [future] = waiting.submit_graph({"a": (square, 2), "b": (square, "a")}, ["b"])
    assert isinstance(future.exception(), ConfigurationError)
    assert not waiting._submitter.batcher._all_handed()


def test_nothing_is_kept_of_calls_that_have_ended(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    batcher = waiting._submitter.batcher
    waiting.submit(square, 1)
    results = waiting.map(square, range(9))
    waiting.submit_graph({"a": (square, 2), "b": (square, "a")}, ["b"])
    assert len(batcher._all_handed()) == len(dispatcher.entries)
    run_all(waiting)
    assert [*results] == [x * x for x in range(9)]
    assert not batcher._all_handed()


def test_a_ctrl_c_as_a_call_is_handed_over_ends_it_once(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    def interrupt(_: FakeDispatcher) -> None:
        raise KeyboardInterrupt

    dispatcher.on_submit = interrupt
    with pytest.raises(KeyboardInterrupt):
        waiting.submit(square, 1)
    dispatcher.run_what_is_there()
    assert waiting._submitter.batcher.join(0)


def test_a_ctrl_c_as_a_call_is_taken_in_counts_it_once(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    class Waiting(deque[Any]):
        def append(self, future: Any) -> None:
            super().append(future)
            raise KeyboardInterrupt

    batcher = waiting._submitter.batcher
    batcher._waiting = Waiting()
    with pytest.raises(KeyboardInterrupt):
        waiting.submit(square, 1)
    batcher.kill_all()
    assert batcher.join(0)


def interrupt(*args: object, **kwargs: object) -> None:
    raise KeyboardInterrupt


def test_a_ctrl_c_between_the_queue_and_the_dispatcher_ends_the_calls_that_were_taken(
    waiting: gridengine.Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    batcher = waiting._submitter.batcher
    load = batcher._window.load
    with monkeypatch.context() as patch:
        patch.setattr(batcher, "_send", interrupt)
        with pytest.raises(KeyboardInterrupt):
            waiting.submit(square, 1)
    assert batcher.join(0)
    assert batcher._window.load == load


def test_a_ctrl_c_while_the_end_of_a_with_waits_ends_the_calls(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting._submitter.batcher, "join", interrupt)
    with pytest.raises(KeyboardInterrupt), waiting:
        future = waiting.submit(square, 1)
    dispatcher.run_what_is_there()
    assert isinstance(future.exception(SECONDS), gridengine.Cancelled)


def test_after_a_kill_nobody_waits_for_a_call_that_a_ctrl_c_left_counted_alone(
    waiting: gridengine.Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(deque[Any]):
        append = interrupt

    batcher = waiting._submitter.batcher
    batcher._waiting = Full()
    with pytest.raises(KeyboardInterrupt):
        waiting.submit(square, 1)
    assert not batcher.join(0)
    batcher.kill_all()
    assert batcher.join(0)


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

    def __init__(self, requests: deque[Callable[[], object]]) -> None:
        self.do = requests.append

    def end(self, *, wait: bool) -> None:
        """Nothing is left to be ended."""


def played(monkeypatch: pytest.MonkeyPatch, *, slots: int, seconds: float, calls: int) -> Simulated:
    """Submit so many calls, one by one, and return the workers that have done them."""
    dispatcher = Simulated(slots, seconds)
    helper = Request(dispatcher.requests)
    monkeypatch.setattr(executor_lifetime, "HelperThread", lambda name: helper)
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


def test_who_waits_for_killed_calls_also_waits_until_the_last_is_settled(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    future, batcher = waiting.submit(square, 2), waiting._submitter.batcher
    begun, go_on, settle = threading.Event(), threading.Event(), batcher._take_outcome

    def take_outcome(*outcome: Any) -> None:
        begun.set()
        assert go_on.wait(SECONDS)
        settle(*outcome)

    monkeypatch.setattr(batcher, "_take_outcome", take_outcome)
    io_thread = threading.Thread(target=dispatcher.run_what_is_there)
    io_thread.start()
    assert begun.wait(SECONDS)
    monkeypatch.setattr(dispatcher, "catch_up", lambda: (go_on.set(), io_thread.join()))
    batcher.kill_all()
    batcher.join()
    done = future.done()
    go_on.set()
    io_thread.join()
    assert done
