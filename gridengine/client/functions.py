"""Functions as they travel."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from gridengine.client.function_cache import FunctionCache
from gridengine.client.log_relay import log_levels
from gridengine.client.options import CallOptions
from gridengine.client.surroundings import Surroundings, present_umask, surroundings
from gridengine.dispatcher.core.tasks import Function
from gridengine.serialize import pickling, shared_memory
from gridengine.serialize.classes import check_imported
from gridengine.serialize.payload import size_of
from gridengine.serialize.references import (
    ResultHolder,
    awaited_in,
    numbers,
    refer_to,
)
from gridengine.serialize.shared_objects import needs_of
from gridengine.serialize.users_modules import own_modules
from gridengine.wire.messages import CallerState
from gridengine.worker.call_context import GVAR
from gridengine.worker.coroutines import synchronous

SMALL_BYTES = 64 * 1024
"""Up to this size a function is kept from one map to the next."""
DEFAULT = CallOptions()


def function_of_map(f: Callable[..., Any], options: CallOptions = DEFAULT) -> Function:
    """Return a function as it travels for a map; small ones are pickled once for several maps.

    Raises:
        PicklingError: it cannot be pickled.
        ConfigurationError: the working directory is gone.
    """
    if options.exceptions or options.logs:
        most = shared_memory.KEPT_BYTES
        return make_function(f, options.exceptions, logs=options.logs, most_digested=most)
    own_modules().check()
    return _recent_functions(surroundings()).find(f)


@functools.lru_cache(maxsize=1)
def _recent_functions(_: Surroundings) -> FunctionCache[Function]:
    """Return those that were pickled in these surroundings."""

    def make(f: Callable[..., Any], before: Function | None) -> tuple[Function, float]:
        function = make_function(f, most_digested=shared_memory.KEPT_BYTES)
        size = size_of(function.payload)
        kept = size <= SMALL_BYTES and not function.needs and not function.after
        return function, size if kept else math.inf

    return FunctionCache(make)


def make_function(
    f: Callable[..., Any],
    retry_on: tuple[type[BaseException], ...] = (),
    *,
    logs: bool = False,
    most_digested: float = math.inf,
) -> Function:
    """Return a callable as it travels: pickled, with what has its calls made again, this process's
    `sys.path` and working directory.

    logs: have what its calls log come here. most_digested: see `pickling.dump_function`.

    Raises:
        PicklingError: it cannot travel.
        TypeError: it is an async generator function.
        ConfigurationError: the working directory is gone; or see `check_imported`.
    """
    if GVAR.in_runner:
        check_imported(f)
    own_modules().check()
    refer_to((Future, ResultHolder), _find_reference)
    called = synchronous(f)
    digest, payload = pickling.dump_function(called, retry_on, most_digested=most_digested)
    directory, path, variables, arguments, state, around = surroundings()
    umask = present_umask()
    name = getattr(f, "__qualname__", None) or getattr(f, "__name__", None) or type(f).__name__
    # The same function in another folder, or with another path, may do something else.
    digest = hashlib.blake2b(b"%d " % umask + around, key=digest, digest_size=16).digest()
    levels = log_levels() if logs else None
    if levels is not None:
        digest = hashlib.blake2b(repr(levels).encode(), key=digest, digest_size=16).digest()
    caller = CallerState(variables, umask, arguments, levels, state)
    needs, after = needs_of(payload), numbers(awaited_in(payload))
    name = str(name).encode(errors="backslashreplace").decode()  # one that can travel
    return Function(digest, payload, path, directory, name, needs, caller, after)


def _find_reference(obj: Any) -> Any:
    # Here: most maps need none of it, and a first result is there the sooner.
    from gridengine.client.dependencies import known_references

    return known_references().find(obj)
