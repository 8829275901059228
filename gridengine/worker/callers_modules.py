"""`CallersModules`: the callers' own modules that a runner has imported. Scripts that have others
by the same name find each its own, and what was edited is imported anew.
"""

from __future__ import annotations

import sys
import time
import types
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from typing import Any, TypeAlias

from msgspec import Struct, field

from gridengine.serialize.module_changes import MAINS, OwnModules, is_own_module, parts_of

Modules: TypeAlias = dict[str, types.ModuleType]
MOST_SET_ASIDE = 8


class _Imported(Struct):
    """What was imported by one module search path: what tells whether it has changed since
    `looked_at` (nanoseconds since 1970), and while others are in its place the modules.
    """

    changes: OwnModules = field(default_factory=OwnModules)
    looked_at: int = field(default_factory=time.time_ns)
    modules: Modules = field(default_factory=dict)


class CallersModules:
    """Has those in `sys.modules` that the present caller would import. Packages with modules in
    machine code stay: many of these can be loaded but once in a process.
    """

    def __init__(self) -> None:
        self._path = tuple(sys.path)
        self._present = _Imported()
        self._set_aside: dict[tuple[str, ...], _Imported] = {}

    def enter(self, path: Sequence[str]) -> None:
        """Set aside what would not be found by this module search path, and have back what was
        imported by it before.
        """
        before, self._path = self._path, tuple(path)
        if before == self._path:
            return
        own = _own_modules()
        if any(_is_elsewhere(name, own[name], path) for name in own if "." not in name):
            self._present.modules = own
            _remove(own)
            self._set_aside[before] = self._present
            known = self._set_aside
            self._present = known.pop(self._path) if self._path in known else _Imported()
            sys.modules.update(self._present.modules)
            self._present.modules = {}
            if len(self._set_aside) > MOST_SET_ASIDE:
                del self._set_aside[next(iter(self._set_aside))]

    def refresh(self) -> bool:
        """Remove them all if the file of one has changed, and return whether it has: what is loaded
        next imports them anew.

        What was imported since this was last called may have been so before its file changed.
        """
        changes, looked_at = self._present.changes, self._present.looked_at
        generation, self._present.looked_at = changes.generation, time.time_ns()
        changes.check()
        changed = changes.generation != generation or changes.newest > looked_at
        if changed:
            _remove(_own_modules())
            self._present.changes = OwnModules()
        return changed


def _own_modules() -> Modules:
    """Return them by their names, whole packages, but for those with modules in machine code."""
    packages: dict[str, Modules] = {}
    for name, module in list(sys.modules.items()):
        if name not in MAINS and isinstance(module, types.ModuleType):
            packages.setdefault(name.partition(".")[0], {})[name] = module
    own: Modules = {}
    for name, package in packages.items():
        if is_own_module(package.get(name)) and not any(map(_is_machine_code, package.values())):
            own |= package
    return own


def _remove(modules: Modules) -> None:
    for name in modules:
        sys.modules.pop(name, None)


def _is_machine_code(module: types.ModuleType) -> bool:
    return str(parts_of(module).get("__file__")).endswith(tuple(EXTENSION_SUFFIXES))


def _is_elsewhere(name: str, module: types.ModuleType, path: Sequence[str]) -> bool:
    """Return whether this path leads to another module of this name, or to none."""
    found, parts = PathFinder.find_spec(name, path), parts_of(module)
    if found is None:
        return True
    folders: Any = found.submodule_search_locations
    if found.origin is None:  # a folder without an `__init__`
        return folders is None or list(folders) != list(parts.get("__path__", ()))
    return found.origin != parts.get("__file__")
