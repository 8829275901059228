"""Functions taken apart and put together."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import pytest

from gridengine.serialize import functions, pickling
from gridengine.serialize.payload import FULL


def through(obj: Any) -> Any:
    return pickling.load(pickling.dump(obj))


def test_a_function_by_value_is_a_new_one_with_only_the_global_variables_it_names() -> None:
    function = through(lambda: FULL)
    assert function() == FULL
    assert set(function.__globals__) <= {
        "FULL",
        "__name__",
        "__package__",
        "__file__",
        "__builtins__",
    }


def test_an_empty_closure_cell_stays_empty() -> None:
    def outer() -> Callable[[], int]:
        def inner() -> int:
            return later

        if not outer:
            later = 1
        return inner

    with pytest.raises(NameError):
        through(outer())()


def test_lines_that_no_file_has_are_noted_and_lines_of_files_are_not() -> None:
    functions.note_source("<nowhere 7>", 3, ["third\n", "fourth\n"])
    functions.note_source("<nowhere 7>", 1, ["first\n"])
    linecache.checkcache()
    assert [linecache.getline("<nowhere 7>", number) for number in (1, 3, 4)] == [
        "first\n",
        "third\n",
        "fourth\n",
    ]
    functions.note_source(__file__, 1, ["wrong\n"])
    assert linecache.getline(__file__, 1).startswith('"""')
