"""What a module offers under a name and nobody can pickle: it travels by that name."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import gridengine

HELPERS = """
import threading

class Session:
    def __init__(self):
        self.lock = threading.Lock()

lock = threading.Lock()
session = Session()
file = open(__file__)
later = None
"""


@pytest.fixture
def helpers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module beside the script."""
    (tmp_path / "helpers_of_script.py").write_text(HELPERS)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("helpers_of_script")
    yield module
    module.file.close()
    monkeypatch.delitem(importlib.sys.modules, "helpers_of_script")  # type: ignore[attr-defined]


def imported(name: str) -> object:
    return getattr(importlib.import_module("helpers_of_script"), name)


@pytest.mark.parametrize("name", ["lock", "session", "file"])
def test_an_unpicklable_object_of_a_module_is_found_there_by_its_name(
    helpers: ModuleType, name: str
) -> None:
    offered = getattr(helpers, name)
    with gridengine.ProcessScheduler(1) as scheduler:
        captured = gridengine.starmap(lambda: offered is imported(name), [()], scheduler=scheduler)
        argument = gridengine.map(lambda one: one is imported(name), [offered], scheduler=scheduler)
        [back] = gridengine.starmap(lambda: imported(name), [()], scheduler=scheduler)
    assert (captured, argument) == ([True], [True])
    assert back is offered


@pytest.mark.promise
def test_an_object_that_the_script_put_into_a_module_is_named_where_missing(
    helpers: ModuleType,
) -> None:
    helpers.later = helpers.Session()
    with (
        gridengine.ProcessScheduler(1) as scheduler,
        pytest.raises(gridengine.PicklingError, match=r"helpers_of_script\.later"),
    ):
        gridengine.map(type, [helpers.later], scheduler=scheduler)
