"""Functions as they travel: pickled once, with the surroundings of their caller.

The version of a function that runs is the one that was submitted. To pickle it for each of a
hundred thousand calls would cost more than the calls do. So the objects that a function refers to
(global variables, closure cells, default values) are remembered. As long as they are the same
objects, and none of them can change in place, the pickle is still good.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import hashlib
import math
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from gridengine.client.log_relay import log_levels
from gridengine.client.options import CallOptions
from gridengine.dispatcher.core.tasks import Function
from gridengine.errors import ConfigurationError
from gridengine.serialize import pickling, shared_memory
from gridengine.serialize.annotation_code import LOOKED_UP
from gridengine.serialize.byte_code import global_names
from gridengine.serialize.classes import check_imported, is_by_value, is_importable
from gridengine.serialize.functions import contents_of
from gridengine.serialize.lazy_imports import LAZY
from gridengine.serialize.module_changes import own_modules
from gridengine.serialize.payload import ATOMS, size_of
from gridengine.serialize.references import (
    ResultHolder,
    awaited_in,
    numbers,
    refer_to,
)
from gridengine.serialize.sentinels import SENTINEL
from gridengine.serialize.shared_objects import Shared, SharedObject, needs_of
from gridengine.serialize.type_parameters import FIXED
from gridengine.wire.messages import CallerState
from gridengine.worker.call_context import GVAR
from gridengine.worker.coroutines import synchronous
from gridengine.worker.environment import Variables, own_variables, present_state

Surroundings: TypeAlias = tuple[bytes, tuple[bytes, ...], bytes, tuple[bytes, ...], bytes, bytes]
"""The working directory, `sys.path` with absolute entries, the environment, `sys.argv`, the state
of the interpreter, and a digest of them all, of the process and of its own modules as they are now:
workers that stay load functions of another anew, and with them what was edited.
"""


def surroundings() -> Surroundings:
    """Return what calls that are submitted now find around them.

    Raises:
        ConfigurationError: the working directory is gone.
    """
    try:
        directory = os.getcwd()  # noqa: PTH109 - paid for each map
        variables, generation = _environment(), own_modules().generation
        state = present_state()
        return _surroundings(
            directory, tuple(sys.path), tuple(sys.argv), variables, state, generation
        )
    except OSError as error:
        hint = "os.chdir() to a folder that exists: calls run in the one that you are in"
        raise ConfigurationError(
            f"there is no working directory: {error.strerror}; it has been removed, perhaps",
            hint=hint,
        ) from error


@functools.lru_cache(maxsize=1)
def _surroundings(
    directory: str,
    entries: tuple[Any, ...],
    argv: tuple[Any, ...],
    variables: bytes,
    state: bytes,
    generation: int,
) -> Surroundings:
    path = tuple(os.fsencode(Path(directory, entry)) for entry in entries)
    arguments = tuple(os.fsencode(str(one)) for one in argv)
    parts = [os.fsencode(directory), *path, b"", *arguments, b"", variables, state]
    if not GVAR.in_runner:  # modules may have been edited since a process before this one
        parts += [_this_process(), b"%d" % generation]
    digest = hashlib.blake2b(b"\0".join(parts), digest_size=16).digest()
    return os.fsencode(directory), path, variables, arguments, state, digest


@functools.cache
def _this_process() -> bytes:
    return os.urandom(16)


def _environment() -> bytes:
    """Return the environment as /proc/self/environ would have it; the same object as long as
    nothing of it changes. What a call was allocated does not go on to the calls that it makes.
    """
    before, text = _last_environment().get(None, (None, b""))
    present = own_variables()
    if GVAR.given:
        instead = {
            name: otherwise
            for name, (value, otherwise) in GVAR.given.items()
            if present.get(name) == value
        }
        merged = {**present, **instead}
        present = {name: value for name, value in merged.items() if value is not None}
    if before != present:
        before = dict(present)
        text = b"\0".join(b"%s=%s" % entry for entry in before.items())
        _last_environment()[None] = before, text
    return text


@functools.cache
def _last_environment() -> dict[None, tuple[Variables, bytes]]:
    """Return what the environment was when it was last looked at, and as one text."""
    return {}


def present_umask() -> int:
    """Return this process's umask. The system call would set it, and other threads make files."""
    said = b""
    with contextlib.suppress(FileNotFoundError):  # there is no /proc
        descriptor = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
        try:
            said = os.read(descriptor, 256).partition(b"\nUmask:")[2]
        finally:
            os.close(descriptor)
    if said:
        return int(said.split()[0], 8)
    umask = os.umask(0o077)  # nothing else tells it there, nor on Linux before 4.7
    os.umask(umask)
    return umask


