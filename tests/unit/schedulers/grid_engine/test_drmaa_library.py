"""Calls of the DRMAA library, on one that is played. The real one: `tests/integration/grid_engine`,
and `tests/support/drmaa_library.c`.
"""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from gridengine.schedulers.grid_engine.drmaa_library import exit_information, names, run_bulk


class ExitTimeoutException(Exception):
    """As the package's."""


class InvalidJobException(Exception):
    """As the package's."""


class Values(ctypes.Structure):
    """As the package's, of which nothing is known."""


class Library:
    """A library that answers each function as a test says."""

    drmaa_attr_values_t = drmaa_job_ids_t = Values

    def __init__(self) -> None:
        self.fault: Exception | None = None
        self.facts: dict[str, int | str] = {}
        self.ids: list[str] = []
        self.released = 0

    def call(self, function: Callable[..., object], *arguments: Any) -> object:
        """As the package's `c`."""
        return function(*arguments)

    def drmaa_wait(self, job: bytes, *arguments: Any) -> None:
        if self.fault is not None:
            raise self.fault

    def __getattr__(self, function: str) -> Callable[..., None]:
        """One of the functions that tell a fact."""
        name = function.removeprefix("drmaa_wif").removeprefix("drmaa_wexit")

        def tell(answer: Any, status: Any) -> None:
            answer._obj.value = self.facts.get(name, 0)

        return tell

    def drmaa_wtermsig(self, name: Any, size: int, status: Any) -> None:
        name.value = str(self.facts["signal"]).encode()

    def drmaa_run_bulk_jobs(self, ids: Any, job: Any, start: int, end: int, step: int) -> None:
        if self.fault is not None:
            raise self.fault
        self.ids = [f"7.{number}" for number in range(start, min(end, 5) + 1, step)]

    def drmaa_get_next_job_id(self, ids: Any, name: Any, size: int) -> None:
        if not self.ids:
            raise StopIteration
        name.value = self.ids.pop(0).encode()

    def drmaa_release_job_ids(self, ids: Any) -> None:
        self.released += 1


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    one = Library()
    package = types.ModuleType("drmaa")
    helpers = types.SimpleNamespace(c=one.call, adapt_rusage=lambda usage: {"cpu": "1.0"})
    errors = types.SimpleNamespace(
        ExitTimeoutException=ExitTimeoutException, InvalidJobException=InvalidJobException
    )
    for name, part in (("wrappers", one), ("helpers", helpers), ("errors", errors)):
        setattr(package, name, part)
        monkeypatch.setitem(sys.modules, f"drmaa.{name}", part)
    monkeypatch.setitem(sys.modules, "drmaa", package)
    return one


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"exited": 1, "status": 3}, {"status": 3}),
        ({"exited": 1, "status": 0}, {"status": 0}),
        ({"signaled": 1, "signal": "SIGKILL"}, {"signal": "SIGKILL"}),
        ({"aborted": 1, "exited": 1, "status": 3}, {"aborted": True}),
        ({}, {}),
    ],
)
def test_how_a_job_ended_is_told_with_what_it_used(
    library: Library, facts: dict[str, int | str], told: dict[str, object]
) -> None:
    library.facts = facts
    assert exit_information("7.1") == {**told, "usage": {"cpu": "1.0"}}


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (ExitTimeoutException(), None),
        (InvalidJobException("code 18: no such job"), {"words": "code 18: no such job"}),
        (Exception("code 24: no usage"), {"aborted": True, "usage": {}}),
    ],
)
def test_a_job_of_which_there_is_no_record_is_told_apart_from_one_that_runs(
    library: Library, fault: Exception, told: dict[str, object] | None
) -> None:
    library.fault = fault
    assert exit_information("7.1") == told


def test_other_errors_are_raised(library: Library) -> None:
    library.fault = Exception("code 2: DRM communication failure")
    with pytest.raises(Exception, match="communication failure"):
        exit_information("7.1")


@pytest.mark.parametrize(("count", "ids"), [(1, ["7.1"]), (3, ["7.1", "7.2", "7.3"])])
def test_the_tasks_of_an_array_have_ids_in_their_order(
    library: Library, count: int, ids: list[str]
) -> None:
    assert run_bulk(None, count) == ids
    assert library.released == 1


def test_of_a_list_that_is_shorter_all_are_told(library: Library) -> None:
    assert len(run_bulk(None, 9)) == 5
    assert library.released == 1


def test_a_list_that_was_not_made_is_not_freed(library: Library) -> None:
    library.fault = Exception("refused")
    with pytest.raises(Exception, match="refused"):
        run_bulk(None, 3)
    assert library.released == 0


def test_it_says_what_it_is() -> None:
    session = types.SimpleNamespace(drmsInfo="SGE 8.1", drmaaImplementation="libdrmaa 1.0")
    assert names(session) == {"system": "SGE 8.1", "implementation": "libdrmaa 1.0"}
