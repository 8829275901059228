"""What calls that a runner makes were given, in words; what is let go of with a function."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from gridengine.call_context.checkpoints import ResumedFunction
from gridengine.call_context.random_streams import Seed, Seeded
from gridengine.call_context.shown_arguments import arguments_text
from gridengine.client.initializer import Initializer, Prepared, seeded
from gridengine.serialize.itemwise_unpickler import Unloadable
from gridengine.serialize.payload import FULL, SINGLE, STAR
from gridengine.serialize.users_modules import CallersMain
from gridengine.wire.messages import Assignment, Define
from gridengine.worker.loaded_functions import LoadedFunctions, resumed


def words_of(call: Any, form: int, *, watched: bool = False) -> str:
    assignment = Assignment(
        run=1, task=1, function=b"", start=0, stop=1, attempt=1, form=form, watched=watched
    )
    return arguments_text(call, assignment)


@pytest.mark.parametrize(
    ("call", "form", "text"),
    [
        (-1.5, SINGLE, "argument -1.5"),
        ((1, 2), SINGLE, "argument (1, 2)"),
        ((1, "a"), STAR, "arguments 1, 'a'"),
        ((), STAR, "no argument"),
        (((1,), {"b": [2]}), FULL, "arguments 1, b=[2]"),
        (((), {"b": 2}), FULL, "argument b=2"),
        (tuple(range(99)), STAR, "arguments 0, 1, 2, 3, 4, 5, ..."),
        (Unloadable(ValueError()), SINGLE, ""),
    ],
)
def test_a_call_is_told_by_its_arguments(call: Any, form: int, text: str) -> None:
    assert words_of(call, form) == text


def test_a_call_with_a_seed_is_told_without_its_number() -> None:
    assignment = Assignment(run=1, task=1, function=b"", start=0, stop=1, attempt=1, form=STAR)
    assert arguments_text((-1.5, 7), assignment, Seeded(abs, Seed(1))) == "argument -1.5"


class Stoppable:
    def __call__(self, x: int) -> int:
        return x

    def checkpoint(self, x: int) -> Any:
        return self


def test_an_object_makes_its_next_attempt_also_with_a_seed_and_an_initializer() -> None:
    initializer = Initializer(None, (), None)
    for one in (resumed(seeded(Stoppable(), Seed(1))), resumed(Prepared(Stoppable(), initializer))):
        assert type(one._function) is ResumedFunction
    both = resumed(seeded(Prepared(Stoppable(), initializer), Seed(1)))
    assert type(both._function._function) is ResumedFunction
    assert both(5, 0) == 5
    assert resumed(abs) is abs


def test_a_job_that_was_pickled_as_a_whole_is_no_argument() -> None:
    assert not words_of(object(), SINGLE, watched=True)
    assert words_of(((1,), {}), FULL, watched=True) == "argument 1"


@pytest.fixture
def collections(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    made: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: made.append(1))
    return made


def forget_large(*, result: bool) -> None:
    functions = LoadedFunctions(CallersMain())
    place = {"/proc/self/fd/0": [(0, 0, 1 << 20)]}
    functions.define(Define(b"name", [], b"", 0, result=result, blocks=place), [])
    functions.forget([b"name"])


def test_the_memory_of_a_large_function_goes_with_it(collections: list[int]) -> None:
    forget_large(result=False)
    assert collections


def test_garbage_is_not_looked_for_with_each_large_result(collections: list[int]) -> None:
    forget_large(result=True)
    assert not collections