T = TypeVar("T")

KEPT_FUNCTIONS = 64
KEPT_BYTES = 16_000_000
"""How many functions, and how much of them, is kept; always one."""
LARGE_BYTES = 1_000_000
"""From this size on what a function holds is taken to be as it was when first submitted: to see
whether it changed costs too much.
"""
BY_NAME = (
    types.ModuleType,
    types.BuiltinFunctionType,
    types.CodeType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    SharedObject,
    LAZY,
    SENTINEL,
    *FIXED,
)
WRAPPERS = (property, classmethod, staticmethod, functools._lru_cache_wrapper)
UNWATCHED = frozenset({"__dict__", "__weakref__", "__annotations__", *LOOKED_UP})
"""Attributes of a class that nothing is called by."""
MISSING = object()

Reference: TypeAlias = tuple[Callable[[Any, Any], Any], Any, object]
"""A look-up, its key, and what it gave."""


class CachedFunction(Struct, Generic[T], frozen=True):
    """What is kept of a function, and what must be as it was for that to be good still;
    `references` is None when that cannot be known.

    The function itself is held weakly: what its user has forgotten is not kept alive for the next
    submission.
    """

    f: Callable[[], Callable[..., Any] | None]
    references: tuple[Reference, ...] | None
    value: T
    size: float


class FunctionCache(Generic[T]):
    """Functions that are submitted again and again.

    Args:
        make: returns what is kept of a function and the size of its pickle in bytes, given the
            function and what was kept of it before; an infinite size means that it is not to be
            kept.
    """

    def __init__(self, make: Callable[[Callable[..., Any], T | None], tuple[T, float]]) -> None:
        self._make = make
        self._kept: dict[int, CachedFunction[T]] = {}
        self._lock = threading.Lock()

    def find(self, f: Callable[..., Any]) -> T:
        """Return what is kept of a function as it is now.

        Raises:
            PicklingError: it cannot be pickled.
        """
        before = self._kept.get(id(f))
        if before is not None and before.f() is not f:
            before = None
        if before is not None and before.references is not None:
            for look_up, key, value in before.references:
                if look_up(key, MISSING) is not value:
                    break
            else:  # it would be pickled now as it was
                return before.value
        return self._renew(f, before)

    def _renew(self, f: Callable[..., Any], before: CachedFunction[T] | None) -> T:
        references = references_of(f)
        value, size = self._make(f, None if before is None else before.value)
        if size == math.inf:
            return value
        if references is None and size > LARGE_BYTES:
            references = ()
        try:
            weak = weakref.ref(f, functools.partial(_forget, weakref.ref(self), id(f)))
        except TypeError:  # nothing to recognise the function by later
            return value
        self._keep(id(f), CachedFunction(weak, references, value, size))
        return value

    def _keep(self, key: int, cached: CachedFunction[T]) -> None:
        kept = self._kept
        with self._lock:
            kept.pop(key, None)
            kept[key] = cached
            while len(kept) > 1 and (
                len(kept) > KEPT_FUNCTIONS
                or sum(one.size for one in list(kept.values())) > KEPT_BYTES
            ):
                kept.pop(next(iter(kept)), None)


