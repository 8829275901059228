"""The iterators of `imap` and `aimap`, on a dispatcher that runs calls here."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gridengine
from gridengine.errors import Cancelled, PicklingError, SchedulerUnavailable
from tests.support.event_loops import LOOPS, cancelled_once, run_in
from tests.support.fake_dispatcher import FakeDispatcher, FakeScheduler
from tests.support.mapped_calls import add, broken, fail_at_three, later, square


def test_a_call_that_raises_stop_iteration_does_not_end_an_imap(scheduler: FakeScheduler) -> None:
    def stop(x: int) -> int:
        if x == 1:
            raise StopIteration
        return x

    results = gridengine.imap(stop, range(3), scheduler=scheduler)
    assert next(results) == 0
    with pytest.raises(RuntimeError, match="StopIteration"):
        next(results)
    assert list(results) == [2]


def test_imap_takes_calls_that_end_at_once_one_by_one(scheduler: FakeScheduler) -> None:
    taken: list[int] = []
    results = gridengine.imap(
        square, (taken.append(x) or x for x in itertools.count()), scheduler=scheduler
    )  # type: ignore[func-returns-value]
    assert [next(results), next(results), next(results)] == [0, 1, 4]
    assert len(taken) == 3


def test_imap_keeps_a_bounded_number_of_calls_on_their_way() -> None:
    dispatcher = FakeDispatcher(slots=10, on_submit=lambda dispatcher: None)
    results = gridengine.imap(square, itertools.count(), scheduler=FakeScheduler(dispatcher))
    assert len(dispatcher.entries) == 40
    for entry in list(dispatcher.entries):
        dispatcher.run(entry)
    assert list(itertools.islice(results, 40)) == [x * x for x in range(40)]
    assert 40 < len(dispatcher.entries) <= 80


def test_the_bound_counts_results_that_nobody_has_taken() -> None:
    dispatcher = FakeDispatcher(slots=1)
    dispatcher.on_submit = lambda dispatcher: [
        dispatcher.run(entry)
        for entry in dispatcher.entries
        if entry.task.id not in dispatcher.settled and entry.task.id > 1
    ]  # type: ignore[assignment]
    gridengine.imap(square, itertools.count(), scheduler=FakeScheduler(dispatcher))
    assert len(dispatcher.entries) <= 16


def test_imap_raises_a_failed_call_in_its_turn_and_goes_on(scheduler: FakeScheduler) -> None:
    results = gridengine.imap(fail_at_three, range(5), scheduler=scheduler)
    assert list(itertools.islice(results, 3)) == [0, 1, 2]
    with pytest.raises(ValueError, match="no 3"):
        next(results)
    assert list(results) == [4]


def test_imap_without_reraise_yields_the_exception(scheduler: FakeScheduler) -> None:
    results: list[Any] = list(
        gridengine.imap(fail_at_three, range(5), scheduler=scheduler, reraise=False)
    )
    assert isinstance(results[3], ValueError)


def test_a_closed_imap_cancels_its_calls_and_ends() -> None:
    dispatcher = FakeDispatcher(on_submit=lambda dispatcher: None)
    with gridengine.imap(square, range(5), scheduler=FakeScheduler(dispatcher)) as results:
        pass
    assert set(dispatcher.cancelled) == {entry.task.id for entry in dispatcher.entries}
    assert list(results) == []


def test_an_abandoned_imap_cancels_its_calls() -> None:
    dispatcher = FakeDispatcher(on_submit=lambda dispatcher: None)
    scheduler = FakeScheduler(dispatcher)
    results = gridengine.imap(square, range(5), scheduler=scheduler)
    assert not dispatcher.cancelled
    del results
    gc.collect()
    assert set(dispatcher.cancelled) == {entry.task.id for entry in dispatcher.entries}
    assert not dispatcher.closed


def test_an_imap_closes_a_scheduler_that_it_made_at_its_end() -> None:
    dispatcher = FakeDispatcher()
    results = gridengine.imap(square, range(3), scheduler=lambda: FakeScheduler(dispatcher))
    assert list(results) == [0, 1, 4]
    assert dispatcher.closed


@pytest.mark.parametrize("imap", [gridengine.imap, gridengine.imap_unordered])
@pytest.mark.parametrize("options", [{}, {"reraise": False}])
def test_an_error_of_the_iterable_is_raised_after_the_results_before_it(
    imap: Callable[..., Iterator[int]], options: dict[str, Any], scheduler: FakeScheduler
) -> None:
    for count in (0, 3, 100):
        results = imap(square, broken(count), scheduler=scheduler, **options)
        assert [next(results) for _ in range(count)] == [x * x for x in range(count)]
        with pytest.raises(LookupError, match="no more arguments"):
            next(results)
        assert list(results) == []


def test_an_error_of_the_iterable_comes_after_the_results_of_an_unfinished_chunk(
    scheduler: FakeScheduler,
) -> None:
    results = gridengine.imap(square, broken(7), scheduler=scheduler, chunksize=2)
    assert [next(results) for _ in range(7)] == [x * x for x in range(7)]
    with pytest.raises(LookupError, match="no more arguments"):
        next(results)


@pytest.mark.parametrize("chunksize", [1, 2])
def test_an_iterable_that_has_ended_is_not_asked_again(
    scheduler: FakeScheduler, chunksize: int
) -> None:
    longer = iter(range(10))
    pairs = zip(longer, range(3), strict=False)
    assert list(gridengine.imap(len, pairs, scheduler=scheduler, chunksize=chunksize)) == [2] * 3
    assert next(longer) == 4  # `zip` itself has taken 3


@pytest.mark.parametrize("reraise", [True, False])
def test_results_in_whatever_order_come_with_the_number_of_their_call(reraise: bool) -> None:
    results = gridengine.imap_unordered(
        square,
        range(5),
        scheduler=FakeScheduler(later(5, lambda entries: entries[::-1])),
        with_index=True,
        reraise=reraise,
    )
    assert list(results) == [(x, x * x) for x in reversed(range(5))]


def test_without_reraise_an_error_comes_with_the_number_of_its_call(
    scheduler: FakeScheduler,
) -> None:
    results = dict(
        gridengine.imap_unordered(
            fail_at_three, range(5), scheduler=scheduler, with_index=True, reraise=False
        )
    )
    assert isinstance(results.pop(3), ValueError)
    assert results == {0: 0, 1: 1, 2: 2, 4: 4}


def test_a_ctrl_c_in_the_iterable_cancels_an_imap_and_propagates() -> None:
    def interrupted() -> Iterator[int]:
        yield from range(3)
        raise KeyboardInterrupt

    dispatcher = FakeDispatcher(on_submit=lambda dispatcher: None)
    with pytest.raises(KeyboardInterrupt):
        gridengine.imap(square, interrupted(), scheduler=FakeScheduler(dispatcher))
    assert set(dispatcher.cancelled) == {entry.task.id for entry in dispatcher.entries}


def test_an_unpicklable_argument_of_an_imap_is_raised_in_its_turn(scheduler: FakeScheduler) -> None:
    results = gridengine.imap(square, [2, threading.Lock(), 3], scheduler=scheduler)
    assert next(results) == 4
    with pytest.raises(PicklingError, match="call 1"):
        next(results)
    assert list(results) == [9]


def test_calls_that_the_closing_of_their_scheduler_cancelled_raise_it() -> None:
    dispatcher = FakeDispatcher(on_submit=lambda dispatcher: None)
    scheduler = FakeScheduler(dispatcher)
    results = gridengine.imap(square, range(3), scheduler=scheduler)
    scheduler.close()
    with pytest.raises(Cancelled):
        next(results)


# ------------------------------------------------------------------ in tasks of event loops


@pytest.mark.parametrize("loop", LOOPS)
def test_aimap_gives_results_in_order_as_imap_does(loop: str, scheduler: FakeScheduler) -> None:
    async def main() -> list[int]:
        return [one async for one in gridengine.aimap(add, range(99), range(99), **options)]

    options: dict[str, Any] = {"scheduler": scheduler, "chunksize": 2, "progress": False}
    assert run_in(loop, main) == [2 * x for x in range(99)]


@pytest.mark.parametrize("loop", LOOPS)
def test_aimap_takes_a_bounded_number_of_arguments_ahead(loop: str) -> None:
    async def main() -> None:
        async with gridengine.aimap(square, itertools.count(), scheduler=scheduler) as results:
            assert [await anext(results) for _ in range(3)] == [0, 1, 4]
            assert len(dispatcher.entries) < 99
        with pytest.raises(StopAsyncIteration):
            await anext(results)

    dispatcher = FakeDispatcher()
    scheduler = FakeScheduler(dispatcher)
    run_in(loop, main)


@pytest.mark.parametrize("loop", LOOPS)
def test_aimap_raises_an_error_in_its_place_and_goes_on(
    loop: str, scheduler: FakeScheduler
) -> None:
    async def main() -> list[int]:
        results = gridengine.aimap(fail_at_three, range(5), scheduler=scheduler)
        first = [await anext(results) for _ in range(3)]
        with pytest.raises(ValueError, match="no 3"):
            await anext(results)
        return first + [one async for one in results]

    assert len(run_in(loop, main)) == 4


@pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration])
def test_a_stop_iteration_of_a_call_is_a_runtime_error(
    kind: type[Exception], scheduler: FakeScheduler
) -> None:
    def end(x: int) -> None:
        raise kind

    async def main() -> None:
        async for _ in gridengine.aimap(end, [1], scheduler=scheduler):
            raise AssertionError("a result")

    with pytest.raises(RuntimeError, match=f"a call raised {kind.__name__}"):
        asyncio.run(main())


@pytest.mark.parametrize("loop", LOOPS)
def test_aimap_cancels_its_calls_with_the_task_that_waits_for_them(loop: str) -> None:
    async def main() -> None:
        async def wait() -> None:
            async for _ in gridengine.aimap(square, range(5), scheduler=scheduler):
                raise AssertionError("a result")

        await cancelled_once(wait, lambda: dispatcher.entries)
        assert len(dispatcher.cancelled) == len(dispatcher.entries) == 5

    dispatcher = FakeDispatcher(on_submit=lambda _: None)
    scheduler = FakeScheduler(dispatcher)
    run_in(loop, main)


@pytest.mark.parametrize("mapped", [gridengine.map, gridengine.imap, gridengine.imap_unordered])
def test_a_missing_batch_system_is_raised_though_errors_are_results(
    mapped: Callable[..., Any],
) -> None:
    refusal = SchedulerUnavailable("there is no batch system")
    dispatcher = FakeDispatcher(on_submit=lambda one: one.fail(one.entries[-1], refusal))
    scheduler = FakeScheduler(dispatcher)
    with pytest.raises(SchedulerUnavailable):
        list(mapped(square, range(6), scheduler=scheduler, chunksize=3, reraise=False))
