"""The public names: that type checkers and the interpreter read the same of them."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import pytest

import gridengine
from gridengine import errors


def imported(body: list[ast.stmt]) -> dict[str, str]:
    """Return the names that these statements import, and from which modules of ours."""
    return {
        name.asname or name.name: (statement.module or "").removeprefix("gridengine").lstrip(".")
        for statement in body
        if isinstance(statement, ast.ImportFrom)
        for name in statement.names
    }


def test_type_checkers_are_told_the_same_names_as_the_interpreter() -> None:
    tree = ast.parse(Path(gridengine.__file__).read_text())
    [block] = [statement for statement in tree.body if isinstance(statement, ast.If)]
    packages = dict.fromkeys(("resources", "schedulers"), "")
    assert imported(block.body) == gridengine._MODULES | packages


@pytest.mark.parametrize("name", gridengine.__all__)
def test_a_public_name_is_there_listed_and_found_again_by_pickle(name: str) -> None:
    value = getattr(gridengine, name)
    assert name in dir(gridengine)
    if isinstance(value, type):
        assert pickle.loads(pickle.dumps(value)) is value


def test_the_public_errors_are_those_that_users_may_meet() -> None:
    kinds = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert kinds & set(gridengine.__all__) == kinds - {
        "_PicklingError",
        "MessageTooLong",
        "Sequence",
    }


def test_a_private_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'gridengine' has no attribute 'nosuch'"):
        gridengine.nosuch  # noqa: B018


def test_a_completion_offers_the_public_names_alone() -> None:
    offered = [name for name in dir(gridengine) if not name.startswith("__")]
    assert offered == [name for name in gridengine.__all__ if not name.startswith("__")]
