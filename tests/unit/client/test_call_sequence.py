"""Calls that are made as one."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

import pytest

from gridengine.call_context.current_call import GVAR
from gridengine.client.call_sequence import CallSequence, Step, Value


class Thing:
    pass


def test_a_value_is_let_go_of_after_the_last_that_needs_it() -> None:
    made: list[weakref.ref[Thing]] = []
    alive = []

    def make(*_: Any) -> Thing:
        alive.append(sum(one() is not None for one in made))
        made.append(weakref.ref(thing := Thing()))
        return thing

    steps = [Step(0, [])] + [Step(0, [Value(n)], None, [n]) for n in range(5)]
    CallSequence((make,))(steps)
    assert max(alive) <= 2


def test_an_error_names_the_node_that_raised_it() -> None:
    def fail(x: int) -> None:
        raise ValueError(x)

    steps = [Step(0, [1], name="'a'"), Step(1, [Value(0)]), Step(0, [Value(1)], name="'b'")]
    with pytest.raises(ValueError, match="1") as caught:
        CallSequence((abs, fail))(steps)
    assert caught.value.__notes__ == ["in node 'b', argument 1"]


@pytest.mark.parametrize("fails", [False, True])
def test_the_call_in_progress_is_visible_when_the_process_dies(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[int] = []
    monkeypatch.setattr(GVAR, "note_step", noted.append)

    def call(x: int) -> int:
        noted.append(x)
        return 1 // (x if fails else 1)

    steps = [Step(0, [10]), Step(0, [0]), Step(0, [30], name="a")]
    with pytest.raises(ZeroDivisionError) if fails else contextlib.nullcontext():
        CallSequence((call,))(steps)
    assert noted == ([1, 10, 2, 0, 0] if fails else [1, 10, 2, 0, 3, 30, 0])


def test_a_sequence_is_named_by_its_functions() -> None:
    assert CallSequence((abs, max)).__qualname__ == "abs and max"
    assert CallSequence((abs, max, min, sum)).__qualname__ == "abs and max and others"
