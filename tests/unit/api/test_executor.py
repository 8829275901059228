"""`Executor`, against a hub that runs calls here, when a test says so."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

import gridengine
from gridengine.client.future import MOST_CALLS
from gridengine.client.map_run import Results
from gridengine.client.outcomes import Outcome
from gridengine.errors import (
    Cancelled,
    ConfigurationError,
    PicklingError,
    RemoteTraceback,
    WorkerCrashed,
)
from tests.support.fake_dispatcher import Entry, FakeDispatcher, FakeScheduler

SECONDS = 10


def square(x: int) -> int:
    return x * x


def fail(x: int) -> int:
    raise ValueError(f"no {x}")


def give(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


class Stage(FakeDispatcher):
    """A hub with two slots that runs nothing by itself."""

    def __init__(self) -> None:
        super().__init__(on_submit=lambda _: self.submissions.release())
        self.submissions = threading.Semaphore(0)

    def run_all(self, *, until: Callable[[], bool]) -> None:
        """Run what has been handed over, and what is handed over in its stead, until it is
        enough.
        """
        while not until():
            left = [entry for entry in self.entries if entry.task.id not in self.settled]
            if left:
                self.run(left[0])
            else:
                assert self.submissions.acquire(timeout=SECONDS)

    def run_what_is_there(self) -> None:
        """Run what has been handed over."""
        for entry in list(self.entries):
            if entry.task.id not in self.settled:
                self.run(entry)


@pytest.fixture
def dispatcher() -> Stage:
    return Stage()


@pytest.fixture
def waiting(dispatcher: Stage) -> Iterator[gridengine.Executor]:
    """An executor at whose hub nothing happens before a test runs it."""
    executor = gridengine.Executor(FakeScheduler(dispatcher))
    yield executor
    executor.shutdown(wait=False, cancel_futures=True)
    dispatcher.run_what_is_there()


@pytest.fixture
def executor() -> Iterator[gridengine.Executor]:
    """An executor whose calls run when they are submitted."""
    with gridengine.Executor(FakeScheduler()) as executor:
        yield executor


def run_all(executor: gridengine.Executor) -> None:
    """Run all that was submitted."""
    batcher = executor._submitter.batcher
    dispatcher: Any = batcher.dispatcher
    dispatcher.run_all(until=lambda: not batcher._open)


def calls_of(entries: list[Entry]) -> int:
    return sum(entry.task.count for entry in entries)


# ------------------------------------------------------------------ results


def test_a_call_gives_its_result(executor: gridengine.Executor) -> None:
    assert executor.submit(square, 3).result() == 9


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
    with pytest.raises(PicklingError, match="argument 1 of the call of square"):
        executor.submit(square, threading.Lock()).result()  # type: ignore[arg-type]


def test_a_function_that_cannot_travel_is_the_futures_exception(
    executor: gridengine.Executor,
) -> None:
    lock = threading.Lock()
    with pytest.raises(PicklingError, match="lock"):
        executor.submit(lambda: lock).result()


def test_what_kept_a_call_from_ending_is_its_exception(
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    future = waiting.submit(square, 1)
    dispatcher.fail(dispatcher.entries[0], WorkerCrashed("the process died"))
    with pytest.raises(WorkerCrashed):
        future.result()


def test_arguments_arrive_as_they_were_when_submitted(
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    argument: list[int] = []
    futures = []
    for index in range(20):
        argument.append(index)
        futures.append(waiting.submit(len, argument))
    run_all(waiting)
    assert [future.result() for future in futures] == list(range(1, 21))


def test_a_function_runs_as_it_was_when_submitted(
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    number = 0

    def read() -> int:
        return number

    futures = []
    for number in range(20):  # noqa: B007
        futures.append(waiting.submit(read))
    run_all(waiting)
    assert [future.result() for future in futures] == list(range(20))


# ------------------------------------------------------------------ gathering


def test_a_call_that_finds_the_workers_idle_is_handed_over_at_once(
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    waiting.submit(square, 1)
    assert calls_of(dispatcher.entries) == 1


def test_calls_beyond_what_the_workers_can_begin_wait(
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    for index in range(100):
        waiting.submit(square, index)
    assert calls_of(dispatcher.entries) == 2 * dispatcher.slots


def test_quick_calls_travel_together(waiting: gridengine.Executor, dispatcher: Stage) -> None:
    futures = [waiting.submit(square, index) for index in range(5000)]
    run_all(waiting)
    assert [future.result() for future in futures] == [index * index for index in range(5000)]
    assert len(dispatcher.entries) < 200
    assert max(entry.task.count for entry in dispatcher.entries) <= MOST_CALLS


def test_calls_that_travel_together_are_of_one_function(
    waiting: gridengine.Executor, dispatcher: Stage
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


def test_one_failing_call_leaves_those_beside_it_alone(
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    futures = [
        waiting.submit(pow, 2, index if index != 700 else -1, 5 if index != 700 else 4)
        for index in range(1000)
    ]
    run_all(waiting)
    errors = [index for index, future in enumerate(futures) if future.exception() is not None]
    assert errors == [700]


def test_results_in_one_message_each_find_their_future(
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    futures = [waiting.submit(square, index) for index in range(3)]
    for entry in reversed(dispatcher.entries):
        dispatcher.run(entry)
    assert [future.result() for future in futures] == [0, 1, 4]


# ------------------------------------------------------------------ futures


def test_a_future_is_one_of_the_standard_library(
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    future = waiting.submit(square, 3)
    assert isinstance(future, Future)
    assert (future.running(), future.done(), future.cancelled()) == (True, False, False)
    run_all(waiting)
    assert (future.running(), future.done(), future.cancelled()) == (False, True, False)
    assert "finished returned int" in repr(future)


def test_waiting_for_a_result_ends_when_it_comes(
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    future = waiting.submit(square, 3)
    threading.Thread(target=run_all, args=(waiting,)).start()
    assert future.result(SECONDS) == 9


def test_waiting_too_long_is_a_timeout(waiting: gridengine.Executor) -> None:
    future = waiting.submit(square, 3)
    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(0)
    with pytest.raises(concurrent.futures.TimeoutError):
        future.exception(0)


def test_wait_and_as_completed_take_them(waiting: gridengine.Executor, dispatcher: Stage) -> None:
    futures = [waiting.submit(square, index) for index in range(3)]
    dispatcher.run(dispatcher.entries[1])
    assert concurrent.futures.wait(
        futures, return_when=concurrent.futures.FIRST_COMPLETED
    ).done == {futures[1]}
    completed = concurrent.futures.as_completed(futures, timeout=SECONDS)
    assert next(completed) is futures[1]
    dispatcher.run(dispatcher.entries[2])
    assert next(completed) is futures[2]
    dispatcher.run(dispatcher.entries[0])
    assert list(completed) == [futures[0]]


def test_wait_ends_at_the_first_exception(waiting: gridengine.Executor, dispatcher: Stage) -> None:
    futures = [waiting.submit(square, 1), waiting.submit(fail, 2)]
    threading.Thread(target=dispatcher.run, args=(dispatcher.entries[1],)).start()
    assert concurrent.futures.wait(futures, SECONDS, concurrent.futures.FIRST_EXCEPTION).done == {
        futures[1]
    }


def test_wait_takes_them_beside_others(executor: gridengine.Executor) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        futures = [executor.submit(square, 2), threads.submit(square, 3)]
        assert {
            future.result() for future in concurrent.futures.as_completed(futures, SECONDS)
        } == {4, 9}


def test_a_callback_gets_the_future_once_it_is_done(
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    seen: list[Any] = []
    come = threading.Event()

    def note(future: Future[int]) -> None:
        seen.append(future.result())
        come.set()

    future = waiting.submit(square, 3)
    future.add_done_callback(note)
    assert seen == []
    run_all(waiting)
    assert come.wait(SECONDS)
    future.add_done_callback(lambda done: seen.append(done))
    assert seen == [9, future]


def test_callbacks_do_not_run_in_the_thread_that_brings_results(
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    threads: list[threading.Thread] = []
    come = threading.Event()
    waiting.submit(square, 3).add_done_callback(
        lambda _: (threads.append(threading.current_thread()), come.set())
    )
    run_all(waiting)
    assert come.wait(SECONDS)
    assert threads != [threading.current_thread()]


def test_a_callback_may_submit_and_wait(
    executor: gridengine.Executor, waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    answers: list[int] = []
    come = threading.Event()
    waiting.submit(square, 3).add_done_callback(
        lambda done: (answers.append(executor.submit(square, done.result()).result()), come.set())
    )
    run_all(waiting)
    assert come.wait(SECONDS)
    assert answers == [81]


def test_a_callback_that_raises_is_logged_and_the_next_called(
    waiting: gridengine.Executor, dispatcher: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    come = threading.Event()
    future = waiting.submit(square, 3)
    future.add_done_callback(lambda _: 1 // 0)
    future.add_done_callback(lambda _: come.set())
    run_all(waiting)
    assert come.wait(SECONDS)
    assert "exception calling callback" in caplog.text


def test_a_callback_that_raises_system_exit_ends_no_other(
    waiting: gridengine.Executor, dispatcher: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    called = threading.Semaphore(0)

    def leave(_: Future[Any]) -> None:
        raise SystemExit("no licence")

    first, second = waiting.submit(square, 1), waiting.submit(square, 2)
    first.add_done_callback(leave)
    first.add_done_callback(lambda _: called.release())
    second.add_done_callback(lambda _: called.release())
    dispatcher.run_all(until=second.done)
    assert all(called.acquire(timeout=SECONDS) for _ in range(2))
    assert "exception calling callback" in caplog.text


def test_a_callback_that_raises_system_exit_in_who_cancels_ends_him_after_the_others(
    waiting: gridengine.Executor,
) -> None:
    def leave(_: Future[Any]) -> None:
        raise SystemExit("no licence")

    future = [waiting.submit(square, index) for index in range(10)][-1]
    called: list[Future[Any]] = []
    future.add_done_callback(leave)
    future.add_done_callback(called.append)
    with pytest.raises(SystemExit):
        future.cancel()
    assert called == [future]


def test_a_ctrl_c_while_a_map_is_read_loses_none_of_its_results(
    dispatcher: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = gridengine.Pool(scheduler=FakeScheduler(dispatcher))
    result = pool.map_async(square, range(4), chunksize=1)
    dispatcher.run_all(until=result.ready)
    interruptions = [KeyboardInterrupt, None, KeyboardInterrupt]

    def put(self: Results, outcome: Outcome) -> None:
        if interruptions and (error := interruptions.pop()) is not None:
            raise error
        really_put(self, outcome)

    really_put = Results.put
    monkeypatch.setattr(Results, "put", put)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            result.get()
    assert result.get() == [0, 1, 4, 9]
    pool.close()
    pool.join()


def test_asyncio_awaits_them(executor: gridengine.Executor) -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        return await asyncio.gather(
            *(loop.run_in_executor(executor, square, index) for index in range(50))
        )

    assert asyncio.run(main()) == [index * index for index in range(50)]


def test_asyncio_gets_exceptions(executor: gridengine.Executor) -> None:
    async def main() -> None:
        await asyncio.wrap_future(executor.submit(fail, 1))

    with pytest.raises(ValueError, match="no 1"):
        asyncio.run(main())


def test_nobody_else_sets_an_outcome(waiting: gridengine.Executor) -> None:
    future = waiting.submit(square, 1)
    with pytest.raises(RuntimeError):
        future.set_running_or_notify_cancel()
    for act in (lambda: future.set_result(1), lambda: future.set_exception(OSError())):
        with pytest.raises(concurrent.futures.InvalidStateError):
            act()


def test_nothing_is_kept_of_futures_that_nobody_has(executor: gridengine.Executor) -> None:
    gc.disable()  # what is in no circle goes at once
    try:
        asked, unasked = executor.submit(square, 1), executor.submit(square, 2)
        asked.result()
        gone = [weakref.ref(asked), weakref.ref(unasked)]
        executor._submitter.batcher.dispatcher.entries.clear()  # type: ignore[attr-defined]
        del asked, unasked
        assert [one() for one in gone] == [None, None]
    finally:
        gc.enable()


# ------------------------------------------------------------------ cancelling


def test_a_call_that_waits_can_be_cancelled_and_never_runs(
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    futures = [waiting.submit(square, index) for index in range(10)]
    assert futures[9].cancel()
    assert futures[9].cancel()
    assert futures[9].cancelled()
    assert futures[9].done()
    with pytest.raises(CancelledError):
        futures[9].result()
    run_all(waiting)
    assert calls_of(dispatcher.entries) == 9


def test_a_call_that_was_handed_over_cannot_be_cancelled(
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    future = waiting.submit(square, 3)
    assert not future.cancel()
    run_all(waiting)
    assert not future.cancel()
    assert future.result() == 9


def test_who_waits_hears_of_a_cancelled_call(waiting: gridengine.Executor) -> None:
    called: list[Future[int]] = []
    futures = [waiting.submit(square, index) for index in range(10)]
    futures[9].add_done_callback(called.append)
    canceller = threading.Timer(0.05, futures[9].cancel)
    canceller.start()
    assert concurrent.futures.wait(futures, SECONDS, concurrent.futures.FIRST_COMPLETED).done == {
        futures[9]
    }
    canceller.join()
    assert called == [futures[9]]


def test_a_killed_call_fails_with_cancelled(
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    future = waiting.submit(square, 3)
    assert waiting.kill(future)
    assert list(dispatcher.cancelled.values()) == [9]
    with pytest.raises(Cancelled):
        future.result()
    assert not waiting.kill(future)


def test_a_killed_call_that_waited_fails_with_cancelled_and_never_runs(
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    futures = [waiting.submit(square, index) for index in range(10)]
    assert waiting.kill(futures[9])
    with pytest.raises(Cancelled):
        futures[9].result()
    run_all(waiting)
    assert calls_of(dispatcher.entries) == 9


def test_killing_one_of_several_that_travel_together_spares_the_others(
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    futures = [waiting.submit(give, index) for index in range(3000)]
    dispatcher.run_all(
        until=lambda: any(
            one.task.count > 10 and one.task.id not in dispatcher.settled
            for one in dispatcher.entries
        )
    )
    entry = next(
        one
        for one in dispatcher.entries
        if one.task.count > 10 and one.task.id not in dispatcher.settled
    )
    victim = entry.listener.futures[5]
    assert waiting.kill(victim)
    run_all(waiting)
    for index, future in enumerate(futures):
        assert (
            isinstance(future.exception(SECONDS), Cancelled)
            if future is victim
            else future.result(SECONDS) == ((index,), {})
        )


def test_several_of_those_that_travel_together_can_be_killed(
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    futures = [waiting.submit(give, index) for index in range(3000)]
    dispatcher.run_all(
        until=lambda: any(
            one.task.count > 10 and one.task.id not in dispatcher.settled
            for one in dispatcher.entries
        )
    )
    entry = next(
        one
        for one in dispatcher.entries
        if one.task.count > 10 and one.task.id not in dispatcher.settled
    )
    victims = entry.listener.futures[5:7]
    assert all(waiting.kill(victim) for victim in victims)
    run_all(waiting)
    for index, future in enumerate(futures):
        assert (
            isinstance(future.exception(SECONDS), Cancelled)
            if future in victims
            else future.result(SECONDS) == ((index,), {})
        )


def test_only_ones_own_futures_can_be_killed(
    waiting: gridengine.Executor, executor: gridengine.Executor
) -> None:
    with pytest.raises(ValueError, match="not a future of this executor"):
        waiting.kill(executor.submit(square, 1))
    with pytest.raises(ValueError, match="not a future of this executor"):
        waiting.kill(Future())


# ------------------------------------------------------------------ map


def test_map_gives_results_in_order(executor: gridengine.Executor) -> None:
    assert list(executor.map(square, range(1000))) == [index * index for index in range(1000)]
    assert list(executor.map(pow, [2, 3, 4], [3, 2])) == [8, 9]
    assert list(executor.map(square, [], chunksize=3)) == []
    assert list(executor.map(give)) == []


def test_map_submits_before_anybody_takes_results(
    waiting: gridengine.Executor, dispatcher: Stage
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


def test_map_runs_out_of_time(waiting: gridengine.Executor, dispatcher: Stage) -> None:
    results = waiting.map(square, range(10), timeout=0)
    with pytest.raises(TimeoutError):
        next(results)
    assert {entry.task.id for entry in dispatcher.entries} == dispatcher.settled


def test_a_map_that_is_abandoned_ends_its_calls(
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    results = waiting.map(square, range(10), chunksize=1)
    dispatcher.run(dispatcher.entries[0])
    assert next(results) == 0
    results.close()  # type: ignore[attr-defined]
    assert set(dispatcher.cancelled) == {entry.task.id for entry in dispatcher.entries[1:]}
    run_all(waiting)


def test_an_argument_that_cannot_travel_ends_the_map_and_what_was_submitted(
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    with pytest.raises(PicklingError, match="argument 1 of call 7"):
        waiting.map(give, [*range(7), threading.Lock()], chunksize=2)
    assert {entry.task.id for entry in dispatcher.entries} == dispatcher.settled


def test_chunksize_says_how_many_calls_travel_together(
    executor: gridengine.Executor, waiting: gridengine.Executor, dispatcher: Stage
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


def test_the_shutdown_waits_for_what_was_submitted(
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    futures = [waiting.submit(square, index) for index in range(20)]
    results = waiting.map(square, range(20))
    threading.Timer(0.05, run_all, (waiting,)).start()
    waiting.shutdown()
    assert all(future.done() for future in futures)
    assert list(results) == [index * index for index in range(20)]


def test_the_shutdown_can_cancel_what_waits(
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    futures = [waiting.submit(square, index) for index in range(20)]
    waiting.shutdown(wait=False, cancel_futures=True)
    assert [future.cancelled() for future in futures] == [
        index >= dispatcher.slots for index in range(20)
    ]


def after_quick_calls(executor: gridengine.Executor, dispatcher: Stage) -> list[Future[Any]]:
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
    waiting: gridengine.Executor, dispatcher: Stage
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
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    dispatcher.slots = 0  # nothing has begun
    futures = after_quick_calls(waiting, dispatcher)
    assert futures[7].cancel()
    assert not any(future.cancelled() for future in futures if future is not futures[7])
    run_all(waiting)
    assert all(future.result(SECONDS) is not None for future in futures if future is not futures[7])


def test_the_shutdown_can_cancel_what_was_handed_over(
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    dispatcher.slots = 0
    futures = after_quick_calls(waiting, dispatcher)
    waiting.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in futures)
    waiting.shutdown(wait=True)


def test_calls_that_have_become_slow_are_taken_back(
    waiting: gridengine.Executor, dispatcher: Stage
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


def test_a_map_over_whose_calls_the_shutdown_comes_is_cancelled(
    waiting: gridengine.Executor, dispatcher: Stage
) -> None:
    results = waiting.map(square, range(100), chunksize=10)
    dispatcher.slots = 0  # nothing has begun
    assert [entry.task.count for entry in dispatcher.entries] == [10] * 10
    waiting.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(CancelledError):
        next(results)


def test_an_executor_that_is_collected_lets_its_calls_end() -> None:
    dispatcher = Stage()
    executor = gridengine.Executor(FakeScheduler(dispatcher))
    futures = [executor.submit(square, index) for index in range(20)]
    del executor
    gc.collect()
    dispatcher.run_all(until=lambda: all(future.done() for future in futures))
    assert [future.result(SECONDS) for future in futures] == [index * index for index in range(20)]


def test_a_scheduler_that_was_given_stays_open() -> None:
    scheduler = FakeScheduler()
    with gridengine.Executor(scheduler) as executor:
        executor.submit(square, 1)
    assert not scheduler.dispatcher.closed


def test_a_scheduler_that_was_made_is_closed_at_the_shutdown() -> None:
    made: list[FakeScheduler] = []

    def make() -> FakeScheduler:
        made.append(FakeScheduler())
        return made[-1]

    with gridengine.Executor(make) as executor:
        assert executor.submit(square, 3).result() == 9
    assert [scheduler.dispatcher.closed for scheduler in made] == [True]


def test_max_workers_goes_to_the_scheduler_that_is_made() -> None:
    asked: list[int] = []

    def make(max_workers: int) -> FakeScheduler:
        asked.append(max_workers)
        return FakeScheduler()

    gridengine.Executor(make, max_workers=3).shutdown()  # type: ignore[arg-type]
    assert asked == [3]


def test_max_workers_beside_a_scheduler_instance_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="max_workers"):
        gridengine.Executor(FakeScheduler(), max_workers=3)


# ------------------------------------------------------------------ options


def test_options_go_with_the_calls(dispatcher: Stage) -> None:
    executor = gridengine.Executor(FakeScheduler(dispatcher), retries=5)
    executor.submit(square, 1)
    executor.with_options(timeout=3).submit(square, 1)
    executor.with_options(retries=0).with_options(timeout=4).submit(square, 1)
    assert [(entry.task.retries, entry.task.timeout) for entry in dispatcher.entries] == [
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


@pytest.mark.parametrize("options", [{"retries": -1}, {"timeout": 0}])
def test_an_option_out_of_range_is_an_error(
    executor: gridengine.Executor, options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationError):
        executor.with_options(**options)
    with pytest.raises(ConfigurationError):
        gridengine.Executor(FakeScheduler(), **options)


# ------------------------------------------------------------------ initializers


def test_the_initializer_runs_once_before_the_first_call() -> None:
    begun: list[str] = []
    with gridengine.Executor(
        FakeScheduler(), initializer=note_start, initargs=("key",)
    ) as executor:
        assert [executor.submit(starts, "key").result() for _ in range(3)] == [1, 1, 1]
        assert list(executor.map(starts, ["key"] * 3)) == [1, 1, 1]
    assert begun == []


def test_a_failing_initializer_breaks_the_calls() -> None:
    with gridengine.Executor(FakeScheduler(), initializer=fail, initargs=(1,)) as executor:
        for _ in range(2):
            with pytest.raises(concurrent.futures.BrokenExecutor, match="no 1"):
                executor.submit(square, 1).result()


def test_an_initializer_must_be_callable() -> None:
    with pytest.raises(TypeError):
        gridengine.Executor(FakeScheduler(), initializer=3)  # type: ignore[arg-type]


def note_start(key: str) -> None:
    counts = starts.__dict__
    counts[key] = counts.get(key, 0) + 1


def starts(key: str) -> int:
    count: int = starts.__dict__[key]
    return count
