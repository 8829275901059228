"""Functions as they travel: pickled once, with the surroundings of their caller.

The version of a function that runs is the one that was submitted. To pickle it for each of a
hundred thousand calls would cost more than the calls do. So the objects that a function refers to
(global variables, closure cells, default values) are remembered. As long as they are the same
objects, and none of them can change in place, the pickle is still good. Otherwise the function is
pickled again; its large buffers are then compared with those of the last time, not copied.
"""

from __future__ import annotations

import abc
import functools
import math
import os
import sys
import threading
import types
import weakref
from _blake2 import blake2b
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from gridengine.call_context.coroutines import synchronous
from gridengine.call_context.current_call import GVAR
from gridengine.call_context.environment import Variables, own_variables, present_state
from gridengine.client.log_relay import log_levels
from gridengine.client.options import CallOptions
from gridengine.display import function_name
from gridengine.errors import ConfigurationError
from gridengine.requests import Function
from gridengine.serialize import pickling, shared_memory
from gridengine.serialize.by_value import named_in_texts
from gridengine.serialize.byte_code import global_names
from gridengine.serialize.classes import check_imported, is_by_value, is_importable
from gridengine.serialize.functions import LOOKED_UP, contents_of, names_in_texts
from gridengine.serialize.lazy_imports import LAZY
from gridengine.serialize.namespaces import Origin
from gridengine.serialize.payload import ATOMS, size_of
from gridengine.serialize.references import ResultHolder, awaited_in, numbers, refer_to
from gridengine.serialize.sentinels import SENTINEL
from gridengine.serialize.shared_objects import Shared, SharedObject, needs_of
from gridengine.serialize.type_parameters import FIXED
from gridengine.serialize.users_modules import own_modules
from gridengine.system.machine import present_umask
from gridengine.wire.messages import CallerState

Surroundings: TypeAlias = tuple[bytes, tuple[bytes, ...], bytes, tuple[bytes, ...], bytes, bytes]
"""The caller's process, as its calls find it: the working directory, `sys.path` with absolute
entries, the environment, `sys.argv`, the state of the interpreter, and a digest of all of these, of
the process and of the present state of the user's modules. Workers that outlive the process load
the functions of the next process anew, and with them edited modules.
"""


def surroundings() -> Surroundings:
    """Return the surroundings of calls that are submitted now.

    Raises:
        ConfigurationError: the working directory is gone.
    """
    try:
        directory = os.getcwd()  # noqa: PTH109 - paid for each map
        variables, own, state = _environment(), own_modules(), present_state()
        modules = own.generation, own.folders
        return _surroundings(directory, tuple(sys.path), tuple(sys.argv), variables, state, modules)
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
    modules: tuple[int, tuple[str, ...]],
) -> Surroundings:
    generation, folders = modules
    path = [os.fsencode(Path(directory, entry)) for entry in entries]
    if not all(Path(entry).is_absolute() for entry in entries):
        # Such an entry, as the "" of a prompt, meant another folder before a `chdir`.
        path += [one for one in map(os.fsencode, folders) if one not in path]
    arguments = tuple(os.fsencode(str(one)) for one in argv)
    parts = [os.fsencode(directory), *path, b"", *arguments, b"", variables, state]
    if not GVAR.in_runner:  # modules may have been edited since a process before this one
        parts += [_this_process(), b"%d" % generation]
    digest = blake2b(b"\0".join(parts), digest_size=16).digest()
    return os.fsencode(directory), tuple(path), variables, arguments, state, digest


@functools.cache
def _this_process() -> bytes:
    return os.urandom(16)


