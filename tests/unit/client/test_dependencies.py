from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import pytest

import gridengine
from gridengine.errors import Cancelled, PicklingError, WorkerCrashed
from gridengine.requests import CallsFinished, ResultData
from gridengine.serialize import pickling
from tests.support.fake_dispatcher import Entry, FakeDispatcher, FakeScheduler
from tests.support.held_dispatcher import SECONDS, HeldDispatcher, run_all, square
from tests.support.waiting import wait_until

Future = concurrent.futures.Future[Any]


@dataclass
class Model:
    table: Any


class Holder:
    def __init__(self, value: Any) -> None:
        self.value = value


def first(x: Any, *more: Any) -> Any:
    return x


def add(x: int, y: int) -> int:
    return x + y


def fail(x: Any) -> Any:
    raise ValueError(f"no {x}")


@pytest.fixture
def held() -> Iterator[gridengine.Executor]:
    with gridengine.Executor(scheduler=FakeScheduler(HeldDispatcher())) as executor:
        yield executor
        executor.kill_all = None  # type: ignore[attr-defined]
        executor._submitter.batcher.kill_all()


@pytest.fixture
def inline() -> Iterator[gridengine.Executor]:
    with (
        gridengine.InlineScheduler() as scheduler,
        gridengine.Executor(scheduler=scheduler) as made,
    ):
        yield made


def dispatcher_of(executor: gridengine.Executor) -> HeldDispatcher:
    made: Any = executor._submitter.batcher.dispatcher
    return made


def handed_over(executor: gridengine.Executor, count: int) -> list[Entry]:
    entries = dispatcher_of(executor).entries
    wait_until(lambda: len(entries) >= count, SECONDS)
    return entries


def in_array(future: Future) -> Any:
    array = numpy.empty(2, dtype=object)
    array[1] = future
    return array


