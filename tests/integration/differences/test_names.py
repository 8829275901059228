"""Names, methods and arguments: those of the standard library."""

from __future__ import annotations

import concurrent.futures
import inspect
import itertools
import multiprocessing.pool
from collections.abc import Iterable

import pytest

import gridengine


def lacks(ours: type, theirs: type) -> set[str]:
    """Return what of theirs ours has not: methods, attributes, and arguments in their order."""
    missing = {name for name in dir(theirs) if name[0] != "_" and not hasattr(ours, name)}
    for name in {"__init__", *(name for name in dir(theirs) if name[0] != "_")} - missing:
        if callable(getattr(theirs, name)):
            wanted, had = (
                list(inspect.signature(getattr(kind, name)).parameters) for kind in (theirs, ours)
            )
            missing |= {f"{name}({one})" for one, other in pairs(wanted, had) if one != other}
    return missing


def pairs(wanted: list[str], had: list[str]) -> Iterable[tuple[str, str | None]]:
    return itertools.zip_longest(wanted, had[: len(wanted)])


@pytest.mark.promise
@pytest.mark.parametrize(
    ("ours", "theirs", "lacking"),
    [
        (gridengine.Executor, concurrent.futures.ProcessPoolExecutor, set()),
        (gridengine.Pool, multiprocessing.pool.Pool, {"Process", "__init__(context)"}),
        (gridengine.Job, multiprocessing.Process, set()),
    ],
)
def test_methods_and_arguments_are_those_of_the_standard_library(
    ours: type, theirs: type, lacking: set[str]
) -> None:
    assert lacks(ours, theirs) == lacking
