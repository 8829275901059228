"""Calls and outcomes to bytes and back.

A payload is a list of buffers: the pickle (protocol 5), then each large buffer of it (an array's data, say) on its own,
not copied. How a thing that cannot be imported travels is told in `byvalue`.
"""

from __future__ import annotations

import functools
import hashlib
import io
import pickle
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gridengine.byvalue import Pickler, Recipe, global_names
from gridengine.errors import PicklingError, RemoteTraceback
from gridengine.protocol import Buffer, Payload

OUT_OF_BAND = 64 * 1024
"""From this size in bytes a buffer travels on its own; copying a smaller one costs less than a frame."""


def dump(obj: Any) -> list[Buffer]:
    """Return an object's payload.

    Raises:
        PicklingError: it, or something in it, cannot be pickled; the text says where.
    """
    return _dump(obj, "the object")


def load(payload: Payload) -> Any:
    """Return the object of a payload.

    Arrays are writable where they were writable; a large buffer that is not is copied for that.

    Raises:
        Exception: whatever rebuilding the object raised.
    """
    if len(payload) == 1:
        return pickle.loads(payload[0])
    return pickle.loads(payload[0], buffers=[_writable(buffer) for buffer in payload[1:]])


def dump_function(function: Callable[..., Any]) -> tuple[bytes, list[Buffer]]:
    """Return a function's digest (16 bytes) and its payload.

    Raises:
        PicklingError: the text names the variable that cannot travel.
    """
    payload = _dump(function, f"the function {_name(function)}")
    digest = hashlib.blake2b(digest_size=16)
    for buffer in payload:
        digest.update(buffer)
    return digest.digest(), payload


def load_function(payload: Payload) -> Callable[..., Any]:
    """Return the function of a payload.

    Raises:
        Exception: whatever importing or rebuilding it raised.
    """
    function: Callable[..., Any] = load(payload)
    return function


def dump_calls(calls: Sequence[Any], *, describe: Callable[[int], str] = "call {}".format) -> list[Buffer]:
    """Return the payload of a list of calls, each in one of the forms of `protocol.Assignment`.

    describe: gives a call's name for errors, by its index in the list.

    Raises:
        PicklingError: the text names the call, its argument (the first is argument 1) and what in it cannot be pickled.
    """
    return _dump_list(list(calls), describe, _arguments)


def load_calls(payload: Payload) -> list[Any]:
    """Return the calls of a payload.

    Raises:
        Exception: whatever rebuilding an argument raised.
    """
    calls: list[Any] = load(payload)
    return calls


def dump_values(values: Sequence[Any], *, describe: Callable[[int], str] = "the result of call {}".format) -> list[Buffer]:
    """Return the payload of a list of results, to be sent back to where the calls came from.

    Raises:
        PicklingError: the text names the result and what in it cannot be pickled.
    """
    return _dump_list(list(values), describe, _children, homeward=True)


def load_values(payload: Payload) -> list[Any]:
    """Return the results of a payload.

    Raises:
        PicklingError: one of them cannot be rebuilt here.
    """
    try:
        values: list[Any] = load(payload)
        return values
    except Exception as error:
        raise PicklingError(f"the results cannot be rebuilt here: {_reason(error)}") from error


def dump_exception(error: BaseException) -> list[Buffer]:
    """Return the payload of an exception that a call raised, with its traceback as text. Never fails.

    Attributes that cannot be pickled are replaced by their `repr`, and a note says so. An exception that cannot travel at all
    is replaced by a `PicklingError` with its type's name.
    """
    text = _traceback_text(error)
    for candidate in (lambda: error, lambda: _presentable(error)):
        try:
            body, *buffers = _pickle(candidate(), homeward=True)
            return [pickle.dumps((_name(type(error)), text, bytes(body)), 5), *buffers]
        except Exception as failure:
            reason = _reason(failure)
    message = f"an exception of type {_name(type(error))} was raised that cannot be pickled: {reason}"
    return [pickle.dumps((_name(type(error)), text, pickle.dumps(PicklingError(message))), 5)]


