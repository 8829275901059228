"""The modules that user code sees: a runner's `__main__`, and which of the user's own modules have
changed.

A runner's `__main__` offers by name the objects that came by value from its caller's `__main__`.
`pickle` and `multiprocessing` look there, for example when a call saves an object whose class is of
the script, or lets processes that it forks run a function of the script.

`OwnModules` notices that one of the caller's own modules has been reloaded, or that its file was
edited, since the last check. Packages of the environment and the standard library are not among
them: nobody expects them to change meanwhile.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from msgspec import Struct

from gridengine.threads import once

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec


class CallersMain(types.ModuleType):
    """Stands in for the caller's `__main__`. Each function finds the names that came with it and
    with its arguments.

    What `multiprocessing` pickles for children that are not this process's forks finds no names:
    such children know none of them. A `multiprocessing.Pool` would start one child after another,
    and each would end at an unknown name.
    """

    __slots__ = ("_gridengine_current", "_gridengine_names")

    def __init__(self) -> None:
        super().__init__("__main__")
        self._gridengine_names: dict[bytes, _Names] = {}
        self._gridengine_current = _Names()

    def __getattr__(self, name: str) -> Any:
        current = self._gridengine_current
        is_sending = getattr(_sending(), "depth", 0) > 0
        is_hidden = name in HIDDEN or (is_sending and _has_unforked_children())
        for names in () if is_hidden else (current.variables or {}, current):
            if name in names:
                return names[name]
        raise AttributeError(f"module '__main__' has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        """Assign to a global variable of the script's functions."""
        if name.startswith(("__", "_gridengine_")) or self._gridengine_current.variables is None:
            super().__setattr__(name, value)
        else:
            self._gridengine_current.variables[name] = value


HIDDEN = frozenset({"__file__", "__builtins__"})
"""Names that would have `multiprocessing` import the script."""


class _Names(dict[str, Any]):
    """The names that `__main__` offers calls of one function. `variables` are the global variables
    of the functions of the script, which come first; None if there are none.
    """

    variables: dict[str, Any] | None = None


# Functions, not methods: any name may be one of the caller's.


def enter_function(main: CallersMain, function: bytes) -> None:
    """Offer the names of the function with this digest from now on."""
    names = main._gridengine_names.setdefault(function, _Names())
    if names is not main._gridengine_current:
        main._gridengine_current = names


def forget_function(main: CallersMain, function: bytes) -> None:
    """Drop the names of a function."""
    main._gridengine_names.pop(function, None)


def add_to_main(module: object, names: Mapping[str, Any]) -> None:
    """In a runner, add names to the stand-in for the caller's `__main__`, if `module` is that name.
    They replace earlier names.
    """
    main = sys.modules.get("__main__")
    if module == "__main__" and isinstance(main, CallersMain):
        main._gridengine_current.update(names)


def share_with_main(variables: dict[str, Any]) -> None:
    """In a runner, offer these variables by the stand-in for the caller's `__main__`, if they are
    its global variables.
    """
    main = sys.modules.get("__main__")
    if variables.get("__name__") == "__main__" and isinstance(main, CallersMain):
        main._gridengine_current.variables = variables


def add_class_to_main(cls: type) -> None:
    """In a runner, add a class to the stand-in for the caller's `__main__`. The class around a
    nested class may not be here: then a namespace stands in for it.
    """
    outer, _, name = cls.__qualname__.rpartition(".")
    if not outer:
        add_to_main(cls.__module__, {name: cls})
    elif "." not in outer:
        there = getattr(sys.modules.get("__main__"), outer, None)
        if there is None:
            add_to_main(cls.__module__, {outer: types.SimpleNamespace(**{name: cls})})
        elif isinstance(there, types.SimpleNamespace):
            setattr(there, name, cls)