def _forget(cache: weakref.ref[FunctionCache[Any]], key: int, _: object) -> None:
    """Keep nothing more of a function that is gone. Called by the collector, at any point and in
    any thread: it must not wait for a lock.
    """
    if (alive := cache()) is not None:
        alive._kept.pop(key, None)


def references_of(f: Callable[..., Any]) -> tuple[Reference, ...] | None:
    """Return all that the pickle of a function depends on; None when something of it can change in
    place.
    """
    found: list[Reference] = []
    todo: list[Any] = [f]
    seen: set[int] = set()
    while todo:
        one = todo.pop()
        if type(one) in ATOMS or id(one) in seen:
            continue
        seen.add(id(one))
        parts = _parts(one)
        if parts is None:
            return None
        for look_up, key, value in parts:
            found.append((look_up, key, value))
            todo.append(value)
    return tuple(found)


def _parts(one: Any) -> Iterator[Reference] | None:
    """Return what an object refers to; None when it can change unseen."""
    if isinstance(one, types.FunctionType):
        return iter(()) if is_importable(one) else _of_function(one)
    if isinstance(one, type):
        return _of_class(one) if is_by_value(one) else iter(())
    if one is MISSING or isinstance(one, BY_NAME):
        bound = getattr(one, "__self__", None)  # `[].append` has one that can change
        return iter(()) if bound is None or isinstance(bound, types.ModuleType) else None
    if type(one) in (tuple, frozenset):
        return ((_always(value), None, value) for value in one)
    if type(one) is functools.partial:
        return _of_partial(one)
    if type(one) is Shared:
        return iter([(functools.partial(getattr, one), "_shared", one._shared)])
    if isinstance(one, WRAPPERS):
        return _of_wrapper(one)
    return None


def _of_function(f: types.FunctionType) -> Iterator[Reference]:
    for name in ("__code__", "__defaults__"):
        yield functools.partial(getattr, f), name, getattr(f, name)
    yield from _items(f.__kwdefaults__ or {})
    yield from _items(vars(f))
    for cell in f.__closure__ or ():
        yield contents_of, cell, contents_of(cell, MISSING)
    for name in global_names(f.__code__):
        yield f.__globals__.get, name, f.__globals__.get(name, MISSING)


def _of_class(cls: type) -> Iterator[Reference]:
    parts = vars(cls)
    yield _length_of(parts), None, len(parts)
    for name, value in parts.items():
        if name not in UNWATCHED and not isinstance(value, types.MemberDescriptorType):
            yield parts.get, name, value
    yield from ((_always(base), None, base) for base in (*cls.__bases__, type(cls)))
    yield _registrations_since(abc.get_cache_token()), None, True


def _of_partial(one: functools.partial[Any]) -> Iterator[Reference]:
    yield from ((_always(value), None, value) for value in (one.func, *one.args))
    yield from _items(one.keywords)
    yield from _items(vars(one))


def _of_wrapper(one: Any) -> Iterator[Reference]:
    for name in ("fget", "fset", "fdel", "__func__", "__wrapped__"):
        if hasattr(one, name):
            yield functools.partial(getattr, one), name, getattr(one, name)


def _items(mapping: Mapping[str, Any]) -> Iterator[Reference]:
    yield _length_of(mapping), None, len(mapping)
    yield from ((mapping.get, name, value) for name, value in mapping.items())


def _always(value: Any) -> Callable[[Any, Any], Any]:
    return lambda key, default: value


def _registrations_since(token: object) -> Callable[[Any, Any], bool]:
    """Return a look-up that gives True until `ABC.register` is called for any class."""
    return lambda key, default: abc.get_cache_token() == token


def _length_of(mapping: Mapping[str, Any]) -> Callable[[Any, Any], Any]:
    return lambda key, default: len(mapping)


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