def load_exception(payload: Payload) -> BaseException:
    """Return the exception of a payload; its `__cause__` is a `RemoteTraceback`.

    One that cannot be rebuilt here is replaced by a `PicklingError` with its type's name.
    """
    name, text, body = pickle.loads(payload[0])
    try:
        error: BaseException = load([body, *payload[1:]])
    except Exception as failure:
        error = PicklingError(f"an exception of type {name} was raised that cannot be rebuilt here: {_reason(failure)}")
    error.__cause__ = RemoteTraceback(text)
    return error


# Bytes


def _pickle(obj: Any, *, homeward: bool = False, recipes: Mapping[type, Recipe] | None = None) -> list[Buffer]:
    buffers: list[Buffer] = []

    def in_band(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < OUT_OF_BAND:
            return True
        buffers.append(view)
        return False

    file = io.BytesIO()
    pickler = Pickler(file, 5, buffer_callback=in_band)
    if homeward:
        pickler.homeward = True
    if recipes:
        pickler.recipes = recipes
    pickler.dump(obj)
    return [file.getvalue(), *buffers]


def _try_pickle(obj: Any, *, homeward: bool = False) -> list[Buffer]:
    try:
        return _pickle(obj, homeward=homeward)
    except Exception as error:
        try:
            return _pickle(obj, homeward=homeward, recipes=dill_recipes())
        except Exception:
            raise error from None  # dill's own words would be about dill


def _dump(obj: Any, what: str, *, homeward: bool = False) -> list[Buffer]:
    try:
        return _try_pickle(obj, homeward=homeward)
    except Exception as error:
        raise _explained(obj, what, error) from error


def _dump_list(
    items: list[Any], describe: Callable[[int], str], children: Callable[[Any], Iterator[tuple[str, Any]]], *, homeward: bool = False
) -> list[Buffer]:
    try:
        return _try_pickle(items, homeward=homeward)
    except Exception as error:
        for index, item in enumerate(items):
            failure = _failure(item)
            if failure is not None:
                raise _explained(item, describe(index), failure, children) from failure
        raise _explained(items, "the list of calls", error) from error


def _writable(buffer: Buffer) -> Buffer:
    return bytearray(buffer) if memoryview(buffer).readonly else buffer


@functools.cache
def dill_recipes() -> Mapping[type, Recipe]:
    """Return how dill pickles what C `pickle` refuses, but for what would arrive as something else: locks, files."""
    return {}


# Which part of it


def _failure(obj: Any) -> Exception | None:
    try:
        _try_pickle(obj)
    except Exception as error:
        return error
    return None


def _explained(
    obj: Any, what: str, error: Exception, children: Callable[[Any], Iterator[tuple[str, Any]]] | None = None
) -> PicklingError:
    path: list[str] = []
    seen: set[int] = set()
    while len(path) < 10:
        seen.add(id(obj))
        for label, child in (children or _children)(obj):
            failure = None if id(child) in seen else _failure(child)
            if failure is not None:
                obj, error, children = child, failure, None
                path.append(label)
                break
        else:
            break
    where = ", ".join([what, *path])
    return PicklingError(f"{where} (a {_name(type(obj))}) cannot be pickled: {_reason(error)}")


def _arguments(call: Any) -> Iterator[tuple[str, Any]]:
    return _children(call)


def _children(obj: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(obj, types.FunctionType):
        for name, cell in zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=True):
            yield f"its variable {name!r}", cell.cell_contents
        for name in global_names(obj.__code__):
            if name in obj.__globals__:
                yield f"its global variable {name!r}", obj.__globals__[name]
    elif isinstance(obj, Mapping):
        for key, value in obj.items():
            yield f"[{key!r}]", value
    elif isinstance(obj, (list, tuple, set, frozenset)):
        for index, value in enumerate(obj):
            yield f"[{index}]", value
    else:
        for name, value in getattr(obj, "__dict__", {}).items():
            yield f".{name}", value


def _name(obj: Any) -> str:
    return getattr(obj, "__qualname__", None) or repr(obj)


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


# Exceptions


def _traceback_text(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _presentable(error: BaseException) -> BaseException:
    return error
