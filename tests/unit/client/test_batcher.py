"""How single calls are handed over and recalled, one by one."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

import gridengine
from gridengine.client.future import MOST_CALLS
from gridengine.errors import ConfigurationError
from tests.support.fake_dispatcher import FakeDispatcher
from tests.support.held_dispatcher import SECONDS, HeldDispatcher, calls_of, give, run_all, square
from tests.support.waiting import wait_until

# ------------------------------------------------------------------ gathering


def test_a_call_that_finds_the_workers_idle_is_handed_over_at_once(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    waiting.submit(square, 1)
    assert calls_of(dispatcher.entries) == 1


def test_calls_beyond_what_the_workers_can_begin_wait(
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


def test_the_shutdown_does_not_end_before_the_callbacks_of_what_it_cancels(
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
    waiting: gridengine.Executor, dispatcher: HeldDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ConfigurationError("closed")

    monkeypatch.setattr(dispatcher, "submit", refuse)
    monkeypatch.setattr(waiting._submitter.batcher, "_submit", refuse)
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
