"""Coroutine functions as calls: `synchronous` makes of one a function that returns its result.

Little is imported here: a caller looks at each function, and the event loop is for those that need
one (`event_loop`).
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

COROUTINE, ASYNC_GENERATOR = 0x80, 0x200
"""Flags of code objects, as in `inspect`, which takes long to import."""


def synchronous(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function itself, or what runs one that is a coroutine function to its end in an
    event loop. Partials, methods, decorated functions and objects with such a `__call__` count too.

    Raises:
        TypeError: it is an async generator function.
    """
    begins, *wrapped = _flags_of(f)
    if begins & ASYNC_GENERATOR:
        raise TypeError(
            f"{f!r} is an async generator function, and a call has one result: write an "
            "`async def` that returns a list of what this one yields"
        )
    return Synchronous(f) if any(one & COROUTINE for one in (begins, *wrapped)) else f


def is_coroutine_function(f: Callable[..., Any]) -> bool:
    """Return whether a call of it gives a coroutine.

    Raises:
        TypeError: it is an async generator function.
    """
    return isinstance(synchronous(f), Synchronous)


class Synchronous:
    """A coroutine function as who does not await calls it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        for name in ("__name__", "__qualname__"):
            if hasattr(function, name):
                setattr(self, name, getattr(function, name))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return finished(self._function(*args, **kwargs))


def finished(value: Any) -> Any:
    """Return a value as it is, or what a coroutine returns once it has been run to its end."""
    if not isinstance(value, Coroutine):
        return value
    from gridengine.worker.event_loop import run

    return run(value)


def _flags_of(f: Any) -> Iterator[int]:
    """Yield the flags of the code that a call of this begins with, then of the functions that it
    says it wraps; 0 where that is not Python's.
    """
    while f is not None:
        while isinstance(f, functools.partial | types.MethodType):
            f = f.func if isinstance(f, functools.partial) else f.__func__
        code = f if isinstance(f, types.FunctionType) else type(f).__call__
        yield code.__code__.co_flags if isinstance(code, types.FunctionType) else 0
        f = getattr(f, "__dict__", {}).get("__wrapped__")
