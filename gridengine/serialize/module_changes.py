"""The caller's own modules: whether one of them has been reloaded, or its file edited, since they
were last checked.

The environment's packages and the standard library are not among them: they are taken not to change
meanwhile.
"""

from __future__ import annotations

import functools
import os
import sys
import time
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec


CHECK_SECONDS = 0.05
MAINS = frozenset({"__main__", "__mp_main__"})
SITE, DISTRIBUTION = f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}"

Stamp: TypeAlias = tuple[int, int, int] | None
"""What is compared of a file: when it changed (ns), its size and its number; None when there is
none.
"""


class _Own(Struct):
    """A module, the `__spec__` that it was loaded by, which a reload replaces, and what its file
    was when last checked.
    """

    module: types.ModuleType
    spec: object
    path: str
    stamp: Stamp


class OwnModules:
    """Checks them. Safe to use from several threads, and waits for none: a process may be forked
    at any point.

    `generation` is a number that grows whenever one of them is seen to have changed.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._own: dict[str, _Own] = {}
        self._seen: set[str] = set()
        self._lazy: dict[str, tuple[str, Stamp]] = {}
        """Files of modules that are to be imported when they are used, by their names."""
        self._lazy_count = 0
        self._last = 0, ""
        self.newest = 0
        """When the latest file was changed (ns) of those that were first seen by the last check."""
        self.due = 0.0
        """When to check again (monotonic seconds), at the earliest, for what is done for each call:
        that is twenty times a second.
        """

    def check(self) -> None:
        """Raise `generation` if one has changed: this compares the names of all modules, and the
        file of each of the caller's own.
        """
        changed = self._changed_before_import()
        self.newest = 0
        for name, own in list(self._own.items()):
            module = sys.modules.get(name)
            if module is own.module:
                if parts_of(module).get("__spec__") is own.spec and _stamp(own.path) == own.stamp:
                    continue
            elif module is None:  # it is about to be imported anew, or has been removed
                continue
            changed.append(name)
        # First: another thread finds either the change or the new number.
        self.generation += bool(changed)
        if changed:
            import logging  # here, as below: a runner does without, and starts the sooner

            logging.getLogger("gridengine").info(
                "edited or reloaded: %s; calls from now on import the module%s anew",
                ", ".join(changed),
                "s" * (len(changed) > 1),
            )
        self._seen.difference_update(changed)
        # What is new comes last; other threads may import meanwhile.
        last = len(sys.modules), list(sys.modules)[-1]
        if changed or last != self._last:
            self._last = last
            for name in sys.modules.keys() - self._seen:
                self._add(name)
        self.due = time.monotonic() + CHECK_SECONDS

    def _changed_before_import(self) -> list[str]:
        """Return the modules that are to be imported lazily, and are not yet, whose file has
        changed: where calls run they may have been.
        """
        changed = []
        for name, (path, stamp) in list(self._lazy.items()):
            present = _stamp(path)
            self._lazy[name] = path, present
            if present != stamp:
                changed.append(name)
            if present is None or name in sys.modules:
                del self._lazy[name]
        names: set[str] = getattr(sys, "lazy_modules", set())  # from Python 3.15 on
        if len(names) != self._lazy_count:
            self._lazy_count = len(names)
            for name in names.copy() - self._lazy.keys() - sys.modules.keys():
                self._add_lazy(name)
        return changed

    def _add_lazy(self, name: str) -> None:
        if name.partition(".")[0] not in sys.stdlib_module_names:
            spec = spec_of(name)
            if spec is not None and spec.has_location and is_own(str(spec.origin)):
                self._lazy[name] = str(spec.origin), _stamp(str(spec.origin))

    def _add(self, name: str) -> None:
        self._seen.add(name)
        module = sys.modules.get(name)
        if isinstance(module, types.ModuleType) and name not in MAINS:
            parts = parts_of(module)
            path = parts.get("__file__")
            if isinstance(path, str) and is_own(path):
                if not path.startswith(os.sep):
                    from pathlib import Path

                    path = str(Path.cwd() / path)
                stamp = _stamp(path)
                self._own[name] = _Own(module, parts.get("__spec__"), path, stamp)
                self.newest = max(self.newest, stamp[0] if stamp else 0)
                return
        self._own.pop(name, None)


parts_of: Callable[[types.ModuleType], dict[str, Any]] = vars(types.ModuleType)["__dict__"].__get__
"""Returns what is in a module, without having one that is to be loaded when first used be
loaded.
"""


def _stamp(path: str) -> Stamp:
    try:
        facts = os.stat(path)  # noqa: PTH116 - at the beginning of each map
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size, facts.st_ino


def is_own(path: str) -> bool:
    """Return whether a module's file belongs neither to the environment nor to the standard library
    nor to this package.
    """
    return not (SITE in path or DISTRIBUTION in path or path.startswith(_others()))


def is_own_module(module: object) -> bool:
    """Return whether this is a module of which that is so, or a folder of such modules."""
    parts = parts_of(module) if isinstance(module, types.ModuleType) else {}
    file = parts.get("__file__")
    if file is None:  # a folder without an `__init__`
        return any(is_own(f"{one}{os.sep}") for one in parts.get("__path__", ()))
    return isinstance(file, str) and is_own(file)


def spec_of(name: str) -> ModuleSpec | None:
    """Return where a module is; its packages are not loaded for it. None when it has no file."""
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
        except Exception as error:  # it may be anybody's
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


@functools.cache
def own_modules() -> OwnModules:
    return OwnModules()