PLACES: dict[str, tuple[Callable[[Future], Any], Callable[[Any], Any]]] = {
    "itself": (lambda f: f, lambda x: x),
    "list": (lambda f: [0, f], lambda x: x[1]),
    "tuple": (lambda f: (f,), lambda x: x[0]),
    "dict": (lambda f: {"a": {"b": f}}, lambda x: x["a"]["b"]),
    "attribute": (Holder, lambda x: x.value),
    "dataclass": (Model, lambda x: x.table),
    "partial": (lambda f: functools.partial(add, f), lambda x: x(0)),
    "closure": (lambda f: lambda: f, lambda x: x()),
    "object array": (in_array, lambda x: x[1]),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_call_is_given_the_result_wherever_the_future_lies(
    place: str, inline: gridengine.Executor
) -> None:
    put, take = PLACES[place]
    future = inline.submit(square, 3)
    assert take(inline.submit(first, put(future)).result()) == 9
    assert take(inline.submit(first, x=put(future)).result()) == 9
    assert take(inline.submit(first, put(future), 2).result()) == 9
    assert take(inline.submit(functools.partial(first, put(future))).result()) == 9


def test_a_function_may_refer_to_a_future(inline: gridengine.Executor) -> None:
    future: Any = inline.submit(square, 3)
    assert inline.submit(lambda x: future + x, 1).result() == 10
    assert list(inline.map(lambda x: future + x, [1, 2])) == [10, 11]


def test_the_same_future_twice_is_one_result(inline: gridengine.Executor) -> None:
    future = inline.submit(first, [1])
    one, other = inline.submit(first, (future, future)).result()
    assert one == [1]
    assert one is other


def test_calls_do_not_share_the_object_that_they_are_given(inline: gridengine.Executor) -> None:
    future = inline.submit(first, [1])
    inline.submit(list.append, future, 2).result()
    assert inline.submit(first, future).result() == [1]


def test_a_call_that_waits_to_be_handed_over_is_handed_over_as_one_that_is_needed(
    held: gridengine.Executor,
) -> None:
    many = [held.submit(square, index) for index in range(20)]
    waiting = next(one for one in many if not one.running())
    held.submit(first, waiting)
    run_all(held)
    entries = dispatcher_of(held).entries
    [reference] = next(entry.task.after for entry in entries if entry.task.after)
    assert [kept for entry in entries for _, kept in entry.task.kept] == [reference]


def test_the_dispatcher_is_told_that_a_handed_over_call_is_needed(
    held: gridengine.Executor,
) -> None:
    future = held.submit(square, 3)
    dependent = held.submit(first, [future, future])
    source, entry = handed_over(held, 2)
    [(reference, (task, index, _))] = dispatcher_of(held).wanted.items()
    assert (task, index) == (source.task.id, 0)
    assert entry.task.after == (reference,)
    assert not dependent.done()


def test_a_missing_result_is_supplied_as_it_came(held: gridengine.Executor) -> None:
    dispatcher = dispatcher_of(held)
    future = held.submit(square, 3)
    held.submit(first, future)
    source, _ = handed_over(held, 2)
    [(reference, (_, _, missing))] = dispatcher.wanted.items()
    missing()  # before it is known here that the call has ended
    assert reference not in dispatcher.results
    payload = pickling.dump_values([9])
    dispatcher.settle(source, CallsFinished(source.task.id, 0, 1, payload))
    wait_until(lambda: reference in dispatcher.results, SECONDS)
    assert dispatcher.results[reference].payload is payload


def test_a_result_that_is_there_is_supplied_as_it_came(held: gridengine.Executor) -> None:
    future = held.submit(square, 3)
    [source] = handed_over(held, 1)
    payload = pickling.dump_values([9])
    dispatcher_of(held).settle(source, CallsFinished(source.task.id, 0, 1, payload))
    assert held.submit(first, future)
    [data] = dispatcher_of(held).results.values()
    assert data.payload is payload


def test_a_large_result_goes_on_without_those_that_travelled_with_it(
    held: gridengine.Executor,
) -> None:
    dispatcher = dispatcher_of(held)
    held.submit(square, 1)
    run_all(held)
    futures = [held.submit(square, index) for index in range(2000)]
    source = next(entry for entry in dispatcher.entries if entry.task.count > 1)
    count = source.task.count
    values = [b"%01000d" % index for index in range(count - 1)] + [b"last"]
    payload = pickling.dump_values(values)
    dispatcher.settle(source, CallsFinished(source.task.id, 0, count, payload))
    last = [one for one in futures if one.done()][-1]
    held.submit(first, last)
    [data] = dispatcher.results.values()
    assert data.payload is not None
    assert sum(map(len, data.payload)) < 1000
    assert pickling.load_result(data.payload, data.item) == b"last"


def test_a_class_that_the_caller_alone_knows_goes_on_as_a_whole(
    held: gridengine.Executor,
) -> None:
    class Local:
        value = 5

    future = held.submit(first, Local())
    run_all(held)
    held.submit(first, future)
    [data] = dispatcher_of(held).results.values()
    assert data.payload is not None
    assert b"make_class" in data.payload[0]


@pytest.mark.parametrize("asked", [False, True])
def test_a_known_failure_is_the_failure_of_dependent_calls(
    asked: bool, held: gridengine.Executor
) -> None:
    future = held.submit(fail, 3)
    run_all(held)
    if asked:
        assert future.exception()
    held.submit(first, future)
    [data] = dispatcher_of(held).results.values()
    assert data.raised
    assert data.payload is not None
    assert data.path == ("the call of fail",)
    assert repr(pickling.load_exception(data.payload)) == "ValueError('no 3')"


def test_a_call_that_could_not_be_handed_in_fails_its_dependents(
    held: gridengine.Executor,
) -> None:
    future = held.submit(first, threading.Lock())
    held.submit(first, future)
    [data] = dispatcher_of(held).results.values()
    assert isinstance(data.error, PicklingError)


def test_a_cancelled_future_cancels_dependent_calls(
    held: gridengine.Executor,
) -> None:
    many = [held.submit(square, index) for index in range(20)]
    assert many[-1].cancel()
    held.submit(first, many[-1])
    [data] = dispatcher_of(held).results.values()
    assert data.cancelled
    assert data.path == ("the call of square",)


@pytest.mark.parametrize("end", ["cancel", "cancel what is watched", "kill"])
def test_a_future_that_ends_before_its_call_began_cancels_dependent_calls(
    end: str, held: gridengine.Executor
) -> None:
    many = [held.submit(square, index) for index in range(20)]
    held.submit(first, many[-1])
    if end == "cancel what is watched":
        concurrent.futures.wait([many[-1]], timeout=0)
    assert held.kill(many[-1]) if end == "kill" else many[-1].cancel()
    results = dispatcher_of(held).results
    wait_until(lambda: len(results) == 1, SECONDS)
    [data] = results.values()
    assert data.cancelled
    assert isinstance(data.error, Cancelled) == (end == "kill")
    assert data.path == ("the call of square",)


def test_a_call_that_is_given_back_is_needed_still(held: gridengine.Executor) -> None:
    dispatcher = dispatcher_of(held)
    future = held.submit(square, 3)
    dependent = held.submit(first, future)
    source, _ = handed_over(held, 2)
    dispatcher.settle(source, CallsFinished(source.task.id, 0, 1, None, recalled=True))
    again = handed_over(held, 3)[-1]
    [(index, reference)] = again.task.kept
    assert (index, reference) == (0, *dispatcher.wanted)
    dispatcher.run(again)
    run_all(held)
    assert dependent.result() == 9


def test_dependents_of_a_cancelled_call_are_cancelled(held: gridengine.Executor) -> None:
    dispatcher = dispatcher_of(held)
    dependent = held.submit(first, held.submit(square, 3))
    entry = handed_over(held, 2)[-1]
    path = "the call of load", "square"
    event = CallsFinished(entry.task.id, 0, 1, None, recalled=True, path=path)
    dispatcher.settle(entry, event)
    wait_until(dependent.done, SECONDS)
    assert dependent.cancelled()
    with pytest.raises(concurrent.futures.CancelledError) as caught:
        dependent.result()
    assert caught.value.__notes__ == ["the call of load was cancelled, and with it square, first"]
    with pytest.raises(asyncio.CancelledError) as awaited:
        asyncio.run(awaited_in_a_task(dependent))
    assert awaited.value.__notes__ == caught.value.__notes__
    held.submit(first, dependent)
    assert ResultData(cancelled=True, path=(*path, "first")) in dispatcher.results.values()


async def awaited_in_a_task(future: Any) -> Any:
    return await future


def test_futures_of_concurrent_futures_are_supplied_when_they_are_done(
    held: gridengine.Executor,
) -> None:
    done, failed, cancelled = Future(), Future(), Future()
    dependents = [held.submit(first, [one]) for one in (done, failed, cancelled)]
    references = [entry.task.after[0] for entry in handed_over(held, 3)]
    results = dispatcher_of(held).results
    assert not results
    done.set_result(5)
    failed.set_exception(WorkerCrashed("it is gone"))
    cancelled.cancel()
    assert [results[one].cancelled for one in references] == [False, False, True]
    assert isinstance(results[references[1]].error, WorkerCrashed)
    dispatcher_of(held).run(handed_over(held, 3)[0])
    assert dependents[0].result() == [5]


def test_a_future_that_was_supplied_goes_without_the_collector(held: gridengine.Executor) -> None:
    future = Future()
    dependent = held.submit(first, [future])
    handed_over(held, 1)
    gc.disable()
    try:
        future.set_result(5)
        gone = weakref.ref(future)
        del future
        assert gone() is None
    finally:
        gc.enable()
    run_all(held)
    assert dependent.result() == [5]


def test_futures_of_another_scheduler_are_supplied_when_they_are_done(
    held: gridengine.Executor,
) -> None:
    with gridengine.Executor(scheduler=FakeScheduler(HeldDispatcher())) as other:
        future = other.submit(square, 3)
        dependent = held.submit(first, future)
        handed_over(held, 1)
        results = dispatcher_of(held).results
        assert not results
        run_all(other)
        wait_until(lambda: len(results) == 1, SECONDS)
    run_all(held)
    assert dependent.result() == 9


def test_a_value_of_another_future_that_cannot_be_pickled_is_a_failure(
    held: gridengine.Executor,
) -> None:
    future: Future = Future()
    held.submit(first, future)
    future.set_result(threading.Lock())
    [data] = dispatcher_of(held).results.values()
    assert isinstance(data.error, PicklingError)
    assert "the result of a future" in str(data.error)


def test_an_unpicklable_value_of_another_future_is_freed(
    inline: gridengine.Executor,
) -> None:
    future: Future = concurrent.futures.Future()
    future.set_result(threading.Lock())
    assert isinstance(inline.submit(square, future).exception(SECONDS), PicklingError)
    gone = weakref.ref(future)
    del future
    gc.collect()
    assert gone() is None


def test_a_future_that_never_ends_keeps_no_other_call_waiting(held: gridengine.Executor) -> None:
    never: Future = Future()
    dependents = [held.submit(first, never) for _ in range(100)]
    handed_over(held, 100)
    others = [held.submit(square, index) for index in range(3000)]
    dispatcher = dispatcher_of(held)
    while not all(one.done() for one in others):
        left = [one for one in dispatcher.entries if one.task.id not in dispatcher.settled]
        ready = [one for one in left if not one.task.after]
        if ready:
            dispatcher.run(ready[0])
        else:
            assert dispatcher.submissions.acquire(timeout=SECONDS)
    assert not any(one.done() for one in dependents)
    never.set_result(1)
    run_all(held)
    assert {one.result() for one in dependents} == {1}


def test_a_reference_is_released_once_nobody_can_use_it(held: gridengine.Executor) -> None:
    dispatcher = dispatcher_of(held)
    future: Any = held.submit(square, 3)
    dependents = [held.submit(first, future), held.submit(lambda: future)]
    [reference] = {one for entry in handed_over(held, 3)[1:] for one in entry.task.after}
    payload = pickling.dump_values([9])
    source = handed_over(held, 3)[0]
    dispatcher.settle(source, CallsFinished(source.task.id, 0, 1, payload))
    dispatcher.supply(reference, ResultData(payload))
    dispatcher.wanted.clear()
    future = source = None
    assert not dispatcher.released
    dispatcher.entries.pop(0)
    run_all(held)
    gc.collect()
    assert dispatcher.released == [reference]
    assert all(one.done() for one in dependents)


def test_calls_of_a_map_that_need_others_travel_alone() -> None:
    with (
        FakeScheduler(FakeDispatcher()) as scheduler,
        gridengine.Executor(scheduler=scheduler) as e,
    ):
        future = e.submit(square, 3)
        calls = [0, 1, future, 3, 4, future, 6]
        assert gridengine.map(first, calls, scheduler=scheduler, chunksize=7) == [
            *(0, 1, 9, 3, 4, 9, 6)
        ]
        tasks = [entry.task for entry in scheduler.dispatcher.entries[1:]]
        assert [(one.first, one.count, len(one.after)) for one in tasks] == [
            (0, 2, 0),
            (2, 1, 1),
            (3, 2, 0),
            (5, 1, 1),
            (6, 1, 0),
        ]


def test_calls_of_a_function_that_needs_others_travel_alone() -> None:
    with (
        FakeScheduler(FakeDispatcher()) as scheduler,
        gridengine.Executor(scheduler=scheduler) as e,
    ):
        future: Any = e.submit(square, 3)
        assert gridengine.map(lambda x: x + future, range(3), scheduler=scheduler) == [9, 10, 11]
        tasks = [entry.task for entry in scheduler.dispatcher.entries[1:]]
        assert [(one.count, len(one.after)) for one in tasks] == [(1, 1)] * 3


def test_a_job_and_results_of_pools_may_be_given_to_calls() -> None:
    with FakeScheduler(FakeDispatcher()) as scheduler:
        job = gridengine.Job(target=square, args=(3,), scheduler=scheduler)
        job.start()
        pool = gridengine.Pool(scheduler=scheduler)
        single, several = pool.apply_async(square, (job,)), pool.map_async(square, [1, job])
        assert single.get() == 81
        last = gridengine.Job(target=first, args=([single, several],), scheduler=scheduler)
        last.start()
        assert last.result() == [81, [1, 81]]
        pool.terminate()


def test_the_dispatcher_is_told_that_a_running_job_is_needed(held: gridengine.Executor) -> None:
    job = gridengine.Job(target=square, args=(3,), scheduler=held._submitter._scheduler)
    job.start()
    held.submit(first, [job])
    source, entry = handed_over(held, 2)
    [(reference, (task, index, missing))] = dispatcher_of(held).wanted.items()
    assert (task, index) == (source.task.id, 0)
    assert entry.task.after == (reference,)
    dispatcher_of(held).run(source)
    missing()
    assert pickling.load_result(dispatcher_of(held).results[reference].payload or [], 0) == 9


def test_a_job_of_another_scheduler_is_supplied_when_it_has_ended(
    held: gridengine.Executor,
) -> None:
    other = HeldDispatcher()
    job = gridengine.Job(target=square, args=(3,), scheduler=FakeScheduler(other))
    job.start()
    dependent = held.submit(first, job)
    handed_over(held, 1)
    results = dispatcher_of(held).results
    assert not results
    other.run_what_is_there()
    wait_until(lambda: len(results) == 1, SECONDS)
    run_all(held)
    assert dependent.result() == 9


def test_a_mutable_job_stands_for_its_result_and_keeps_its_attributes() -> None:
    class Counting(gridengine.Job):
        count = 0

        def run(self, controller: Any = None) -> int:
            self.count = 1
            return 5

    with FakeScheduler(FakeDispatcher()) as scheduler:
        job = Counting(scheduler=scheduler, mutable=True)
        job.start()
        with gridengine.Executor(scheduler=scheduler) as executor:
            assert executor.submit(first, [job]).result() == [5]
        assert job.result() == 5
        assert job.count == 1


def test_a_future_elsewhere_than_in_calls_is_refused(held: gridengine.Executor) -> None:
    future = held.submit(square, 3)
    with pytest.raises(PicklingError, match="future"):
        gridengine.share([future])
