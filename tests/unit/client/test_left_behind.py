"""Errors that name a variable of the script which only a text names."""

from __future__ import annotations

import sys
import types

import pytest

from gridengine.client.left_behind import note_on_left_behind


class CatalogError(Exception):
    """Like the error of a query."""


class Textless(Exception):
    def __str__(self) -> str:
        raise AttributeError


@pytest.fixture(autouse=True)
def main(monkeypatch: pytest.MonkeyPatch) -> None:
    main = types.ModuleType("__main__")
    vars(main).update(limit=1, frame=[])
    monkeypatch.setitem(sys.modules, "__main__", main)


def notes(error: BaseException) -> list[str]:
    note_on_left_behind(error)
    return getattr(error, "__notes__", [])


@pytest.mark.parametrize(
    "error",
    [
        NameError("name 'limit' is not defined"),
        CatalogError("Catalog Error: Table with name limit does not exist!"),
        CatalogError("relation 'limit' was not found"),
        CatalogError("NameError: name 'limit' is not defined\n  y ~ limit(x)"),
    ],
    ids=repr,
)
def test_an_error_of_a_missing_name_tells_of_the_scripts_variable(error: BaseException) -> None:
    [note] = notes(error)
    assert "the script has a variable limit" in note


def test_the_text_that_an_error_had_in_the_call_counts() -> None:
    error = Textless()
    error.__dict__["__notes__"] = ["its text in the call: name 'frame' is not defined"]
    assert "the script has a variable frame" in notes(error)[1]


@pytest.mark.parametrize(
    "error",
    [
        NameError("name 'other' is not defined"),
        NameError("name '__name__' is not defined"),
        CatalogError("the limit is too low"),
        FileNotFoundError(2, "No such file or directory", "limit"),
        KeyError("column 'limit' not found"),
        Textless(),
    ],
    ids=["another name", "a name of Python", "nothing missing", "a file", "a key", "no text"],
)
def test_other_errors_get_no_note(error: BaseException) -> None:
    assert not notes(error)
