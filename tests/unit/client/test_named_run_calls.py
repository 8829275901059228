"""Single calls of a run with a name, in this process."""

from __future__ import annotations

import threading
from typing import Any

import gridengine
from tests.support.fake_dispatcher import FakeScheduler
from tests.support.held_dispatcher import HeldDispatcher
from tests.support.named_calls import Notes, square


def outcomes(notes: Notes, *numbers: Any) -> list[Any]:
    """Return what came of single calls, and of a map, of one executor."""
    with gridengine.Executor(scheduler=FakeScheduler(), **notes.options) as executor:
        futures = [executor.submit(square, x) for x in numbers]
        return [future.exception() or future.result() for future in futures]


def test_the_dispatcher_knows_of_which_run_they_are(notes: Notes) -> None:
    scheduler = FakeScheduler()
    with gridengine.Executor(scheduler=scheduler, **notes.options) as executor:
        executor.submit(square, 2).result()
        assert list(executor.map(square, [3])) == [9]
    gridengine.map(square, [4, 5], scheduler=scheduler, **notes.options)
    gridengine.map(square, [6], scheduler=scheduler)
    with gridengine.JobDispatcher(scheduler, **notes.options) as dispatcher:
        dispatcher.dispatch([gridengine.Job(target=square, args=(7,))])
        dispatcher.join()
    named = scheduler.dispatcher.named
    submitters = [entry.task.submitter for entry in scheduler.dispatcher.entries]
    assert [number in named for number in submitters] == [*[True] * 4, False, True]
    assert set(named.values()) == {("run", str(notes.journal))}


def test_a_call_is_known_by_its_arguments(notes: Notes) -> None:
    assert outcomes(notes, 1, 2, 3) == [1, 4, 9]
    notes.made()
    assert outcomes(notes, 3, 4, 1) == [9, 16, 1]
    assert notes.made() == [4]


def test_one_that_needs_another_is_made_each_time(notes: Notes) -> None:
    for made in [2, 4], [4]:
        with gridengine.Executor(scheduler=FakeScheduler(), **notes.options) as executor:
            assert executor.submit(square, executor.submit(square, 2)).result() == 16
        assert notes.made() == made


def test_those_of_a_pool_are_known_too(notes: Notes) -> None:
    for made in [1, 2, 3, 4], []:
        with gridengine.Pool(scheduler=FakeScheduler(), **notes.options) as pool:
            assert (pool.apply(square, (1,)), pool.map(square, [2])) == (1, [4])
            assert (pool.starmap(square, [(3,)]), [*pool.imap(square, [4])]) == ([9], [16])
        assert notes.made() == made


def test_one_that_failed_is_made_again(notes: Notes) -> None:
    notes.bad(2)
    assert [str(one) for one in outcomes(notes, 1, 2)] == ["1", "2 is bad"]
    notes.bad()
    notes.made()
    assert outcomes(notes, 1, 2) == [1, 4]
    assert notes.made() == [2]


def test_known_ones_have_their_results_before_others_are_handed_over(notes: Notes) -> None:
    outcomes(notes, 1, 2)
    dispatcher = HeldDispatcher()
    executor = gridengine.Executor(scheduler=FakeScheduler(dispatcher), **notes.options)
    futures = [executor.submit(square, x) for x in (1, 9, 2)]
    assert [future.done() for future in futures] == [True, False, True]
    executor.shutdown(wait=False, cancel_futures=True)
    dispatcher.run_all(until=lambda: all(future.done() for future in futures))
    executor.shutdown()


def test_one_that_was_cancelled_has_no_result(notes: Notes) -> None:
    dispatcher = HeldDispatcher()
    executor = gridengine.Executor(scheduler=FakeScheduler(dispatcher), **notes.options)
    futures = [executor.submit(square, x) for x in range(50)]
    assert futures[-1].cancel()
    executor.shutdown(wait=False)
    dispatcher.run_all(until=lambda: all(future.done() for future in futures))
    executor.shutdown()
    notes.made()
    assert outcomes(notes, *range(50)) == [x * x for x in range(50)]
    assert notes.made() == [49]


def test_one_that_cannot_be_known_is_made_each_time(notes: Notes) -> None:
    lock: Any = threading.Lock()
    found = outcomes(notes, lock, 2)
    assert isinstance(found[0], gridengine.PicklingError)
    assert found[1] == 4


def test_a_map_of_it_is_known_too(notes: Notes) -> None:
    for made in ([1, 2, 3], [4]):
        with gridengine.Executor(scheduler=FakeScheduler(), **notes.options) as executor:
            executor.submit(square, made[0]).result()
            assert list(executor.map(square, [2, 3])) == [4, 9]
        assert notes.made() == made
