"""Functions that are submitted again and again: pickled once, and again when what they refer to
may have changed since.

The version of a function that runs is the one that was submitted. To pickle it for each of a
hundred thousand calls would cost more than the calls do, so of each function it is kept what it
refers to (global variables, closure cells, default values): as long as these are the same objects,
and none of them can change in place, neither has its pickle.
"""

from __future__ import annotations

import functools
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from gridengine.client.functions import make_function
from gridengine.client.future import CallTemplate, FutureBatcher
from gridengine.client.options import CallOptions
from gridengine.serialize.classes import is_by_value, is_importable
from gridengine.serialize.functions import global_names
from gridengine.serialize.payload import ATOMS, FULL, SINGLE, STAR, size_of
from gridengine.serialize.shared_objects import Shared, SharedObject
from gridengine.serialize.type_parameters import FIXED

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
    *FIXED,
)
MISSING = object()

Reference: TypeAlias = tuple[Callable[[Any, Any], Any], Any, object]
"""A look-up, its key, and what it gave."""


@dataclass(frozen=True, slots=True)
class CachedFunction:
    """A function as it travels, and what must be as it was for that to be good still; `references`
    is None when that cannot be known.

    The function itself is held weakly: what its user has forgotten is not kept alive for the next
    submission.
    """

    f: weakref.ref[Callable[..., Any]]
    references: tuple[Reference, ...] | None
    templates: tuple[CallTemplate, CallTemplate, CallTemplate]
    """For calls of each form."""
    size: int

    def is_fresh(self) -> bool:
        """Say whether the function would be pickled now as it was."""
        if self.references is None:
            return False
        for look_up, key, value in self.references:  # noqa: SIM110 - paid for each call, and this is the fastest
            if look_up(key, MISSING) is not value:
                return False
        return True


class FunctionCache:
    """The functions that are submitted again and again.

    Args:
        batcher: takes their calls.
        options: of all their calls.
        wrap: gives what is pickled in a function's place.
    """

    def __init__(
        self,
        batcher: FutureBatcher,
        options: CallOptions,
        wrap: Callable[[Callable[..., Any]], Callable[..., Any]],
    ) -> None:
        self._batcher = batcher
        self._options = options
        self._wrap = wrap
        self._kept: dict[int, CachedFunction] = {}
        self._lock = threading.Lock()

    def find(self, f: Callable[..., Any]) -> CachedFunction:
        """Return the function as it is now.

        Raises:
            PicklingError: it cannot travel.
        """
        cached = self._kept.get(id(f))
        if cached is not None and cached.f() is f and cached.is_fresh():
            return cached
        return self._pickle(f, cached)

    def _pickle(self, f: Callable[..., Any], before: CachedFunction | None) -> CachedFunction:
        references = references_of(f)
        function = make_function(self._wrap(f), self._options.exceptions)
        size = size_of(function.payload)
        if references is None and size > LARGE_BYTES:
            references = ()
        if (
            before is not None
            and before.f() is f
            and before.templates[0].function.digest == function.digest
        ):
            templates = before.templates  # calls of equal functions travel together
        else:
            single, star, full = (
                CallTemplate(self._batcher, function, form, self._options)
                for form in (SINGLE, STAR, FULL)
            )
            templates = (single, star, full)
        key, kept = id(f), self._kept
        try:
            # Called by the collector, at any point and in any thread: it must not wait for a lock.
            weak = weakref.ref(f, lambda _: kept.pop(key, None))
        except TypeError:  # nothing to recognise the function by later
            return CachedFunction(lambda: None, (), templates, size)  # type: ignore[arg-type]
        return self._keep(key, CachedFunction(weak, references, templates, size))

    def _keep(self, key: int, cached: CachedFunction) -> CachedFunction:
        kept = self._kept
        with self._lock:
            kept.pop(key, None)
            kept[key] = cached
            while len(kept) > 1 and (
                len(kept) > KEPT_FUNCTIONS
                or sum(one.size for one in list(kept.values())) > KEPT_BYTES
            ):
                kept.pop(next(iter(kept)), None)
        return cached


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
    if isinstance(one, (property, classmethod, staticmethod)) or hasattr(one, "cache_parameters"):
        return _of_wrapper(one)
    return None


def _of_function(f: types.FunctionType) -> Iterator[Reference]:
    for name in ("__code__", "__defaults__"):
        yield functools.partial(getattr, f), name, getattr(f, name)
    yield from _items(f.__kwdefaults__ or {})
    yield from _items(vars(f))
    for cell in f.__closure__ or ():
        yield _cell_contents, cell, _cell_contents(cell, MISSING)
    for name in global_names(f.__code__):
        yield f.__globals__.get, name, f.__globals__.get(name, MISSING)


def _of_class(cls: type) -> Iterator[Reference]:
    parts = vars(cls)
    yield _length_of(parts), None, len(parts)
    for name, value in parts.items():
        if name not in ("__dict__", "__weakref__", "__annotations__") and not isinstance(
            value, types.MemberDescriptorType
        ):
            yield parts.get, name, value
    yield from ((_always(base), None, base) for base in (*cls.__bases__, type(cls)))


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


def _cell_contents(cell: types.CellType, default: object) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # the variable has no value yet
        return default


def _always(value: Any) -> Callable[[Any, Any], Any]:
    return lambda key, default: value


def _length_of(mapping: Mapping[str, Any]) -> Callable[[Any, Any], Any]:
    return lambda key, default: len(mapping)
