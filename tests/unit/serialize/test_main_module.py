"""Tests of the `__main__` that user code finds in a runner."""

from __future__ import annotations

import multiprocessing
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from gridengine.serialize import pickling
from gridengine.serialize.main_module import CallersMain, enter, forget


class Script:
    """A class that says it is of a script."""

    class Part: ...

    class Other: ...


def helper(x: int) -> int:
    return x


for one in (Script, Script.Part, Script.Other, helper):
    one.__module__ = "__main__"


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> CallersMain:
    made = CallersMain()
    enter(made, b"first")
    monkeypatch.setitem(sys.modules, "__main__", made)
    return made


def load(obj: object) -> Any:
    return pickling.load(pickling.dump(obj))


def in_main(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as it would be in a script, with what it refers to."""
    names = {"__name__": "__main__", "helper": helper, "FACTOR": 3}
    made = types.FunctionType(function.__code__, names, "calls")
    made.__module__, made.__qualname__ = "__main__", "calls"
    return made


def test_what_came_by_value_is_found_by_its_name(main: CallersMain) -> None:
    made = load(in_main(lambda x: helper(x) + FACTOR))  # type: ignore[name-defined]  # noqa: F821
    assert main.calls is made
    assert main.helper is made.__globals__["helper"]
    assert main.FACTOR == 3
    assert load(Script) is main.Script


def test_a_class_that_was_written_within_another_is_found_by_both_names(main: CallersMain) -> None:
    assert load(Script.Part) is main.Script.Part
    assert load(Script.Other) is main.Script.Other
    assert main.Script.Part is Script.Part
    assert load(Script) is main.Script


@pytest.mark.parametrize("name", ["enter", "forget", "add", "note"])
def test_any_name_may_be_a_callers(main: CallersMain, name: str) -> None:
    mine = types.FunctionType(helper.__code__, {"__name__": "__main__"}, name)
    mine.__module__, mine.__qualname__ = "__main__", name
    assert getattr(main, name, None) is None
    assert load(mine) is getattr(main, name)


def test_each_function_has_its_own_names(main: CallersMain) -> None:
    first = load(helper)
    enter(main, b"second")
    with pytest.raises(AttributeError):
        _ = main.helper
    second = load(helper)
    assert main.helper is second
    enter(main, b"first")
    assert main.helper is first


def test_names_of_a_forgotten_function_are_gone(main: CallersMain) -> None:
    load(helper)
    forget(main, b"first")
    enter(main, b"first")
    assert not hasattr(main, "helper")


def test_names_of_other_modules_are_not_added(main: CallersMain) -> None:
    def local() -> None: ...

    load([local, types.SimpleNamespace])
    assert not hasattr(main, "local")
    assert not hasattr(main, "SimpleNamespace")


def test_names_are_hidden_from_children_that_are_no_forks(
    main: CallersMain, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(helper)
    monkeypatch.setattr(
        multiprocessing, "active_children", lambda: [types.SimpleNamespace(_start_method="fork")]
    )
    assert hasattr(main, "helper")
    monkeypatch.setattr(
        multiprocessing, "active_children", lambda: [types.SimpleNamespace(_start_method="spawn")]
    )
    assert not hasattr(main, "helper")


def test_outside_of_a_runner_nothing_is_added() -> None:
    before = dict(vars(sys.modules["__main__"]))
    load([helper, Script])
    assert vars(sys.modules["__main__"]) == before