def after_import(spec: ModuleSpec | None, act: Callable[[types.ModuleType], object]) -> None:
    """Call a function with the module of this spec once an import has executed the module."""
    loader: Any = None if spec is None else spec.loader
    if loader is not None:
        make = loader.exec_module

        def make_and_act(module: types.ModuleType) -> None:
            del loader.exec_module
            make(module)
            act(module)

        loader.exec_module = make_and_act


def note_sending(reduction: Any) -> None:
    """Have this module (multiprocessing.reduction) note the threads that pickle for a child."""
    dump = reduction.ForkingPickler.dump

    def noted(pickler: Any, obj: object) -> None:
        here = _sending()
        here.depth = getattr(here, "depth", 0) + 1
        try:
            dump(pickler, obj)
        finally:
            here.depth -= 1

    reduction.ForkingPickler.dump = noted


@functools.cache
def _sending() -> threading.local:
    """Each thread's `depth`: how many objects it is pickling for children of `multiprocessing`."""
    return threading.local()


def _has_unforked_children() -> bool:
    """Return whether this process has, or is about to have, children of `multiprocessing` that are
    not its forks. Those of loky are sent functions of the script by value, and stay for minutes.
    """
    from multiprocessing import active_children, context  # loaded, since somebody is sending

    methods = {getattr(child, "_start_method", "fork") for child in active_children()}
    return bool(methods & {"spawn", "forkserver"}) or context.get_spawning_popen() is not None


CHECK_SECONDS = 0.05
MAINS = frozenset({"__main__", "__mp_main__"})
SITE, DISTRIBUTION = f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}"

Stamp: TypeAlias = tuple[int, int, int] | None
"""The facts of a file that are compared: the time of its last change (ns), its size and its inode;
None if there is no file.
"""


class _Own(Struct):
    """A module, its `__spec__`, which a reload replaces, and its file at the last check."""

    module: types.ModuleType
    spec: object
    path: str
    stamp: Stamp


class OwnModules:
    """Checks whether the user's own modules have changed. Safe to use from several threads, without
    a lock: a process may be forked at any point.

    `generation` is a number that grows whenever a change is seen.
    """

    def __init__(self) -> None:
        self.generation = 0
        self.folders: tuple[str, ...] = ()
        """The folders from which the user's own modules and packages were imported."""
        self._own: dict[str, _Own] = {}
        self._seen: set[str] = set()
        self._lazy: dict[str, tuple[str, Stamp]] = {}
        """By the name of each module that waits to be imported lazily: its file."""
        self._lazy_count = 0
        self._last = 0, ""
        self.newest = 0
        """The time of the latest change (ns) of the files that the last check saw first."""
        self.due = 0.0
        """The earliest time (monotonic seconds) of the next check by code that runs for each call.
        There are at most twenty checks a second.
        """

    def check(self) -> None:
        """Raise `generation` if a module has changed. This compares the names of all modules, and
        the file of each of the user's own.
        """
        changed = self._changed_before_import()
        self.newest = 0
        for name, own in list(self._own.items()):
            module = sys.modules.get(name)
            if module is own.module:
                if parts_of(module).get("__spec__") is own.spec and stamp_of(own.path) == own.stamp:
                    continue
            elif module is None:  # about to be imported anew, or removed
                continue
            changed.append(name)
        # Before `_seen` changes: another thread finds either the change or the new number.
        self.generation += bool(changed)
        if changed:
            import logging  # here, as below: a runner does without, and starts the sooner

            logging.getLogger("gridengine").info(
                "edited or reloaded: %s; calls from now on import the module%s anew",
                ", ".join(changed),
                "s" * (len(changed) > 1),
            )
        self._seen.difference_update(changed)
        # New modules come last; other threads may import meanwhile.
        last = len(sys.modules), list(sys.modules)[-1]
        if changed or last != self._last:
            self._last = last
            for name in sys.modules.keys() - self._seen:
                self._add(name)
        self.due = time.monotonic() + CHECK_SECONDS

    def _changed_before_import(self) -> list[str]:
        """Return the modules that wait to be imported lazily, and whose file has changed: workers
        may have imported them.
        """
        changed = []
        for name, (path, stamp) in list(self._lazy.items()):
            present = stamp_of(path)
            self._lazy[name] = path, present
            if present != stamp:
                changed.append(name)
            if present is None or name in sys.modules:
                self._lazy.pop(name, None)
        names: set[str] = getattr(sys, "lazy_modules", set())  # from Python 3.15 on
        if len(names) != self._lazy_count:
            self._lazy_count = len(names)
            for name in names.copy() - set(self._lazy) - set(sys.modules):
                is_python_s = name.partition(".")[0] in sys.stdlib_module_names
                spec = None if is_python_s else spec_of(name)
                if spec is not None and spec.has_location and is_own(str(spec.origin)):
                    self._lazy[name] = str(spec.origin), stamp_of(str(spec.origin))
        return changed

    def _add(self, name: str) -> None:
        self._seen.add(name)
        module = sys.modules.get(name)
        if is_module(module) and name not in MAINS:
            parts = parts_of(module)
            path = parts.get("__file__")
            if isinstance(path, str) and is_own(path):
                if not path.startswith(os.sep):
                    from pathlib import Path

                    path = str(Path.cwd() / path)
                stamp = stamp_of(path)
                self._own[name] = _Own(module, parts.get("__spec__"), path, stamp)
                self.newest = max(self.newest, stamp[0] if stamp else 0)
                if "." not in name:
                    folder = path.rsplit(os.sep, 2 if "__path__" in parts else 1)[0]
                    self.folders = tuple(dict.fromkeys((*self.folders, folder)))
                return
        self._own.pop(name, None)


