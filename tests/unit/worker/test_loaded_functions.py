"""What calls that a runner makes were given, in words."""

from __future__ import annotations

from typing import Any

import pytest

from gridengine.serialize.itemwise_unpickler import Unloadable
from gridengine.serialize.payload import FULL, SINGLE, STAR
from gridengine.wire.messages import Assignment
from gridengine.worker.loaded_functions import arguments_text


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


def test_a_job_that_was_pickled_as_a_whole_is_no_argument() -> None:
    assert not words_of(object(), SINGLE, watched=True)
    assert words_of(((1,), {}), FULL, watched=True) == "argument 1"
