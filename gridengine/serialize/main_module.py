"""The `__main__` of a runner, where user code finds what came by value from its caller's
`__main__`, by name.

`pickle` and `multiprocessing` look there: a call saves an object whose class is of the script, or
has a function of the script run by processes that it forks.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from typing import Any


class CallersMain(types.ModuleType):
    """Stands in for the caller's `__main__`. Each function has the names that came with it and with
    its arguments.

    They are not to be had for processes that are not forked from this one, which know none of them:
    `multiprocessing.Pool` would start one after the other, each to end by an unknown name.
    """

    __slots__ = ("_came", "_now")

    def __init__(self) -> None:
        super().__init__("__main__")
        self._came: dict[bytes, dict[str, Any]] = {}
        self._now: dict[str, Any] = {}

    def enter(self, function: bytes) -> None:
        """Have, from now on, the names of the function with this digest."""
        self._now = self._came.setdefault(function, {})

    def forget(self, function: bytes) -> None:
        """Let go of the names of a function."""
        self._came.pop(function, None)

    def note(self, names: Mapping[str, Any]) -> None:
        """Add to what the present function has."""
        self._now.update(names)

    def __getattr__(self, name: str) -> Any:
        if name not in self._now or _has_others():
            raise AttributeError(f"module '__main__' has no attribute {name!r}")
        return self._now[name]


def add_to_main(module: object, names: Mapping[str, Any]) -> None:
    """Note what a module of this name has, if it is a caller's `__main__`: the last word counts. In
    a runner alone is anything done.
    """
    main = sys.modules.get("__main__")
    if module == "__main__" and isinstance(main, CallersMain):
        main.note(names)


def _has_others() -> bool:
    """Say whether this process has, or is about to have, children of `multiprocessing` that are not
    its forks.
    """
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is None:
        return False
    methods = {
        getattr(child, "_start_method", "fork") for child in multiprocessing.active_children()
    }
    return bool(methods - {"fork"}) or multiprocessing.context.get_spawning_popen() is not None
