"""What calls that a runner makes were given, in words; what is let go of with a function."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gridengine.call_context.checkpoints import ResumedFunction
from gridengine.call_context.environment import SiteEnvironment
from gridengine.call_context.random_streams import Seed, Seeded
from gridengine.call_context.shown_arguments import arguments_text
from gridengine.client.initializer import Initializer, Prepared, seeded
from gridengine.serialize import pickling
from gridengine.serialize.itemwise_unpickler import Unloadable
from gridengine.serialize.payload import FULL, SINGLE, STAR
from gridengine.serialize.users_modules import CallersMain
from gridengine.wire.messages import Assignment, Define
from gridengine.worker import loaded_functions
from gridengine.worker.loaded_functions import (
    MOST_SET_ASIDE,
    CallersModules,
    LoadedFunctions,
    modules_before_fork,
    resumed,
)
from tests.support.cffi_library import CffiLibrary


def words_of(call: Any, form: int, *, watched: bool = False) -> str:
    assignment = Assignment(
        run=1, task=1, function=b"", start=0, stop=1, attempt=1, form=form, watched=watched
    )
    return arguments_text(call, assignment)


@pytest.mark.parametrize(
    ("call", "form", "text"),
    [
        (-1.5, SINGLE, "argument -1.5"),
        ((1, 2), SINGLE, "argument (1, 2)"),
        ((1, "a"), STAR, "arguments 1, 'a'"),
        ((), STAR, "no argument"),
        (((1,), {"b": [2]}), FULL, "arguments 1, b=[2]"),
        (((), {"b": 2}), FULL, "argument b=2"),
        (tuple(range(99)), STAR, "arguments 0, 1, 2, 3, 4, 5, ..."),
        (Unloadable(ValueError()), SINGLE, ""),
    ],
)
def test_a_call_is_told_by_its_arguments(call: Any, form: int, text: str) -> None:
    assert words_of(call, form) == text


def test_a_call_with_a_seed_is_told_without_its_number() -> None:
    assignment = Assignment(run=1, task=1, function=b"", start=0, stop=1, attempt=1, form=STAR)
    assert arguments_text((-1.5, 7), assignment, Seeded(abs, Seed(1))) == "argument -1.5"


class Stoppable:
    def __call__(self, x: int) -> int:
        return x

    def checkpoint(self, x: int) -> Any:
        return self


def test_an_object_makes_its_next_attempt_also_with_a_seed_and_an_initializer() -> None:
    initializer = Initializer(None, (), None)
    for one in (resumed(seeded(Stoppable(), Seed(1))), resumed(Prepared(Stoppable(), initializer))):
        assert type(one._function) is ResumedFunction
    both = resumed(seeded(Prepared(Stoppable(), initializer), Seed(1)))
    assert type(both._function._function) is ResumedFunction
    assert both(5, 0) == 5
    assert resumed(abs) is abs


def test_a_job_that_was_pickled_as_a_whole_is_no_argument() -> None:
    assert not words_of(object(), SINGLE, watched=True)
    assert words_of(((1,), {}), FULL, watched=True) == "argument 1"


def is_garbage_gone(*, result: bool) -> bool:
    """Return whether garbage is gone once something large was forgotten."""
    functions = LoadedFunctions(CallersMain())
    place = {"/proc/self/fd/0": [(0, 0, 1 << 20)]}
    functions.define(Define(b"name", [], b"", 0, result=result, blocks=place), [])
    gc.disable()
    try:
        circle = Stoppable()
        circle.own = circle  # type: ignore[attr-defined]
        seen = weakref.ref(circle)
        del circle
        functions.forget([b"name"])
        return seen() is None
    finally:
        gc.enable()


def test_where_no_files_are_shared_a_function_is_loaded_in_the_worker_s_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    apart = SiteEnvironment({}, frozenset(), frozenset(), scratch=str(tmp_path))
    functions = LoadedFunctions(CallersMain(), apart)
    _, payload = pickling.dump_function(abs)
    functions.define(Define(b"name", [b"/caller/lib"], b"/caller", 0), payload)
    assert functions.load(b"name")[0] is abs
    assert sys.path[0] == str(Path.cwd()) == str(tmp_path)
    assert "/caller/lib" not in sys.path


def test_the_memory_of_a_large_function_goes_with_it() -> None:
    assert is_garbage_gone(result=False)


def test_garbage_is_not_looked_for_with_each_large_result() -> None:
    assert not is_garbage_gone(result=True)


Enter = Callable[[Path], None]
PREFIX = "callers_module_"
"""What is no caller's own in these tests has another name."""


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(
        loaded_functions,
        "is_own_module",
        lambda module: isinstance(module, ModuleType) and module.__name__.startswith(PREFIX),
    )
    modules_before_fork.cache_clear()
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield
    for name in [name for name in sys.modules if name.startswith(PREFIX)]:
        del sys.modules[name]


@pytest.fixture
def modules() -> CallersModules:
    return CallersModules()


@pytest.fixture
def enter(modules: CallersModules) -> Enter:
    """Return a function that has a script of this folder be the caller."""
    others = [*sys.path]

    def one(folder: Path) -> None:
        path = [str(folder), *others]
        modules.enter(path)
        sys.path[:] = path

    return one


def folder(parent: Path, name: str, **texts: str) -> Path:
    made = parent / name
    for file, text in texts.items():
        path = made / f"{PREFIX}{file.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return made


def value(name: str = "a") -> Any:
    importlib.invalidate_caches()
    return importlib.import_module(PREFIX + name).x