def _environment() -> bytes:
    """Return the environment in the form of /proc/self/environ; the same object as long as it does
    not change. Variables that say what a call was allocated are not passed on to nested calls.
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
    """Return a cell with the environment that was last read, as a dictionary and as one text."""
    return {}


T = TypeVar("T")

MOST_CACHED, MOST_CACHED_BYTES = 64, 16_000_000
"""A cache has at most this many functions and bytes of pickles, but always one function."""
BY_NAME = (
    types.ModuleType,
    types.BuiltinFunctionType,
    types.CodeType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    SharedObject,
    ContextVar,
    LAZY,
    SENTINEL,
    *FIXED,
)
WRAPPERS = (property, classmethod, staticmethod, functools._lru_cache_wrapper)
UNWATCHED = frozenset({"__dict__", "__weakref__", "__annotations__", *LOOKED_UP})
"""Attributes of a class that do not change how its calls run."""
MISSING = object()

Reference: TypeAlias = tuple[Callable[[Any, Any], Any], Any, object]
"""A look-up, its key, and the value that it returned when the function was pickled."""


class CachedFunction(Struct, Generic[T], frozen=True):
    """A function's cached value. It is valid while each of the `references` still returns the same
    object; `references` is None if the function can change unseen.

    The function itself is referred to weakly: the cache does not keep it alive.
    """

    f: Callable[[], Callable[..., Any] | None]
    references: tuple[Reference, ...] | None
    value: T
    size: float


class FunctionCache(Generic[T]):
    """Values made of functions that are submitted again and again.

    Args:
        make: returns the value for a function and the size of its pickle in bytes, given the
            function and its earlier value or None. A value of infinite size is not cached.
    """

    def __init__(self, make: Callable[[Callable[..., Any], T | None], tuple[T, float]]) -> None:
        self._make = make
        self._cached: dict[int, CachedFunction[T]] = {}
        self._lock = threading.Lock()

    def find(self, f: Callable[..., Any]) -> T:
        """Return the value for a function in its present state.

        Raises:
            PicklingError: the function cannot be pickled.
        """
        before = self._cached.get(id(f))
        if before is not None and before.f() is not f:
            before = None
        if before is not None and before.references is not None:
            for look_up, key, value in before.references:
                if look_up(key, MISSING) is not value:
                    break
            else:  # its pickle would be the same
                return before.value
        return self._renew(f, before)

    def _renew(self, f: Callable[..., Any], before: CachedFunction[T] | None) -> T:
        references = references_of(f)
        value, size = self._make(f, None if before is None else before.value)
        if size == math.inf:
            return value
        try:
            weak = weakref.ref(f, functools.partial(_forget, weakref.ref(self), id(f)))
        except TypeError:  # without a weak reference it cannot be recognised later
            return value
        self._add(id(f), CachedFunction(weak, references, value, size))
        return value

    def _add(self, key: int, one: CachedFunction[T]) -> None:
        cached = self._cached
        with self._lock:
            cached.pop(key, None)
            cached[key] = one
            for oldest in list(cached)[:-1]:
                if (
                    len(cached) <= MOST_CACHED
                    and sum(one.size for one in list(cached.values())) <= MOST_CACHED_BYTES
                ):
                    return
                cached.pop(oldest, None)


def _forget(cache: weakref.ref[FunctionCache[Any]], key: int, _: object) -> None:
    """Drop the value of a function that is gone. The garbage collector calls this, at any point and
    in any thread, so it must not wait for a lock.
    """
    if (alive := cache()) is not None:
        alive._cached.pop(key, None)


def references_of(f: Callable[..., Any]) -> tuple[Reference, ...] | None:
    """Return all references on which the pickle of a function depends; None if an object among them
    can change in place.
    """
    found: list[Reference] = []
    todo: list[Any] = [f]
    seen: set[int] = set()
    origins: dict[int, Origin] = {}
    while todo:
        one = todo.pop()
        if type(one) in ATOMS or id(one) in seen:
            continue
        seen.add(id(one))
        parts = _parts(one, origins)
        if parts is None:
            return None
        for look_up, key, value in parts:
            found.append((look_up, key, value))
            todo.append(value)
    return tuple(found)


def _parts(one: Any, origins: dict[int, Origin]) -> Iterator[Reference] | None:
    """Return the references of an object to others; None if it can change unseen."""
    if isinstance(one, types.FunctionType):
        return iter(()) if is_importable(one) else _of_function(one, origins)
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


def _of_function(f: types.FunctionType, origins: dict[int, Origin]) -> Iterator[Reference]:
    for name in ("__code__", "__defaults__"):
        yield functools.partial(getattr, f), name, getattr(f, name)
    yield from _items(lambda: f.__kwdefaults__ or {})
    yield from _items(lambda: vars(f))
    for cell in f.__closure__ or ():
        yield contents_of, cell, contents_of(cell, MISSING)
    for name in global_names(f.__code__):
        yield f.__globals__.get, name, f.__globals__.get(name, MISSING)
    in_texts = named_in_texts(f, origins)
    for name in names_in_texts(f):
        value = f.__globals__.get(name, MISSING)
        if value is MISSING or name in in_texts:
            yield f.__globals__.get, name, value
        else:  # it stays behind: what happens in it does not matter
            yield _is_still(f.__globals__, name, value), None, True


def _of_class(cls: type) -> Iterator[Reference]:
    parts = vars(cls)
    yield (lambda key, default: len(parts)), None, len(parts)
    for name, value in parts.items():
        if name not in UNWATCHED and not isinstance(value, types.MemberDescriptorType):
            yield parts.get, name, value
    yield functools.partial(getattr, cls), "__bases__", cls.__bases__
    yield _always(type(cls)), None, type(cls)
    yield _registrations_since(abc.get_cache_token()), None, True


def _of_partial(one: functools.partial[Any]) -> Iterator[Reference]:
    yield from ((_always(value), None, value) for value in (one.func, *one.args))
    yield from _items(lambda: one.keywords)
    yield from _items(lambda: vars(one))


def _of_wrapper(one: Any) -> Iterator[Reference]:
    for name in ("fget", "fset", "fdel", "__func__", "__wrapped__"):
        if hasattr(one, name):
            yield functools.partial(getattr, one), name, getattr(one, name)


def _items(present: Callable[[], Mapping[str, Any]]) -> Iterator[Reference]:
    """Yield the references of a mapping that may be replaced as a whole."""
    yield (lambda key, default: len(present())), None, len(present())
    for name, value in present().items():
        yield (lambda key, default: present().get(key, default)), name, value


def _is_still(names: dict[str, Any], name: str, value: Any) -> Callable[[Any, Any], bool]:
    return lambda key, default: names.get(name) is value


def _always(value: Any) -> Callable[[Any, Any], Any]:
    return lambda key, default: value


def _registrations_since(token: object) -> Callable[[Any, Any], bool]:
    """Return a look-up that returns True until `ABC.register` is called for any class."""
    return lambda key, default: abc.get_cache_token() == token


SMALL_BYTES = 64 * 1024
"""Up to this size a pickled function is cached from one map to the next."""
DEFAULT = CallOptions()


def function_of_map(f: Callable[..., Any], options: CallOptions = DEFAULT) -> Function:
    """Return a map's function as it travels. Small functions are pickled once for several maps.

    Raises:
        PicklingError: it cannot be pickled.
        ConfigurationError: the working directory is gone.
    """
    if options.exceptions or options.logs:
        most = shared_memory.IDLE_BYTES
        return make_function(f, options.exceptions, logs=options.logs, most_digested=most)
    own_modules().check()
    return _recent_functions(surroundings()).find(f)


@functools.lru_cache(maxsize=1)
def _recent_functions(_: Surroundings) -> FunctionCache[Function]:
    """Return the functions of maps that were pickled in these surroundings."""

    def make(f: Callable[..., Any], before: Function | None) -> tuple[Function, float]:
        function = make_function(f, most_digested=shared_memory.IDLE_BYTES)
        size = size_of(function.payload)
        is_cached = size <= SMALL_BYTES and not function.needs and not function.after
        return function, size if is_cached else math.inf

    return FunctionCache(make)


def make_function(
    f: Callable[..., Any],
    retry_on: tuple[type[BaseException], ...] = (),
    *,
    logs: bool = False,
    most_digested: float = math.inf,
    before: Function | None = None,
) -> Function:
    """Return a callable as it travels: pickled, with the surroundings of its calls.

    retry_on: the exception classes after which a call is run again.
    logs: whether log records of its calls are passed to this process's loggers.
    most_digested, before: see `pickling.dump_function`; `before` is what this returned last time.

    Raises:
        PicklingError: it cannot be pickled.
        TypeError: it is an async generator function.
        ConfigurationError: the working directory is gone; or see `check_imported`.
    """
    if GVAR.in_runner:
        check_imported(f)
        if GVAR.is_importing:  # see `import_for_effect`: the calls would import the module, too
            raise ConfigurationError("a module makes calls when it is imported")
    own_modules().check()
    refer_to((Future, ResultHolder), _find_reference)
    called = synchronous(f)
    known = () if before is None else before.payload
    digest, payload = pickling.dump_function(
        called, retry_on, most_digested=most_digested, before=known
    )
    directory, path, variables, arguments, state, around = surroundings()
    umask = present_umask()
    # The same function in another folder, or with another path, may do something else.
    digest = blake2b(b"%d " % umask + around, key=digest, digest_size=16).digest()
    levels = log_levels() if logs else None
    if levels is not None:
        digest = blake2b(repr(levels).encode(), key=digest, digest_size=16).digest()
    caller = CallerState(variables, umask, arguments, levels, state)
    needs, after = needs_of(payload), numbers(awaited_in(payload))
    return Function(
        digest=digest,
        payload=payload,
        path=path,
        directory=directory,
        name=function_name(f),
        needs=needs,
        caller=caller,
        after=after,
        parameters=parameter_names(f),
    )


_SEEDED = "gridengine.call_context.random_streams"
_WRAPPERS = _SEEDED, "gridengine.call_context.coroutines", "gridengine.client.initializer"
"""The modules whose objects pass arguments on to their `_function`; `Seeded` keeps the last."""


def parameter_names(f: Any) -> tuple[str, ...]:
    """Return the names of a function's positional parameters; none where its code does not tell.
    The last is empty if calls have a number behind their arguments.
    """
    if (module := type(f).__module__) in _WRAPPERS:
        return (*parameter_names(f._function), *[""] * (module == _SEEDED))
    if isinstance(f, functools.partial):
        return parameter_names(f.func)[len(f.args) :]
    code = getattr(f, "__code__", None)
    if not isinstance(code, types.CodeType):
        return ()
    return code.co_varnames[isinstance(f, types.MethodType) : code.co_argcount]


def _find_reference(obj: Any) -> Any:
    # Imported here, because most maps need none of it.
    from gridengine.client.dependencies import known_references

    return known_references().find(obj)
