"""The caller's own modules: which are watched, and what counts as a change."""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from gridengine.serialize.module_changes import OwnModules, is_own

NUMBERS = itertools.count()
Make = Callable[[str], ModuleType]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Return a function that imports a module of this text, unlike any other."""
    monkeypatch.syspath_prepend(tmp_path)
    names: list[str] = []

    def one(text: str) -> ModuleType:
        names.append(f"own_module_{next(NUMBERS)}")
        (tmp_path / f"{names[-1]}.py").write_text(text)
        importlib.invalidate_caches()
        return importlib.import_module(names[-1])

    yield one
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def watch() -> Callable[[], int]:
    """Return a function that checks, and returns how often something had changed."""
    own = OwnModules()

    def looked() -> int:
        own.check()
        return own.generation

    return looked


def file_of(module: ModuleType) -> Path:
    return Path(str(module.__file__))


def test_what_is_new_or_as_it_was_is_no_change(make: Make, watch: Callable[[], int]) -> None:
    assert [watch(), make("x = 1"), watch(), watch()][::2] == [0, 0]
    assert watch() == 0


@pytest.mark.parametrize(("text", "later"), [("x = 22", 0), ("x = 2", 1)])
def test_an_edit_that_changes_the_size_or_the_time_is_a_change_once(
    make: Make, watch: Callable[[], int], text: str, later: int
) -> None:
    file = file_of(make("x = 1"))
    watch()
    changed = file.stat().st_mtime_ns + later
    file.write_text(text)
    os.utime(file, ns=(changed, changed))
    assert (watch(), watch()) == (1, 1)


def test_a_reload_is_a_change_though_the_file_is_as_it_was(
    make: Make, watch: Callable[[], int]
) -> None:
    module = make("x = 1")
    watch()
    importlib.reload(module)
    assert (watch(), watch()) == (1, 1)


def test_a_module_that_is_imported_anew_is_a_change(make: Make, watch: Callable[[], int]) -> None:
    name = make("x = 1").__name__
    watch()
    del sys.modules[name]
    assert watch() == 0
    importlib.import_module(name)
    assert (watch(), watch()) == (1, 1)


def test_a_module_that_comes_when_another_has_gone_is_watched(
    make: Make, watch: Callable[[], int]
) -> None:
    name = make("x = 1").__name__
    watch()
    del sys.modules[name]
    file = file_of(make("x = 1"))
    watch()
    file.write_text("x = 22")
    assert watch() == 1


def test_a_file_that_is_gone_is_a_change_and_so_is_its_return(
    make: Make, watch: Callable[[], int]
) -> None:
    file = file_of(make("x = 1"))
    watch()
    file.unlink()
    assert (watch(), watch()) == (1, 1)
    file.write_text("x = 1")
    assert watch() == 2


@pytest.mark.parametrize(
    "module",
    [os, importlib, pytest, sys.modules["gridengine.errors"]],
    ids=["the library", "a package of it", "the environment", "this one"],
)
def test_modules_of_the_environment_are_not_checked(module: ModuleType) -> None:
    assert not is_own(str(module.__file__))


def test_a_module_that_is_loaded_when_first_used_is_not_loaded_to_look_at_it(
    make: Make, watch: Callable[[], int], tmp_path: Path
) -> None:
    from importlib.util import LazyLoader, find_spec, module_from_spec

    name = make("x = 1").__name__
    del sys.modules[name]
    (tmp_path / f"{name}.py").write_text(
        f"from pathlib import Path; Path({str(tmp_path / 'loaded')!r}).touch()"
    )
    importlib.invalidate_caches()
    spec = find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    spec.loader = LazyLoader(spec.loader)
    sys.modules[name] = lazy = module_from_spec(spec)
    spec.loader.exec_module(lazy)
    watch()
    watch()
    assert not (tmp_path / "loaded").exists()


@pytest.mark.skipif(sys.version_info < (3, 15), reason="Python imports eagerly")
@pytest.mark.parametrize("imported", [False, True])
def test_an_edit_of_what_is_imported_when_it_is_used_is_a_change_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watch: Callable[[], int], imported: bool
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    name = f"own_module_{next(NUMBERS)}"
    (tmp_path / f"{name}.py").write_text("x = 1")
    exec(f"lazy import {name}", {"__name__": "__main__"})
    assert watch() == 0
    assert name not in sys.modules
    (tmp_path / f"{name}.py").write_text("x = 22")
    if imported:
        importlib.import_module(name)
    assert (watch(), watch()) == (1, 1)
    sys.modules.pop(name, None)
