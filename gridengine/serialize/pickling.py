"""Calls and outcomes to bytes and back.

A payload is a list of buffers: the pickle (protocol 5), then each large buffer of it (an array's
data, say) on its own. On the caller's side these are copies, made once, since the array may change
before it is sent; results are not copied. How a thing that cannot be imported travels is told in
`byvalue`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import math
import os
import pickle
import socket
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from gridengine.errors import PicklingError, RemoteTraceback
from gridengine.serialize import itemwise_unpickler
from gridengine.serialize.by_value import Pickler, Recipe, Reduction, global_names
from gridengine.serialize.classes import is_by_value
from gridengine.serialize.exceptions import presentable, traceback_text
from gridengine.serialize.itemwise_unpickler import Unloadable
from gridengine.serialize.payload import FULL, SINGLE, STAR, Buffer, Payload
from gridengine.serialize.shared_memory import LARGE, Stored, Storing
from gridengine.serialize.shared_objects import PayloadWithObjects, SharedObject, all_needed

Parts: TypeAlias = Iterator[tuple[str, Any]]
"""The parts of an object, each with the words that say where in it they are."""
Store: TypeAlias = Callable[[], Storing]
"""Gives what large buffers are to be copied into."""

OUT_OF_BAND = 64 * 1024
"""From this size in bytes a buffer travels on its own; copying a smaller one costs less than a
frame.
"""
LONG_PATH = 300
"""How many characters an error takes at most to say where in an object something lies."""


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
    body, buffers = _parts_of(payload)
    return pickle.loads(body, buffers=buffers)


def load_items(payload: Payload) -> tuple[list[Any], bool]:
    """Return the items of a payload's list, and whether all are there: in the place of one that
    cannot be rebuilt is an `Unloadable`.

    Raises:
        Exception: this is no list.
    """
    try:
        return load(payload), True
    except KeyboardInterrupt:
        raise
    except BaseException:
        return itemwise_unpickler.load_items(*_parts_of(payload)), False


def _parts_of(payload: Payload) -> tuple[Buffer, list[Buffer]]:
    if isinstance(payload, Stored):
        payload = payload.fetch()
    return payload[0], [_writable(buffer) for buffer in payload[1:]]


class Retrying:
    """A function as it travels together with the exceptions that are to have its calls made
    again.
    """

    def __init__(
        self, function: Callable[..., Any], retry_on: tuple[type[BaseException], ...]
    ) -> None:
        self.function = function
        self.retry_on = retry_on


def dump_function(
    function: Callable[..., Any],
    retry_on: tuple[type[BaseException], ...] = (),
    *,
    most_digested: float = math.inf,
) -> tuple[bytes, list[Buffer]]:
    """Return a function's digest (16 bytes) and its payload, with the exceptions that are to have
    its calls made again.

    Large buffers are copied into a block (see `blocks`). When they are of more than `most_digested`
    bytes they are not digested, which takes as long again, and the function's digest is unlike any
    other.

    Raises:
        PicklingError: the text names the variable that cannot travel.
    """
    whole = Retrying(function, retry_on) if retry_on else function
    payload = _dump(
        whole, f"the function {_name(function)}", lambda: Storing(most_digested=most_digested)
    )
    digest = hashlib.blake2b(digest_size=16)
    for buffer in (
        [payload.digest or os.urandom(16), *payload.others()]
        if isinstance(payload, Stored)
        else payload
    ):
        digest.update(buffer)
    return digest.digest(), payload


def load_function(payload: Payload) -> Callable[..., Any]:
    """Return the function of a payload.

    Raises:
        Exception: whatever importing or rebuilding it raised.
    """
    return load_retrying(payload)[0]


def load_retrying(payload: Payload) -> tuple[Callable[..., Any], tuple[type[BaseException], ...]]:
    """Return the function of a payload, and the exceptions that are to have its calls made again.

    Raises:
        Exception: whatever importing or rebuilding it raised.
    """
    loaded = load(payload)
    return (loaded.function, loaded.retry_on) if type(loaded) is Retrying else (loaded, ())


def dump_calls(
    calls: Sequence[Any],
    *,
    form: int | None = None,
    describe: Callable[[int], str] = "call {}".format,
) -> list[Buffer]:
    """Return the payload of a list of calls.

    form: what the calls are, as in `protocol.Assignment`, for the text of errors (default: guessed
        from each).
    describe: gives a call's name for errors, by its index in the list.

    Raises:
        PicklingError: the text names the call, its argument (the first is argument 1) and what in
        it cannot be pickled.
    """
    return _dump_list(list(calls), describe, lambda call: _arguments(call, form))


def load_calls(payload: Payload) -> list[Any]:
    """Return the calls of a payload.

    Raises:
        Exception: whatever rebuilding an argument raised.
    """
    calls: list[Any] = load(payload)
    return calls


def dump_values(
    values: Sequence[Any], *, describe: Callable[[int], str] = "the result of call {}".format
) -> list[Buffer]:
    """Return the payload of a list of results, to be sent back to where the calls came from.

    Raises:
        PicklingError: the text names the result and what in it cannot be pickled.
    """
    return _dump_list(list(values), describe, _parts, homeward=True)


def load_values(payload: Payload) -> tuple[list[Any], bool]:
    """Return the results of a payload, and whether all are there: in the place of one that cannot
    be rebuilt is an `Unloadable`.

    Raises:
        PicklingError: this is no list.
    """
    try:
        values, complete = load_items(payload)
    except Exception as error:
        raise PicklingError(f"the results cannot be rebuilt here: {_reason(error)}") from error
    for value in () if complete else values:
        if type(value) is Unloadable:
            cause = value.error
            value.error = PicklingError(f"the result cannot be rebuilt here: {_reason(cause)}")
            value.error.__cause__ = cause
    return values, complete


def dump_exception(error: BaseException) -> list[Buffer]:
    """Return the payload of an exception that a call raised, with its traceback as text. Never
    fails.

    What in it cannot be pickled is replaced by its `repr`, and a note says so. An exception that
    cannot travel at all is replaced by a `PicklingError` with its type's name.
    """
    name = _name(type(error))
    try:
        body, *buffers = _dump_error(error)
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        substitute = PicklingError(
            f"an exception of type {name} was raised that cannot be pickled: {_reason(failure)}"
        )
        body, *buffers = _pickle(substitute)
    return [pickle.dumps((name, traceback_text(error), bytes(body)), 5), *buffers]


def load_exception(payload: Payload) -> BaseException:
    """Return the exception of a payload; its `__cause__` is a `RemoteTraceback`.

    One that cannot be rebuilt here is replaced by a `PicklingError` with its type's name.
    """
    name, text, body = pickle.loads(payload[0])
    try:
        error: BaseException = load([body, *payload[1:]])
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        error = PicklingError(
            f"an exception of type {name} was raised that cannot be rebuilt here: "
            f"{_reason(failure)}"
        )
    BaseException.__setattr__(
        error, "__cause__", RemoteTraceback(text)
    )  # a frozen dataclass would refuse
    return error


# Bytes


def _pickle(
    obj: Any,
    *,
    homeward: bool = False,
    recipes: Mapping[type, Recipe] | None = None,
    storing: Storing | None = None,
) -> list[Buffer]:
    buffers: list[Buffer] = []

    def in_band(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < OUT_OF_BAND:
            return True
        if storing is not None and view.nbytes >= LARGE and storing.put(1 + len(buffers), view):
            buffers.append(b"")
            return False
        # What is handed in may change before it is sent, or sent again; what comes back is sent at
        # once.
        buffers.append(view if homeward or view.readonly else view.tobytes())
        return False

    file = io.BytesIO()
    pickler = Pickler(file, 5, buffer_callback=in_band)
    pickler.homeward = homeward
    if recipes:
        pickler.recipes = recipes
    pickler.dump(obj)
    payload = [file.getvalue(), *buffers]
    if storing is not None:
        payload = storing.finish(payload)
    return payload if pickler.needs is None else with_needs(payload, pickler.needs)


def with_needs(payload: list[Buffer], *needs: Iterable[SharedObject]) -> list[Buffer]:
    """Return a payload that says which shared objects are named in it."""
    if not isinstance(payload, Stored):
        payload = PayloadWithObjects(payload)
    payload.needs = all_needed(*needs)
    return payload


def _pickle_anything(
    obj: Any, *, homeward: bool = False, store: Store | None = None
) -> list[Buffer]:
    return with_dill(
        lambda recipes: _pickle_once(obj, homeward=homeward, store=store, recipes=recipes)
    )


def _reduce_socket(pickler: Pickler, one: socket.socket) -> Reduction:
    import multiprocessing.reduction  # noqa: F401

    from gridengine.serialize import descriptors

    return descriptors.recipes()[socket.socket](pickler, one)


SOCKETS: Mapping[type, Recipe] = types.MappingProxyType({socket.socket: _reduce_socket})


def with_dill(pickle_with: Callable[[Mapping[type, Recipe]], list[Buffer]]) -> list[Buffer]:
    """Pickle something without further recipes but those for what `multiprocessing` makes, or, when
    it is refused so, with dill's.
    """
    own: Mapping[type, Recipe] = SOCKETS
    if "multiprocessing.reduction" in sys.modules:
        from gridengine.serialize import descriptors

        own = descriptors.recipes()
    try:
        return pickle_with(own)
    except (TypeError, pickle.PicklingError) as error:
        try:
            return pickle_with({**dill_recipes(), **own})
        except (TypeError, pickle.PicklingError):
            raise error from None  # dill's words would be about dill


def _pickle_once(
    obj: Any, *, homeward: bool, store: Store | None, recipes: Mapping[type, Recipe] | None = None
) -> list[Buffer]:
    if store is None:
        return _pickle(obj, homeward=homeward, recipes=recipes)
    with contextlib.closing(store()) as storing:
        return _pickle(obj, homeward=homeward, recipes=recipes, storing=storing)


def _dump(obj: Any, what: str, store: Store | None = None) -> list[Buffer]:
    return or_explain(lambda: _pickle_anything(obj, store=store), obj, what)


def or_explain(pickle_it: Callable[[], list[Buffer]], obj: Any, what: str) -> list[Buffer]:
    """Pickle an object.

    Raises:
        PicklingError: it cannot be; the text names `what` and the smallest part of it that cannot.
    """
    try:
        return pickle_it()
    except MemoryError:
        raise
    except Exception as error:
        raise _explained(obj, what, error, _parts(obj), seen={id(obj)}) from error


def _dump_list(
    items: list[Any],
    describe: Callable[[int], str],
    parts: Callable[[Any], Parts],
    *,
    homeward: bool = False,
) -> list[Buffer]:
    try:
        return _pickle_anything(items, homeward=homeward)
    except MemoryError:
        raise
    except Exception as error:
        for index, item in enumerate(items):
            failure = _failure(item)
            if failure is not None:
                raise _explained(
                    item, describe(index), failure, parts(item), seen=set()
                ) from failure
        raise PicklingError(f"these calls cannot be pickled together: {_reason(error)}") from error


def _dump_error(error: BaseException) -> list[Buffer]:
    try:
        return _pickle_anything(error, homeward=True)
    except Exception:
        return _pickle_anything(
            presentable(error, lambda obj: _failure(obj) is None), homeward=True
        )


def _writable(buffer: Buffer) -> Buffer:
    return bytearray(buffer) if memoryview(buffer).readonly else buffer


@functools.cache
def dill_recipes() -> Mapping[type, Recipe]:
    """Return how dill takes apart what C `pickle` refuses, but for what would arrive as something
    else: locks and files.
    """
    import dill

    refused = (type(threading.Lock()), type(threading.RLock()), io.IOBase)
    handlers = dict(dill.Pickler.dispatch)
    return {
        kind: functools.partial(_record, handler)
        for kind, handler in handlers.items()
        if not issubclass(kind, refused)
    }


class _Recorder:
    """Stands in for dill's pickler, and keeps the reduction that one of its handlers would have
    saved.
    """

    reduction: Reduction = NotImplemented

    def save_reduce(self, *reduction: Any, obj: Any = None) -> None:
        self.reduction = reduction


def _record(handler: Callable[[_Recorder, Any], None], pickler: Pickler, obj: Any) -> Reduction:
    recorder = _Recorder()
    try:
        handler(recorder, obj)
    except AttributeError:  # it wanted to write bytes of its own
        return NotImplemented
    return recorder.reduction


# Which part of it cannot be pickled


def _failure(obj: Any) -> Exception | None:
    try:
        _pickle_anything(obj)
    except Exception as error:
        return error
    return None


def _explained(
    obj: Any, what: str, error: Exception, parts: Parts, *, seen: set[int]
) -> PicklingError:
    """Return an error that names the smallest part that cannot be pickled."""
    path, inside = "", False
    kinds: set[type] = set()
    # What a recipe has refused is named itself, not a part of it.
    while (
        not (id(obj) in seen and getattr(error, "refused", None) is obj)
        and (found := _first_failure(parts, seen)) is not None
    ):
        label, part, failure = found
        if (
            isinstance(error, RecursionError) and type(part) in kinds
        ):  # what is nested too deeply is told from its outside
            break
        obj, error = part, failure
        kinds.add(type(obj))
        if label.startswith("argument"):
            what = f"{label} of {what}"
        else:
            step = label[0] in "[."
            path += f", its {label}" if not step else label if inside else f", at {label}"
            inside = step
        seen.add(id(obj))
        parts = _parts(obj)
    if len(path) > LONG_PATH:
        path = f"{path[: LONG_PATH // 2]}...{path[-LONG_PATH // 2 :]}"
    hint = (
        "it is nested too deeply; hand it over as a flat list of its parts, say"
        if isinstance(error, RecursionError)
        else None
    )
    return PicklingError(
        f"{what}{path} (a {_type_name(obj)}) cannot be pickled: {_reason(error)}", hint=hint
    )


def _first_failure(parts: Parts, seen: set[int]) -> tuple[str, Any, Exception] | None:
    for label, part in parts:
        failure = None if id(part) in seen else _failure(part)
        if failure is not None:
            return label, part, failure
    return None


def _arguments(call: Any, form: int | None) -> Parts:
    if form is None:
        form = (
            SINGLE
            if not isinstance(call, tuple)
            else FULL
            if tuple(map(type, call)) == (tuple, dict)
            else STAR
        )
    positional, named = ((call,), {}) if form == SINGLE else (call, {}) if form == STAR else call
    for index, value in enumerate(positional, 1):
        yield f"argument {index}", value
    for name, value in named.items():
        yield f"argument {name!r}", value


def _parts(obj: Any) -> Parts:
    if isinstance(obj, types.FunctionType):
        yield from _function_parts(obj)
    elif isinstance(obj, functools.partial):
        yield "function", obj.func
        yield from _arguments((obj.args, obj.keywords), FULL)
    elif isinstance(obj, types.MethodType):
        yield "object", obj.__self__
        yield "function", obj.__func__
    elif isinstance(obj, Mapping):
        yield from ((f"[{key!r}]", value) for key, value in obj.items())
        yield from (("key", key) for key in obj)
    elif isinstance(obj, (list, tuple, set, frozenset)):
        yield from ((f"[{index}]", value) for index, value in enumerate(obj))
    elif isinstance(obj, type):
        yield from (
            (f".{name}", value)
            for name, value in vars(obj).items()
            if not name.startswith("__") or callable(value)
        )
    else:
        yield from ((f".{name}", value) for name, value in getattr(obj, "__dict__", {}).items())
        if is_by_value(type(obj)):
            yield "class", type(obj)


def _function_parts(function: types.FunctionType) -> Parts:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"captured variable {name!r}", cell.cell_contents
        except ValueError:  # it has no value yet
            continue
    for name in global_names(function.__code__):
        if name in function.__globals__:
            yield f"global variable {name!r}", function.__globals__[name]
    yield "default values", (function.__defaults__, function.__kwdefaults__)
    yield "annotations", function.__annotations__
    yield "attributes", vars(function)


def _name(obj: Any) -> str:
    return str(getattr(obj, "__qualname__", None) or _type_name(obj))


def _type_name(obj: Any) -> str:
    kind = type(obj)
    return (
        kind.__qualname__
        if kind.__module__ in ("builtins", "__main__")
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def _reason(error: BaseException) -> str:
    return f"{type(error).__qualname__}: {error}"