parts_of: Callable[[types.ModuleType], dict[str, Any]] = vars(types.ModuleType)["__dict__"].__get__
"""Returns the variables of a module, without loading one that waits for its first use."""


def stamp_of(path: str) -> Stamp:
    """Return the facts of a file that are compared."""
    try:
        facts = os.stat(path)  # noqa: PTH116 - each map does this
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size, facts.st_ino


def is_own(path: str) -> bool:
    """Return whether a module's file is the user's own: neither of the environment, nor of the
    standard library, nor of this package.
    """
    return not (SITE in path or DISTRIBUTION in path or path.startswith(_others()))


def is_own_module(module: object) -> bool:
    """Return whether this is one of the user's own modules, or a folder of such modules."""
    parts = parts_of(module) if is_module(module) else {}
    file = parts.get("__file__")
    if file is None:  # a folder without an `__init__`
        return any(is_own(f"{one}{os.sep}") for one in parts.get("__path__", ()))
    return isinstance(file, str) and is_own(file)


def spec_of(name: str) -> ModuleSpec | None:
    """Return the place of a module, without loading its packages; None if it has no file."""
    words, path, spec = name.split("."), None, None
    for end in range(1, len(words) + 1):
        spec = _found(".".join(words[:end]), path)
        if spec is None:
            return None
        path = spec.submodule_search_locations
        if path is None and end < len(words):
            return None
    return spec


def _found(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, path)
        except Exception as error:  # the finder may be anybody's
            import logging

            logging.getLogger("gridengine").debug("%r has not found %s: %s", finder, name, error)
            continue
        if spec is not None:
            return spec
    return None


@functools.cache
def _others() -> tuple[str, ...]:
    return tuple(
        f"{folder}{os.sep}"
        for folder in (os.__file__.rpartition(os.sep)[0], __file__.rsplit(os.sep, 2)[0])
    )


@once
def own_modules() -> OwnModules:
    return OwnModules()


def is_module(obj: object) -> TypeGuard[types.ModuleType]:
    """Return whether this is a module. A library of cffi only says so, to `isinstance` too."""
    return issubclass(type(obj), types.ModuleType)
