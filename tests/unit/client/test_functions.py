"""Functions as they travel, and what calls find around them."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

import pytest

import gridengine
from gridengine.client import functions
from gridengine.client.functions import function_of_map, make_function


def test_a_small_function_is_pickled_once_for_several_maps() -> None:
    def f() -> int:
        return 1

    assert function_of_map(f) is function_of_map(f)


def test_a_large_function_is_not_kept_from_one_map_to_the_next() -> None:
    f = functools.partial(len, bytes(functions.SMALL_BYTES))
    assert function_of_map(f) is not function_of_map(f)


def test_a_function_that_holds_shared_objects_is_not_kept_from_one_map_to_the_next() -> None:
    f = functools.partial(len, gridengine.share([1]))
    assert function_of_map(f) is not function_of_map(f)


def test_a_function_of_a_map_runs_where_and_with_the_path_that_the_map_was_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def f() -> int:
        return 1

    before = function_of_map(f)
    monkeypatch.chdir(tmp_path)
    assert function_of_map(f).directory == os.fsencode(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "mine"))
    assert function_of_map(f).path[0] == os.fsencode(tmp_path / "mine")
    assert function_of_map(f).digest != before.digest


def test_calls_of_a_map_have_the_environment_in_which_it_was_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def f() -> int:
        return 1

    before = function_of_map(f)
    assert function_of_map(f) is before
    monkeypatch.setenv("A_VARIABLE", "x=y")
    monkeypatch.setattr(sys, "argv", ["script.py", "-v"])
    caller = function_of_map(f).caller
    assert caller is not None
    assert b"A_VARIABLE=x=y" in caller.variables.split(b"\0")
    assert caller.arguments == (b"script.py", b"-v")
    assert function_of_map(f).digest != before.digest


def test_a_function_of_any_name_can_travel() -> None:
    def f() -> None: ...

    f.__qualname__ = "caf\xe9 \udcff"
    assert make_function(f).name == "caf\xe9 \\udcff"


def test_a_function_has_the_umask_with_which_it_was_pickled() -> None:
    masks = 0o027, 0o077
    before, made = os.umask(0), []
    try:
        for mask in masks:
            os.umask(mask)
            made.append(make_function(abs))
    finally:
        os.umask(before)
    assert tuple(one.caller and one.caller.umask for one in made) == masks
    assert made[0].digest != made[1].digest
