"""Coroutine functions as calls: `synchronous` turns one into a function that returns its result.
The wrapper travels with the function, so that the loop over calls need not inspect each result.

Imports little: a caller inspects each function, but only some need an event loop (`event_loop`).
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from gridengine.call_context.current_call import in_trio
from gridengine.serialize.byte_code import codes

ASYNCIO, TRIO = "asyncio", "trio"
COROUTINE, ASYNC_GENERATOR = 0x80, 0x200
"""Flags of code objects, as in `inspect`, which takes long to import."""


def synchronous(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a plain function unchanged, and a coroutine function wrapped to run to its end in an
    event loop. Partials, methods, decorated functions and objects with such a `__call__` count too.

    Raises:
        TypeError: `f` is an async generator function.
    """
    functions = _functions_of(f)
    begins, *wrapped = (0 if one is None else one.__code__.co_flags for one in functions)
    if begins & ASYNC_GENERATOR:
        raise TypeError(
            f"{f!r} is an async generator function, and a call has one result: write an "
            "`async def` that returns a list of what this one yields"
        )
    return Synchronous(f) if any(one & COROUTINE for one in (begins, *wrapped)) else f


def is_coroutine_function(f: Callable[..., Any]) -> bool:
    """Return whether a call of `f` returns a coroutine.

    Raises:
        TypeError: `f` is an async generator function.
    """
    return isinstance(synchronous(f), Synchronous)


class Synchronous:
    """A coroutine function that can be called without `await`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._library = library_of(function)
        for name in ("__name__", "__qualname__"):
            if hasattr(function, name):
                setattr(self, name, getattr(function, name))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return finished(self._function(*args, **kwargs), self._library)


def finished(value: Any, library: str = ASYNCIO) -> Any:
    """Return a value, or the result of a coroutine, run to its end in a loop of this library."""
    if not isinstance(value, Coroutine):
        return value
    from gridengine.call_context import event_loop  # few functions are coroutine functions

    return event_loop.run_in_trio(value) if library == TRIO else event_loop.run(value)


def library_of(f: Callable[..., Any]) -> str:
    """Return the library, asyncio or trio, in whose event loop a coroutine function must run: the
    one that its code refers to, else the one in which its caller runs.
    """
    functions = [one for one in _functions_of(f) if one is not None]
    for library in (ASYNCIO, TRIO):
        if any(_names(function, library) for function in functions):
            return library
    return TRIO if in_trio() else ASYNCIO


def _names(function: types.FunctionType, library: str) -> bool:
    for name in {name for code in codes(function.__code__) for name in code.co_names}:
        value = function.__globals__.get(name)
        if isinstance(value, types.ModuleType):
            home: Any = value.__name__
        else:
            home = value.__module__ if isinstance(value, (types.FunctionType, type)) else name
        if str(home).partition(".")[0] == library:
            return True
    return False


def _functions_of(f: Any) -> Iterator[types.FunctionType | None]:
    """Yield the function that a call of `f` enters first, then the functions that it says it wraps;
    None for one that is not written in Python.
    """
    while f is not None:
        while isinstance(f, functools.partial | types.MethodType):
            f = f.func if isinstance(f, functools.partial) else f.__func__
        called = f if isinstance(f, types.FunctionType) else type(f).__call__
        yield called if isinstance(called, types.FunctionType) else None
        f = getattr(f, "__dict__", {}).get("__wrapped__")
