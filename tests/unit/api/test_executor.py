"""`Executor`, on a dispatcher that runs calls here, when a test says so."""

from __future__ import annotations

import concurrent.futures
import gc
import itertools
import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest

import gridengine
from gridengine.errors import ConfigurationError, PicklingError, RemoteTraceback, WorkerCrashed
from tests.support.fake_dispatcher import FakeScheduler
from tests.support.held_dispatcher import (
    SECONDS,
    HeldDispatcher,
    calls_of,
    fail,
    give,
    run_all,
    square,
)
from tests.support.waiting import wait_until

# ------------------------------------------------------------------ results


def test_arguments_of_all_kinds_arrive(executor: gridengine.Executor) -> None:
    assert executor.submit(give).result() == ((), {})
    assert executor.submit(give, (1, 2)).result() == (((1, 2),), {})
    assert executor.submit(give, [1], {"a": 2}, x="long" * 1000).result() == (
        ([1], {"a": 2}),
        {"x": "long" * 1000},
    )


def test_a_keyword_may_have_any_name(executor: gridengine.Executor) -> None:
    assert executor.submit(give, fn=1, self=2).result() == ((), {"fn": 1, "self": 2})


def test_an_exception_arrives_with_its_remote_traceback(executor: gridengine.Executor) -> None:
    future = executor.submit(fail, 3)
    with pytest.raises(ValueError, match="no 3") as caught:
        future.result()
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert isinstance(future.exception(), ValueError)


def test_a_returned_exception_is_a_value(executor: gridengine.Executor) -> None:
    future = executor.submit(KeyError, 1)
    assert isinstance(future.result(), KeyError)
    assert future.exception() is None


def test_an_argument_that_cannot_travel_is_the_futures_exception(
    executor: gridengine.Executor,
) -> None:
    with pytest.raises(PicklingError, match="the argument of the call of square"):
        executor.submit(square, threading.Lock()).result()  # type: ignore[arg-type]


def test_a_function_that_cannot_travel_is_the_futures_exception(
    executor: gridengine.Executor,
) -> None:
    lock = threading.Lock()
    with pytest.raises(PicklingError, match="lock"):
        executor.submit(lambda: lock).result()


