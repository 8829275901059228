"""What executors, pools and joblib submit calls with. What comes of calls: `test_batcher.py`."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

import gridengine
from gridengine.client import submitter
from gridengine.client.submitter import place_for
from gridengine.errors import ConfigurationError
from gridengine.schedulers.workerless import InlineScheduler
from tests.support.fake_dispatcher import FakeScheduler
from tests.support.held_dispatcher import square


@pytest.mark.parametrize("place", [None, "inline", InlineScheduler])
def test_without_a_number_calls_run_where_it_is_said(place: Any) -> None:
    assert place_for(place, None, "max_workers") is place


@pytest.mark.parametrize("place", ["processes", gridengine.ProcessScheduler])
def test_with_a_number_they_have_a_scheduler_of_their_own(place: Any) -> None:
    make: Any = place_for(place, 3, "processes")
    with make() as one, make() as other:
        assert repr(one) == repr(gridengine.ProcessScheduler(3))
        assert one is not other


def test_a_scheduler_that_is_there_has_its_own_number() -> None:
    with (
        InlineScheduler() as scheduler,
        pytest.raises(ConfigurationError, match="processes is given beside a scheduler instance"),
    ):
        place_for(scheduler, 3, "processes")


def test_a_callable_that_takes_no_number_is_refused_with_the_remedy() -> None:
    make: Any = place_for(lambda: FakeScheduler(), 3, "processes")
    with pytest.raises(TypeError, match=r"processes=3 is given.*ProcessScheduler\(3\)"):
        make()


def test_a_type_error_of_the_callable_itself_is_raised_as_it_is() -> None:
    def broken(max_workers: int) -> FakeScheduler:
        raise TypeError(f"no {max_workers} today")

    make: Any = place_for(broken, 3, "max_workers")
    with pytest.raises(TypeError, match="no 3 today"):
        make()


def test_an_object_that_is_no_scheduler_is_named_beside_a_number_too() -> None:
    no_scheduler: Any = 5
    make: Any = place_for(no_scheduler, 3, "max_workers")
    with pytest.raises(TypeError, match=r"scheduler must be .*, not 5$"):
        make()


@pytest.mark.parametrize("number", ["slurm", InlineScheduler, InlineScheduler()])
def test_a_scheduler_in_the_place_of_the_number_is_told_so(number: Any) -> None:
    with pytest.raises(TypeError, match=r"max_workers is a number; for .* say scheduler="):
        place_for(None, number, "max_workers")


@pytest.mark.parametrize("number", [0, -1, 1.5, True])
def test_a_wrong_number_is_refused(number: Any) -> None:
    with pytest.raises((TypeError, ConfigurationError), match="max_workers must be"):
        place_for(None, number, "max_workers")


def test_inside_a_call_there_is_no_scheduler_of_its_own() -> None:
    def places(number: int) -> list[bool]:
        return [place_for(name, number, "max_workers") is None for name in (None, "processes")]

    assert gridengine.map(places, [3], scheduler=gridengine.InlineScheduler()) == [[True, False]]


@pytest.fixture
def scheduler() -> FakeScheduler:
    return FakeScheduler()


def test_a_submitter_does_not_travel(scheduler: FakeScheduler) -> None:
    with (
        gridengine.Executor(scheduler=scheduler) as executor,
        pytest.raises(TypeError, match="cannot travel with a call"),
    ):
        pickle.dumps(executor._submitter)


@pytest.mark.parametrize("function", [5, None, "square"])
def test_an_object_that_cannot_be_called_is_its_future_s_error(
    function: Any, scheduler: FakeScheduler
) -> None:
    with gridengine.Executor(scheduler=scheduler) as executor:
        error = executor.submit(function, 1).exception()
        assert "is not callable" in str(error)
        with pytest.raises(TypeError, match="is not callable"):
            list(executor.map(function, [1]))
    assert scheduler.dispatcher.entries == []


def test_the_environment_as_it_is_now_travels_with_a_call(
    scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gridengine.Executor(scheduler=scheduler) as executor:
        for value in ("1", "1", "2"):
            monkeypatch.setenv("GRIDENGINE_SUBMITTER_TEST", value)
            executor.submit(square, 2).result()
    first, same, other = (entry.function.digest for entry in scheduler.dispatcher.entries)
    assert first == same != other


class State:
    """A state of the caller. When two equal ones are compared first, another thread submits."""

    def __init__(self, name: str, meanwhile: list[Callable[[], object]]) -> None:
        self._name, self._meanwhile = name, meanwhile

    def __eq__(self, other: object) -> bool:
        equal = isinstance(other, State) and self._name == other._name
        while equal and self._meanwhile:
            self._meanwhile.pop()()
        return equal

    __hash__ = None  # type: ignore[assignment]


def test_threads_that_carry_different_states_do_not_share_pickled_functions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    present, meanwhile = ["ours"], list[Callable[[], object]]()
    monkeypatch.setattr(submitter, "CARRIED", [None])
    monkeypatch.setattr(submitter, "present_carried", lambda: (State(present[0], meanwhile),))
    with gridengine.Executor(scheduler=FakeScheduler()) as executor:

        def submitted_in(state: str) -> Any:
            present[0] = state
            future: Any = executor.submit(square, 2)
            present[0] = "ours"
            executor.kill(future)
            return future.template

        known = submitted_in("ours")
        meanwhile.append(lambda: submitted_in("theirs"))
        assert submitted_in("ours") is known
        assert not meanwhile
