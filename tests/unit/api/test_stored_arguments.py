"""The arguments of a run's calls, by the names of the parameters."""

from __future__ import annotations

import functools
import os
from typing import Any, ClassVar

import pytest

import gridengine
from gridengine.api.named_runs import CallOfRun
from gridengine.errors import VersionMismatch
from gridengine.serialize import pickling
from tests.support.fake_dispatcher import FakeScheduler
from tests.support.named_calls import Notes, square


def first(a: Any, b: Any = None, *rest: Any, **more: Any) -> Any:
    return a


async def awaited(a: int) -> int:
    return a


def prepare() -> None:
    """Prepare nothing."""


class Gone:
    """A class whose objects cannot be rebuilt any more once the variable is set."""

    def __reduce__(self) -> Any:
        return rebuilt, ()


def rebuilt() -> Any:
    if os.environ.get("GRIDENGINE_TEST_GONE"):
        raise ModuleNotFoundError("No module named 'gone'")


def make(notes: Notes, f: Any, calls: Any, **options: Any) -> None:
    gridengine.starmap(
        f, calls, scheduler=FakeScheduler(), reraise=False, **notes.options, **options
    )


def stored(notes: Notes) -> list[CallOfRun]:
    return gridengine.run_named("run", journal=notes.journal).calls()


def arguments(notes: Notes, f: Any, calls: Any, **options: Any) -> list[dict[str, Any] | None]:
    make(notes, f, calls, **options)
    return [one.arguments for one in stored(notes)]


def test_a_call_has_its_number_its_arguments_by_name_and_its_result(notes: Notes) -> None:
    notes.bad(1)
    make(notes, square, [(0,), (1,), (2,)])
    calls = stored(notes)
    assert [one.number for one in calls] == [0, 1, 2]
    assert [one.arguments for one in calls] == [{"x": 0}, {"x": 1}, {"x": 2}]
    assert [str(one.result) for one in calls] == ["0", "1 is bad", "4"]


def test_several_arguments_for_one_parameter_are_told_and_defaults_are_not(notes: Notes) -> None:
    assert arguments(notes, first, [(1,), (1, 2, 3, 4)]) == [
        {"a": 1},
        {"a": 1, "b": 2, "rest": (3, 4)},
    ]


def test_keywords_have_their_own_names(notes: Notes) -> None:
    with gridengine.Executor(scheduler=FakeScheduler(), **notes.options) as executor:
        executor.submit(first, 1, b=2, c=3)
    assert stored(notes)[0].arguments == {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize(
    ("f", "options"),
    [
        (awaited, {}),
        (first, {"seed": 1}),
        (first, {"initializer": prepare}),
        (awaited, {"seed": 1, "initializer": prepare}),
        (functools.partial(first, b=3), {}),
    ],
)
def test_a_wrapper_hides_no_argument_names(notes: Notes, f: Any, options: dict[str, Any]) -> None:
    assert arguments(notes, f, [(1,), (2,)], **options) == [{"a": 1}, {"a": 2}]


def test_a_call_with_too_many_arguments_has_them_by_their_places(notes: Notes) -> None:
    assert arguments(notes, square, [(1,), (2, 3)]) == [
        {"x": 1},
        {"argument1": 2, "argument2": 3},
    ]


@pytest.mark.parametrize(
    "error", [VersionMismatch("Python 2"), ImportError("No module"), SystemExit("over")]
)
def test_a_function_that_cannot_be_loaded_has_its_arguments_numbered_with_a_warning(
    notes: Notes,
    error: BaseException,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def load(payload: Any) -> Any:
        raise error

    make(notes, square, [(1,), (2,)])
    monkeypatch.setattr(pickling, "load_function", load)
    assert [one.arguments for one in stored(notes)] == [{"argument1": 1}, {"argument1": 2}]
    [told] = caplog.messages
    assert str(error) in told


def test_arguments_that_cannot_be_rebuilt_leave_the_others_known(
    notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(notes, square, [(1,), (Gone(),), (3,)], chunksize=3)
    monkeypatch.setenv("GRIDENGINE_TEST_GONE", "1")
    assert [one.arguments for one in stored(notes)] == [{"x": 1}, None, {"x": 3}]


def test_arguments_that_are_too_large_to_be_stored_are_not_known(notes: Notes) -> None:
    assert arguments(notes, first, [(b"x" * 2_000_000,)]) == [None]


class Counted(int):
    """A number that notes how often it was rebuilt."""

    rebuilt: ClassVar[list[int]] = []

    def __reduce__(self) -> Any:
        return recounted, (int(self),)


def recounted(number: int) -> Counted:
    Counted.rebuilt.append(number)
    return Counted(number)


def test_the_arguments_of_a_block_are_rebuilt_once(notes: Notes) -> None:
    notes.bad(1, 3)
    make(notes, square, [(Counted(x),) for x in range(5)], chunksize=5)
    Counted.rebuilt.clear()
    assert len(stored(notes)) == 5
    assert Counted.rebuilt == [0, 1, 2, 3, 4]
