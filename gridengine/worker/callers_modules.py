"""`CallersModules`: the callers' own modules that a runner has imported. Each script finds its own
modules, even when another script has modules of the same name, and edited modules are imported
anew.

Rejected: a new process for each script. It is simpler, and costs its start whenever two scripts
take turns. The client's process is part of a function's digest, so another script's functions are
loaded anew, and files are looked at only then.
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
    """The modules imported under one module search path: how to tell whether a file has changed
    since `looked_at` (nanoseconds since 1970), and the modules themselves while others are in their
    place.
    """

    changes: OwnModules = field(default_factory=OwnModules)
    looked_at: int = field(default_factory=time.time_ns)
    modules: Modules = field(default_factory=dict)


class CallersModules:
    """Keeps in `sys.modules` the modules that the present caller would import. Packages with
    extension modules stay, because many of these can be loaded only once in a process.
    """

    def __init__(self) -> None:
        self._path = tuple(sys.path)
        self._present = _Imported()
        self._set_aside: dict[tuple[str, ...], _Imported] = {}

    def enter(self, path: Sequence[str]) -> None:
        """Set aside the modules that this search path would not find, and restore those that were
        imported under it before.
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
        """Remove all own modules if the file of one has changed, and return whether one has: the
        next loading imports them anew.

        A module that was imported since the last call may have been imported before its file
        changed. Therefore a file newer than the last call counts as changed.
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
    """Return the callers' own modules by name, whole packages, without packages that have extension
    modules.
    """
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
    """Return whether this search path leads to another module of this name, or to none."""
    found, parts = PathFinder.find_spec(name, path), parts_of(module)
    if found is None:
        return True
    folders: Any = found.submodule_search_locations
    if found.origin is None:  # a namespace package: a folder without an `__init__`
        return folders is None or list(folders) != list(parts.get("__path__", ()))
    return found.origin != parts.get("__file__")
