"""`Pool`, on a dispatcher that runs calls here, when a test says so."""

from __future__ import annotations

import _thread
import functools
import gc
import queue
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

import gridengine
from gridengine import ConfigurationError
from gridengine.client.map_run import MapResults
from gridengine.client.outcomes import Outcome
from tests.support.event_loops import LOOPS, cancelled_once, run_in, until
from tests.support.fake_dispatcher import FakeScheduler
from tests.support.held_dispatcher import SECONDS, HeldDispatcher, run_all, square


class Value:
    pass


def make_value() -> Value:
    return Value()


class Study:
    """As users write them: a pool of its own, for a method of its own."""

    def __init__(self, pool: gridengine.Pool) -> None:
        self.pool = pool

    def square(self, x: int) -> int:
        return x * x


def test_a_pool_among_the_arguments_of_a_call_is_named_with_a_remedy() -> None:
    with gridengine.Pool(scheduler=gridengine.InlineScheduler()) as pool:
        study = Study(pool)
        with pytest.raises(
            gridengine.PicklingError,
            match=r"its object, at \.pool\._submitter \(.*Submitter\) .*: leave it out of what",
        ):
            pool.map(study.square, [1])


def test_a_ctrl_c_while_a_map_is_read_loses_none_of_its_results(
    dispatcher: HeldDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = gridengine.Pool(scheduler=FakeScheduler(dispatcher))
    result = pool.map_async(square, range(4), chunksize=1)
    dispatcher.run_all(until=result.ready)
    interruptions = [KeyboardInterrupt, None, KeyboardInterrupt]

    def put(self: MapResults, outcome: Outcome) -> None:
        if interruptions and (error := interruptions.pop()) is not None:
            raise error
        really_put(self, outcome)

    really_put = MapResults.put
    monkeypatch.setattr(MapResults, "put", put)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            result.get()
    assert result.get() == [0, 1, 4, 9]
    pool.close()
    pool.join()


def test_reading_a_map_waits_only_for_its_results(
    dispatcher: HeldDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = gridengine.Pool(scheduler=FakeScheduler(dispatcher))
    result = pool.map_async(square, [3])
    waits = threading.Event()

    class Events(queue.Queue[Any]):
        """The reader comes before the I/O thread has noted that this was the last."""

        def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
            super().put(item)
            assert waits.wait(SECONDS)

        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            if timeout is None and not result._run.results.missing:
                waits.set()
                raise AssertionError("it waits for what will never come")
            return super().get(timeout=timeout)

    def await_end(timeout: float | None) -> bool:
        waits.set()
        return really_await(timeout)

    really_await = result._future.await_end
    monkeypatch.setattr(result._future, "await_end", await_end)
    monkeypatch.setattr(result._run.submission, "_events", Events())
    brings = threading.Thread(target=dispatcher.run_what_is_there)
    brings.start()
    assert result.get() == [9]
    brings.join()
    pool.close()
    pool.join()


def test_a_ctrl_c_as_a_result_arrives_does_not_lose_it(
    dispatcher: HeldDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gridengine.Pool(scheduler=FakeScheduler(dispatcher)) as pool:
        result = pool.map_async(square, [3])
        dispatcher.run_what_is_there()
        submission = result._run.submission
        events = submission._events

        def get(*given: Any, **named: Any) -> Any:
            event = events.get(*given, **named)
            _ = [*iter(_thread.interrupt_main, None)]  # seen by the next code after this
            return event

        interrupted = SimpleNamespace(get=functools.partial(get), empty=events.empty)
        monkeypatch.setattr(submission, "_events", interrupted)
        with pytest.raises(KeyboardInterrupt):
            result.get()
        monkeypatch.setattr(submission, "_events", events)
        assert result._run.take(0)
        assert result.get() == [9]


def test_a_ctrl_c_in_a_wait_with_a_limit_ends_the_iterator(dispatcher: HeldDispatcher) -> None:
    with gridengine.Pool(scheduler=FakeScheduler(dispatcher)) as pool:
        results: Any = pool.imap(square, [3])

        def interrupted(seconds: float) -> None:
            raise KeyboardInterrupt

        results._take = interrupted
        with pytest.raises(KeyboardInterrupt):
            results.next(SECONDS)
        assert results._closed


def test_a_result_that_had_a_callback_does_not_wait_for_the_collector() -> None:
    gone: list[weakref.ref[Value]] = []
    gc.disable()
    try:
        scheduler = FakeScheduler()
        with gridengine.Pool(scheduler=scheduler) as pool:
            pool.apply_async(make_value, callback=lambda value: gone.append(weakref.ref(value)))
            pool.close()
            pool.join()
            scheduler.dispatcher.entries.clear()
            assert [one() for one in gone] == [None]
    finally:
        gc.enable()


@pytest.mark.parametrize("loop", LOOPS)
def test_results_are_awaited_and_are_there_once_their_callbacks_have_returned(
    loop: str, dispatcher: HeldDispatcher
) -> None:
    async def main() -> tuple[int, list[int]]:
        single = pool.apply_async(square, (3,), callback=called.append)
        many = pool.map_async(square, range(3), callback=called.append)
        threading.Thread(target=run_all, args=(pool,)).start()
        assert await many == called[1]
        return await single, await many

    called: list[Any] = []
    pool = gridengine.Pool(scheduler=FakeScheduler(dispatcher))
    assert run_in(loop, main) == (9, [0, 1, 4])
    assert called == [9, [0, 1, 4]]
    pool.close()


@pytest.mark.parametrize("loop", LOOPS)
def test_a_call_that_waits_is_withdrawn_with_the_task_that_awaits_its_result(
    loop: str, dispatcher: HeldDispatcher
) -> None:
    async def main() -> None:
        async def wait() -> None:
            waiting.append(1)
            await results[-1]

        waiting: list[int] = []
        await cancelled_once(wait, lambda: waiting)
        await until(results[-1]._future.cancelled)

    pool = gridengine.Pool(scheduler=FakeScheduler(dispatcher))
    results = [pool.apply_async(square, (index,)) for index in range(300)]
    run_in(loop, main)
    pool.terminate()


def test_an_iterator_keeps_its_pool_until_it_is_dropped(dispatcher: HeldDispatcher) -> None:
    pool = gridengine.Pool(scheduler=FakeScheduler(dispatcher))
    results = pool.imap(square, range(3))
    kept = weakref.ref(pool)
    del pool
    gc.collect()
    assert kept() is not None
    del results
    gc.collect()
    assert kept() is None


def test_a_pool_calls_its_number_by_its_own_name() -> None:
    with pytest.raises(TypeError, match="processes is a number; for 'slurm' say scheduler="):
        gridengine.Pool("slurm")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="processes must be at least 1"):
        gridengine.Pool(0)
    with pytest.raises(ConfigurationError, match="processes is given beside a scheduler instance"):
        gridengine.Pool(2, scheduler=FakeScheduler())
