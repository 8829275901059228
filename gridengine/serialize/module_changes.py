"""The caller's own modules: whether one of them has been reloaded, or its file edited, since it was
last looked at.

The environment's packages and the standard library are nobody's own: they are taken not to change
while somebody works.
"""

from __future__ import annotations

import functools
import os
import sys
import time
import types
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct

LOOK_SECONDS = 0.05
MAINS = frozenset({"__main__", "__mp_main__"})
SITE, DISTRIBUTION = f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}"

Stamp: TypeAlias = tuple[int, int, int] | None
"""What is compared of a file: when it changed (ns), its size and its number; None when there is
none.
"""


class _Own(Struct):
    """A module, the `__spec__` that it was loaded by, which a reload replaces, and what its file
    was when last looked at.
    """

    module: types.ModuleType
    spec: object
    path: str
    stamp: Stamp


class OwnModules:
    """Watches them. Safe to use from several threads, and waits for none: a process may be forked
    at any point.

    `generation` is a number that grows whenever one of them is seen to have changed.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._own: dict[str, _Own] = {}
        self._seen: set[str] = set()
        self._last = 0, ""
        self._looked_at = 0.0

    def look(self) -> None:
        """See whether one has changed: a look at the names of all modules, and at the file of each
        that is one's own.
        """
        changed = [name for name, own in list(self._own.items()) if _has_changed(name, own)]
        self.generation += bool(
            changed
        )  # first: who looks meanwhile finds the change, or the number that tells of it
        self._seen.difference_update(changed)
        last = (
            len(sys.modules),
            list(sys.modules)[-1],
        )  # what is new comes last; other threads may import meanwhile
        if changed or last != self._last:
            self._last = last
            for name in sys.modules.keys() - self._seen:
                self._meet(name)
        self._looked_at = time.monotonic()

    def look_now_and_then(self) -> None:
        """As `look`, but no more often than twenty times a second: for what is done for each
        call.
        """
        if time.monotonic() - self._looked_at > LOOK_SECONDS:
            self.look()

    def _meet(self, name: str) -> None:
        self._seen.add(name)
        module = sys.modules.get(name)
        if isinstance(module, types.ModuleType) and name not in MAINS:
            parts = _parts(module)
            path = parts.get("__file__")
            if isinstance(path, str) and is_own(path):
                whole = Path.cwd() / path if not path.startswith(os.sep) else Path(path)
                self._own[name] = _Own(
                    module, parts.get("__spec__"), str(whole), _stamp(str(whole))
                )
                return
        self._own.pop(name, None)


def _parts(module: types.ModuleType) -> dict[str, Any]:
    """Return what is in a module, without having one that is to be loaded when first used be
    loaded.
    """
    parts: dict[str, Any] = object.__getattribute__(module, "__dict__")
    return parts


def _has_changed(name: str, own: _Own) -> bool:
    module = sys.modules.get(name)
    if module is None:  # somebody is about to import it anew, or nobody wants it any more
        return False
    return (
        module is not own.module
        or _parts(module).get("__spec__") is not own.spec
        or _stamp(own.path) != own.stamp
    )


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


@functools.cache
def _others() -> tuple[str, ...]:
    return tuple(
        f"{folder}{os.sep}" for folder in (Path(os.__file__).parent, Path(__file__).parents[1])
    )


@functools.cache
def own_modules() -> OwnModules:
    """Return this process's."""
    return OwnModules()