def test_scripts_of_two_folders_find_their_own_modules_and_their_contents(
    tmp_path: Path, enter: Enter
) -> None:
    one, other = folder(tmp_path, "one", a="x = []"), folder(tmp_path, "other", a="x = []")
    enter(one)
    first = value()
    enter(other)
    second = value()
    assert second is not first
    enter(one)
    assert value() is first
    enter(other)
    assert value() is second


def test_modules_found_by_both_paths_stay(tmp_path: Path, enter: Enter) -> None:
    enter(folder(tmp_path, "one", a="x = []"))
    first = value()
    sys.path.append(str(tmp_path / "one"))
    enter(tmp_path / "one")
    assert value() is first


def test_a_module_that_only_another_has_is_not_found(tmp_path: Path, enter: Enter) -> None:
    enter(folder(tmp_path, "one", a="x = 1"))
    value()
    enter(tmp_path / "other")
    with pytest.raises(ModuleNotFoundError):
        value()


@pytest.mark.parametrize("init", [{}, {"p____init__": "x = 1"}])
def test_packages_come_and_go_whole_with_or_without_an_init(
    tmp_path: Path, enter: Enter, init: dict[str, str]
) -> None:
    one = folder(tmp_path, "one", p__m="x = []", **init)
    other = folder(tmp_path, "other", p__m="x = []", **init)
    enter(one)
    first = value("p.m")
    enter(other)
    assert value("p.m") is not first
    enter(one)
    assert value("p.m") is first


def test_the_last_scripts_are_remembered(tmp_path: Path, enter: Enter) -> None:
    folders = [folder(tmp_path, str(n), a=f"x = [{n}]") for n in range(MOST_SET_ASIDE + 2)]
    seen = []
    for one in folders:
        enter(one)
        seen.append(value())
    enter(folders[-2])
    assert value() is seen[-2]
    enter(folders[0])
    assert value() == [0]
    assert value() is not seen[0]


def test_an_edit_has_all_imported_anew_once(
    tmp_path: Path, enter: Enter, modules: CallersModules
) -> None:
    one = folder(tmp_path, "one", a="x = 1", b=f"from {PREFIX}a import x")
    before = (one / f"{PREFIX}a.py").stat().st_mtime - 60
    for file in one.iterdir():
        os.utime(file, (before, before))
    enter(one)
    assert (value("b"), modules.refresh()) == (1, False)
    (one / f"{PREFIX}a.py").write_text("x = 22")
    assert modules.refresh()
    assert value("b") == 22
    os.utime(one / f"{PREFIX}a.py", (before, before))
    modules.refresh()
    assert (value("b"), modules.refresh()) == (22, False)


def test_an_edit_right_after_the_import_is_seen(
    tmp_path: Path, enter: Enter, modules: CallersModules
) -> None:
    """Nobody had looked at the file before it was edited."""
    one = folder(tmp_path, "one", a="x = 1")
    enter(one)
    assert value() == 1
    (one / f"{PREFIX}a.py").write_text("x = 22")
    assert modules.refresh()
    assert value() == 22


def test_packages_with_machine_code_stay(
    tmp_path: Path, enter: Enter, modules: CallersModules
) -> None:
    one = folder(tmp_path, "one", a="x = []")
    enter(one)
    first = value()
    sys.modules[f"{PREFIX}a"].__file__ = str(one / "a.abi3.so")
    enter(tmp_path / "other")
    assert value() is first


def test_a_library_of_cffi_among_a_callers_modules_is_passed_over(
    tmp_path: Path, enter: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(folder(tmp_path, "one", a="x = 1"))
    assert value() == 1
    library: Any = CffiLibrary()
    monkeypatch.setitem(sys.modules, f"{PREFIX}a.lib", library)
    enter(folder(tmp_path, "two", a="x = 2"))
    assert value() == 2


def test_a_fresh_runner_looks_at_no_module_that_its_fork_server_had(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = f"{PREFIX}since"
    monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    modules_before_fork()
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    CallersModules().enter([str(tmp_path), *sys.path])
    assert name in sys.modules


def test_a_fresh_runner_sets_aside_its_imports_since_the_fork(tmp_path: Path) -> None:
    modules_before_fork()
    name = f"{PREFIX}since"
    (tmp_path / f"{name}.py").touch()
    sys.path.insert(0, str(tmp_path))
    importlib.invalidate_caches()
    modules = CallersModules()
    importlib.import_module(name)
    modules.enter(sys.path[1:])
    assert name not in sys.modules


@pytest.mark.parametrize("package", ["", "folder."])
def test_a_module_that_was_written_since_its_folder_was_listed_is_found(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "importlib.metadata", raising=False)
    monkeypatch.setattr(importlib, "invalidate_caches", lambda: pytest.fail("it takes long"))
    name, base = f"{PREFIX}written", tmp_path / f"{PREFIX}folder" if package else tmp_path
    base.mkdir(exist_ok=True)
    whole = f"{PREFIX}{package}{name}" if package else name
    sys.path.insert(0, str(tmp_path))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(whole)
    listed = base.stat().st_mtime_ns
    (base / f"{name}.py").touch()
    os.utime(base, ns=(listed, listed))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(whole)
    loaded_functions._list_folders_anew()
    importlib.import_module(whole)


def test_folders_are_listed_anew_where_imports_are_lazy(monkeypatch: pytest.MonkeyPatch) -> None:
    """There `importlib` has not yet named the module of its finders (Python 3.15)."""
    monkeypatch.delitem(sys.modules, "importlib._bootstrap_external")
    loaded_functions._list_folders_anew()
