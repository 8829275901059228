"""What travels by name, and what the receiver has of its own."""

from __future__ import annotations

import functools
import io
import sys
from typing import Any

import pytest

from gridengine.errors import WorkerCrashed
from gridengine.serialize import pickling


def through(obj: Any) -> Any:
    return pickling.load(pickling.dump(obj))


def test_what_can_be_imported_travels_by_name() -> None:
    assert through(functools.reduce) is functools.reduce
    assert through(WorkerCrashed) is WorkerCrashed
    assert len(pickling.dump(pickling.dump_calls)[0]) < 100


def test_the_standard_streams_are_those_of_the_receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))
    payload = pickling.dump(sys.stdout)
    monkeypatch.setattr(sys, "stdout", other := io.StringIO())
    assert pickling.load(payload) is other


@pytest.mark.parametrize(
    "name",
    [
        "argument_snapshot.restore",
        "by_value.make_lru_cache",
        "byte_code.load_code",
        "classes.fill_classes",
        "classes.find_class",
        "classes.make_class",
        "exceptions.fill_exception",
        "exceptions.load_optional",
        "exceptions.make_exception",
        "expressions.compute",
        "expressions.gather",
        "expressions.with_fields",
        "functions.fill_cell",
        "functions.fill_function",
        "functions.make_function",
        "lazy_imports.make",
        "mapped_files.open_again",
        "named_objects.find_offered",
        "namespaces.find",
        "pickling.RetriedFunction",
        "sentinels.find",
        "shared_objects.find",
        "shared_objects.identity",
        "type_parameters.Deferred",
        "type_parameters.fill",
        "type_parameters.fill_all",
        "type_parameters.make_alias",
        "type_parameters.make_lazy_variable",
    ],
)
def test_what_stored_pickles_name_is_found_where_it_was(name: str) -> None:
    """Files of named runs have pickles of older versions of the package."""
    module, _, function = name.partition(".")
    stored = f"cgridengine.serialize.{module}\n{function}\n.".encode()  # GLOBAL, STOP
    assert pickling.load([stored]).__qualname__ == function
