"""Functions that are submitted again and again: pickled once, and again when what they refer to may
have changed since.

The version of a function that runs is the one that was submitted. To pickle it for each of a
hundred thousand calls would cost more than the calls do, so of each function it is kept what it
refers to (global variables, closure cells, default values): as long as these are the same objects,
and none of them can change in place, neither has its pickle.
"""

from __future__ import annotations

import abc
import functools
import math
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from gridengine.serialize.byte_code import global_names
from gridengine.serialize.classes import is_by_value, is_importable
from gridengine.serialize.functions import LOOKED_UP, contents_of
from gridengine.serialize.lazy_imports import LAZY
from gridengine.serialize.payload import ATOMS
from gridengine.serialize.sentinels import SENTINEL
from gridengine.serialize.shared_objects import Shared, SharedObject
from gridengine.serialize.type_parameters import FIXED

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
