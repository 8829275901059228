"""A runner's `__main__`, and which of the user's own modules have changed."""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import multiprocessing
import os
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gridengine.serialize import pickling
from gridengine.serialize.users_modules import (
    CallersMain,
    OwnModules,
    enter_function,
    forget_function,
    is_own,
    is_own_module,
    note_sending,
    share_with_main,
)
from tests.support.cffi_library import CffiLibrary


class Script:
    """A class that says it is of a script."""

    class Part: ...

    class Other: ...


def helper(x: int) -> int:
    return x


for one in (Script, Script.Part, Script.Other, helper):
    one.__module__ = "__main__"


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> CallersMain:
    made = CallersMain()
    enter_function(made, b"first")
    monkeypatch.setitem(sys.modules, "__main__", made)
    return made


def load(obj: object) -> Any:
    return pickling.load(pickling.dump(obj))


def in_main(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as it would be in a script, with what it refers to."""
    names = {"__name__": "__main__", "helper": helper, "FACTOR": 3}
    made = types.FunctionType(function.__code__, names, "calls")
    made.__module__, made.__qualname__ = "__main__", "calls"
    return made


def test_objects_that_came_by_value_are_found_by_name(main: CallersMain) -> None:
    made = load(in_main(lambda x: helper(x) + FACTOR))  # type: ignore[name-defined]  # noqa: F821
    assert main.calls is made
    assert main.helper is made.__globals__["helper"]
    assert main.FACTOR == 3
    assert load(Script) is main.Script


def test_a_class_that_was_written_within_another_is_found_by_both_names(main: CallersMain) -> None:
    assert load(Script.Part) is main.Script.Part
    assert load(Script.Other) is main.Script.Other
    assert main.Script.Part is Script.Part
    assert load(Script) is main.Script


@pytest.mark.parametrize("name", ["enter_function", "forget_function", "add", "note"])
def test_any_name_may_be_a_callers(main: CallersMain, name: str) -> None:
    mine = types.FunctionType(helper.__code__, {"__name__": "__main__"}, name)
    mine.__module__, mine.__qualname__ = "__main__", name
    assert getattr(main, name, None) is None
    assert load(mine) is getattr(main, name)


def test_each_function_has_its_own_names(main: CallersMain) -> None:
    first = load(helper)
    enter_function(main, b"second")
    with pytest.raises(AttributeError):
        _ = main.helper
    second = load(helper)
    assert main.helper is second
    enter_function(main, b"first")
    assert main.helper is first


def test_names_of_a_forgotten_function_are_gone(main: CallersMain) -> None:
    load(helper)
    forget_function(main, b"first")
    enter_function(main, b"first")
    assert not hasattr(main, "helper")


def test_an_assignment_to_it_is_one_to_the_global_variables_of_its_functions(
    main: CallersMain,
) -> None:
    variables = {"__name__": "__main__", "__file__": "script.py", "FACTOR": 3}
    share_with_main(variables)
    assert main.FACTOR == 3
    main.FACTOR = 4
    assert variables["FACTOR"] == 4
    variables["FACTOR"] = 5
    assert main.FACTOR == 5
    assert not hasattr(main, "__file__")


def test_names_of_other_modules_are_not_added(main: CallersMain) -> None:
    def local() -> None: ...

    load([local, types.SimpleNamespace])
    assert not hasattr(main, "local")
    assert not hasattr(main, "SimpleNamespace")


@pytest.fixture
def send(main: CallersMain, monkeypatch: pytest.MonkeyPatch) -> Callable[[object], bytes]:
    """Return a function that pickles as a runner's `multiprocessing` does for its children."""

    class ForkingPickler(pickle.Pickler):
        pass

    note_sending(types.SimpleNamespace(ForkingPickler=ForkingPickler))

    def send(obj: object) -> bytes:
        file = io.BytesIO()
        ForkingPickler(file).dump(obj)
        return file.getvalue()

    return send


@pytest.mark.parametrize(
    ("methods", "are_sent"),
    [
        ([], True),
        (["fork"], True),
        (["fork", "loky"], True),
        (["spawn"], False),
        (["loky", "forkserver"], False),
    ],
)
def test_names_are_hidden_from_children_that_know_none(
    send: Callable[[object], bytes],
    monkeypatch: pytest.MonkeyPatch,
    methods: list[str],
    are_sent: bool,
) -> None:
    children = [types.SimpleNamespace(_start_method=one) for one in methods]
    monkeypatch.setattr(multiprocessing, "active_children", lambda: children)
    mine = load(helper)
    with contextlib.nullcontext() if are_sent else pytest.raises(pickle.PicklingError):
        assert b"helper" in send(mine)


def test_pickles_for_others_find_names_beside_spawned_children(
    send: Callable[[object], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = types.SimpleNamespace(_start_method="spawn")
    monkeypatch.setattr(multiprocessing, "active_children", lambda: [child])
    mine = load(helper)
    with pytest.raises(pickle.PicklingError):
        send(mine)
    assert pickle.loads(pickle.dumps(mine)) is mine


def test_outside_of_a_runner_nothing_is_added() -> None:
    before = dict(vars(sys.modules["__main__"]))
    load([helper, Script])
    assert vars(sys.modules["__main__"]) == before


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


def test_a_new_or_unchanged_module_is_no_change(make: Make, watch: Callable[[], int]) -> None:
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


def test_an_object_that_only_poses_as_a_module_is_not_the_users_own(
    monkeypatch: pytest.MonkeyPatch, watch: Callable[[], int]
) -> None:
    library: Any = CffiLibrary()
    assert isinstance(library, ModuleType)
    monkeypatch.setitem(sys.modules, "library_of_cffi", library)
    assert watch() == 0
    assert not is_own_module(library)


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
def test_an_edit_of_a_lazily_imported_module_is_a_change_once(
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
