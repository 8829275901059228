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

    __slots__ = ("_gridengine_current", "_gridengine_names")

    def __init__(self) -> None:
        super().__init__("__main__")
        self._gridengine_names: dict[bytes, dict[str, Any]] = {}
        self._gridengine_current: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name not in self._gridengine_current or _has_unforked_children():
            raise AttributeError(f"module '__main__' has no attribute {name!r}")
        return self._gridengine_current[name]


# Functions, for a method's name may be one of the caller's too.


def enter(main: CallersMain, function: bytes) -> None:
    """Have, from now on, the names of the function with this digest."""
    main._gridengine_current = main._gridengine_names.setdefault(function, {})


def forget(main: CallersMain, function: bytes) -> None:
    """Drop the names of a function."""
    main._gridengine_names.pop(function, None)


def add_to_main(module: object, names: Mapping[str, Any]) -> None:
    """In a runner, add names to what stands in for the caller's `__main__`, if that is the module;
    they replace earlier ones.
    """
    main = sys.modules.get("__main__")
    if module == "__main__" and isinstance(main, CallersMain):
        main._gridengine_current.update(names)


def add_class_to_main(cls: type) -> None:
    """In a runner, let a class be found in the caller's `__main__` by its name. One that was
    written within another may be here alone: a namespace then stands in for that.
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
