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

    __slots__ = ("_current", "_names")

    def __init__(self) -> None:
        super().__init__("__main__")
        self._names: dict[bytes, dict[str, Any]] = {}
        self._current: dict[str, Any] = {}

    def enter(self, function: bytes) -> None:
        """Have, from now on, the names of the function with this digest."""
        self._current = self._names.setdefault(function, {})

    def forget(self, function: bytes) -> None:
        """Drop the names of a function."""
        self._names.pop(function, None)

    def add(self, names: Mapping[str, Any]) -> None:
        """Add to what the present function has."""
        self._current.update(names)

    def __getattr__(self, name: str) -> Any:
        if name not in self._current or _has_unforked_children():
            raise AttributeError(f"module '__main__' has no attribute {name!r}")
        return self._current[name]


def add_to_main(module: object, names: Mapping[str, Any]) -> None:
    """In a runner, add names to what stands in for the caller's `__main__`, if that is the module;
    they replace earlier ones.
    """
    main = sys.modules.get("__main__")
    if module == "__main__" and isinstance(main, CallersMain):
        main.add(names)


def _has_unforked_children() -> bool:
    """Return whether this process has, or is about to have, children of `multiprocessing` that are
    not its forks.
    """
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is None:
        return False
    methods = {
        getattr(child, "_start_method", "fork") for child in multiprocessing.active_children()
    }
    return bool(methods - {"fork"}) or multiprocessing.context.get_spawning_popen() is not None