def test_the_error_that_kept_a_call_from_ending_is_its_exception(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    future = waiting.submit(square, 1)
    dispatcher.fail(dispatcher.entries[0], WorkerCrashed("the process died"))
    with pytest.raises(WorkerCrashed):
        future.result()


# ------------------------------------------------------------------ map


def test_map_gives_results_in_order(executor: gridengine.Executor) -> None:
    assert list(executor.map(square, range(1000))) == [index * index for index in range(1000)]
    assert list(executor.map(pow, [2, 3, 4], [3, 2])) == [8, 9]
    assert list(executor.map(square, [], chunksize=3)) == []
    assert list(executor.map(give)) == []


def test_map_asks_an_empty_iterable_once(executor: gridengine.Executor) -> None:
    longer = iter(range(3))
    assert list(executor.map(pow, longer, [])) == []
    assert next(longer) == 1  # `zip` itself has taken 0


def test_map_submits_before_anybody_takes_results(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    waiting.map(square, iter(range(10)))
    run_all(waiting)
    assert calls_of(dispatcher.entries) == 10


def test_map_raises_when_the_turn_of_a_failed_call_comes(executor: gridengine.Executor) -> None:
    results = executor.map(lambda x: 6 // x, [1, 2, 0, 3], chunksize=1)
    assert [next(results), next(results)] == [6, 3]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert list(results) == []


def test_map_runs_out_of_time(waiting: gridengine.Executor, dispatcher: HeldDispatcher) -> None:
    results = waiting.map(square, range(10), timeout=0)
    with pytest.raises(TimeoutError):
        next(results)
    assert {entry.task.id for entry in dispatcher.entries} == dispatcher.settled


def test_a_map_that_is_abandoned_ends_its_calls(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    results = waiting.map(square, range(10), chunksize=1)
    dispatcher.run(dispatcher.entries[0])
    assert next(results) == 0
    results.close()  # type: ignore[attr-defined]
    assert set(dispatcher.cancelled) == {entry.task.id for entry in dispatcher.entries[1:]}
    run_all(waiting)


def test_map_with_a_buffer_reads_as_many_arguments_as_results_are_taken(
    executor: gridengine.Executor,
) -> None:
    numbers = itertools.count()
    results = executor.map(square, numbers, buffersize=3)
    assert next(numbers) == 3
    assert [next(results) for _ in range(3)] == [0, 1, 4]
    assert next(numbers) == 7
    assert list(executor.map(pow, [2, 3, 4], [3, 2], buffersize=1)) == [8, 9]
    assert list(executor.map(give, buffersize=1)) == []


def test_a_map_with_a_buffer_that_is_abandoned_or_out_of_time_ends_its_calls(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    results = waiting.map(square, itertools.count(), buffersize=4, timeout=0)
    with pytest.raises(TimeoutError):
        next(results)
    wait_until(lambda: not waiting._submitter.batcher._open)
    assert set(dispatcher.cancelled) == {entry.task.id for entry in dispatcher.entries}
    assert list(results) == []


@pytest.mark.parametrize(("size", "error"), [(0, ValueError), (2.0, TypeError), ("2", TypeError)])
def test_a_buffer_has_a_size(executor: gridengine.Executor, size: Any, error: Any) -> None:
    with pytest.raises(error, match="buffersize must be"):
        executor.map(square, [1], buffersize=size)


@pytest.mark.parametrize("name", ["terminate_workers", "kill_workers"])
def test_workers_that_are_ended_end_all_calls_and_take_no_more(
    waiting: gridengine.Executor, name: str
) -> None:
    futures = [waiting.submit(square, one) for one in range(3)]
    getattr(waiting, name)()
    assert all(isinstance(one.exception(SECONDS), CancelledError) for one in futures)
    with pytest.raises(RuntimeError):
        waiting.submit(square, 1)


def test_an_argument_that_cannot_travel_is_raised_when_its_turn_comes(
    executor: gridengine.Executor,
) -> None:
    results = executor.map(square, [*range(7), threading.Lock(), 8], chunksize=2)
    assert [next(results) for _ in range(7)] == [x * x for x in range(7)]
    with pytest.raises(PicklingError, match="the argument of call 7"):
        next(results)
    assert list(results) == []


def test_a_function_that_cannot_travel_is_raised_when_its_turn_comes(
    executor: gridengine.Executor,
) -> None:
    lock = threading.Lock()
    results = executor.map(lambda x: (x, lock), range(3))
    with pytest.raises(PicklingError, match="lock"):
        next(results)
    executor.shutdown()


def test_chunksize_says_how_many_calls_travel_together(
    executor: gridengine.Executor, waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    waiting.map(square, range(6), chunksize=3)
    assert [entry.task.count for entry in dispatcher.entries] == [3, 3]
    with pytest.raises(ConfigurationError):
        executor.map(square, range(3), chunksize=0)


# ------------------------------------------------------------------ ends


def test_after_the_shutdown_nothing_can_be_submitted(executor: gridengine.Executor) -> None:
    executor.shutdown()
    executor.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(square, 1)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.map(square, [1])


def test_the_shutdown_waits_for_submitted_calls(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    futures = [waiting.submit(square, index) for index in range(20)]
    results = waiting.map(square, range(20))
    threading.Timer(0.05, run_all, (waiting,)).start()
    waiting.shutdown()
    assert all(future.done() for future in futures)
    assert list(results) == [index * index for index in range(20)]


def test_the_shutdown_can_cancel_waiting_calls(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    futures = [waiting.submit(square, index) for index in range(20)]
    waiting.shutdown(wait=False, cancel_futures=True)
    assert [future.cancelled() for future in futures] == [
        index >= dispatcher.slots for index in range(20)
    ]


def test_a_map_over_whose_calls_the_shutdown_comes_is_cancelled(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    results = waiting.map(square, range(100), chunksize=10)
    dispatcher.slots = 0  # nothing has begun
    assert [entry.task.count for entry in dispatcher.entries] == [10] * 10
    waiting.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(CancelledError):
        next(results)


def test_an_executor_that_is_collected_lets_its_calls_end() -> None:
    dispatcher = HeldDispatcher()
    executor = gridengine.Executor(scheduler=FakeScheduler(dispatcher))
    futures = [executor.submit(square, index) for index in range(20)]
    del executor
    gc.collect()
    dispatcher.run_all(until=lambda: all(future.done() for future in futures))
    assert [future.result(SECONDS) for future in futures] == [index * index for index in range(20)]


def test_a_scheduler_that_was_given_stays_open() -> None:
    scheduler = FakeScheduler()
    with gridengine.Executor(scheduler=scheduler) as executor:
        executor.submit(square, 1)
    assert not scheduler.dispatcher.closed


def test_a_scheduler_that_was_made_is_closed_at_the_shutdown() -> None:
    made: list[FakeScheduler] = []

    def make() -> FakeScheduler:
        made.append(FakeScheduler())
        return made[-1]

    with gridengine.Executor(scheduler=make) as executor:
        assert executor.submit(square, 3).result() == 9
    assert [scheduler.dispatcher.closed for scheduler in made] == [True]


def test_max_workers_goes_to_the_scheduler_that_is_made() -> None:
    asked: list[int] = []

    def make(max_workers: int) -> FakeScheduler:
        asked.append(max_workers)
        return FakeScheduler()

    gridengine.Executor(scheduler=make, max_workers=3).shutdown()  # type: ignore[arg-type]
    assert asked == [3]


# ------------------------------------------------------------------ options


def test_options_go_with_the_calls(dispatcher: HeldDispatcher) -> None:
    executor = gridengine.Executor(scheduler=FakeScheduler(dispatcher), retries=5)
    executor.submit(square, 1)
    executor.with_options(timeout=3).submit(square, 1)
    executor.with_options(retries=0).with_options(timeout=4).submit(square, 1)
    assert [
        (entry.task.options.retries, entry.task.options.timeout) for entry in dispatcher.entries
    ] == [
        (5, None),
        (5, 3),
        (0, 4),
    ]
    executor.shutdown(wait=False)
    dispatcher.run_what_is_there()


def test_an_executor_with_options_ends_with_the_one_it_came_from(
    executor: gridengine.Executor,
) -> None:
    other = executor.with_options(retries=0)
    executor.shutdown()
    with pytest.raises(RuntimeError):
        other.submit(square, 1)


# ------------------------------------------------------------------ initializers


def test_the_initializer_runs_once_before_the_first_call() -> None:
    begun: list[str] = []
    with gridengine.Executor(
        scheduler=FakeScheduler(), initializer=note_start, initargs=("key",)
    ) as executor:
        assert [executor.submit(starts, "key").result() for _ in range(3)] == [1, 1, 1]
        assert list(executor.map(starts, ["key"] * 3)) == [1, 1, 1]
    assert begun == []


@pytest.mark.parametrize(
    "call",
    [
        lambda executor: executor.submit(square, 1).result(),
        lambda executor: list(executor.map(square, [1])),
    ],
    ids=["submit", "map"],
)
def test_an_executor_whose_initializer_failed_takes_no_more_calls(
    call: Callable[[gridengine.Executor], object],
) -> None:
    scheduler = FakeScheduler()
    with gridengine.Executor(scheduler=scheduler, initializer=fail, initargs=(1,)) as executor:
        with pytest.raises(BrokenProcessPool, match="no 1"):
            call(executor)
        with pytest.raises(BrokenProcessPool, match="no 1"):
            executor.submit(square, 1)
        with pytest.raises(BrokenProcessPool, match="no 1"):
            executor.map(square, [1])


def raise_broken(x: int) -> None:
    raise BrokenProcessPool("a pool of the call's own")


def test_a_call_s_own_broken_pool_breaks_no_executor() -> None:
    with gridengine.Executor(scheduler=FakeScheduler(), initializer=square, initargs=(1,)) as one:
        with pytest.raises(BrokenProcessPool, match="own"):
            one.submit(raise_broken, 1).result()
        assert one.submit(square, 3).result() == 9


@pytest.mark.parametrize(("method", "warnings"), [("spawn", 0), ("forkserver", 0), ("fork", 1)])
def test_a_context_of_multiprocessing_is_taken_and_fork_is_warned_of(
    method: str, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    context = multiprocessing.get_context(method)
    gridengine.Executor(None, context, scheduler=FakeScheduler()).shutdown()
    assert len(caplog.records) == warnings


@pytest.mark.parametrize("value", [0, -1])
def test_max_tasks_per_child_is_a_positive_number(value: int) -> None:
    with pytest.raises(ConfigurationError, match="max_tasks_per_child"):
        gridengine.Executor(scheduler=FakeScheduler(), max_tasks_per_child=value)
    with pytest.raises(TypeError, match="max_tasks_per_child"):
        gridengine.Executor(scheduler=FakeScheduler(), max_tasks_per_child=0.5)  # type: ignore[arg-type]


def test_a_crash_of_one_call_is_no_broken_pool() -> None:
    assert not issubclass(gridengine.errors.WorkerCrashed, concurrent.futures.BrokenExecutor)


def test_an_initializer_must_be_callable() -> None:
    with pytest.raises(TypeError):
        gridengine.Executor(scheduler=FakeScheduler(), initializer=3)  # type: ignore[arg-type]


def note_start(key: str) -> None:
    counts = starts.__dict__
    counts[key] = counts.get(key, 0) + 1


def starts(key: str) -> int:
    count: int = starts.__dict__[key]
    return count
