"""Functions, calls and outcomes to payloads, and back.

On the caller's side large buffers are copied once, since an array may change before it is sent.
Buffers of results are not copied. `by_value` pickles the objects that cannot be imported.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gridengine.errors import GridEngineError, PicklingError, RemoteTraceback, no_memory
from gridengine.serialize import itemwise_unpickler, shared_objects
from gridengine.serialize.encoding import SOCKETS, encode, with_dill
from gridengine.serialize.exceptions import PartialResults, picklable_copy, traceback_text
from gridengine.serialize.itemwise_unpickler import Unloadable
from gridengine.serialize.payload import ATOMS, SINGLE, Buffer, Payload, PayloadAtWorker
from gridengine.serialize.recipes import Recipe
from gridengine.serialize.shared_memory import BlockWriter, StoredPayload, writable
from gridengine.serialize.shared_objects import NAME_BYTES, RepeatedArrays
from gridengine.serialize.unpicklable import (
    arguments,
    cause_of,
    failure_of,
    name_of,
    or_explain,
    or_explain_item,
    parts_of,
    reason,
)


def dump(obj: Any) -> list[Buffer]:
    """Return an object's payload.

    Raises:
        PicklingError: the object, or a part of it, cannot be pickled; the text says where.
    """
    return or_explain(lambda: with_dill(functools.partial(encode, obj)), obj, "the object")


def load(payload: Payload) -> Any:
    """Return the object of a payload.

    Arrays are writable if they were writable when they were pickled; a large buffer that cannot be
    written to is copied for that.

    Raises:
        Exception: an error of rebuilding the object.
    """
    if len(payload) == 1:
        return pickle.loads(payload[0])
    body, buffers = _writable(payload)
    return pickle.loads(body, buffers=buffers)


def load_items(payload: Payload) -> tuple[list[Any], bool]:
    """Return the items of a payload's list, and whether all could be rebuilt. An `Unloadable` is in
    the place of an item that could not.

    Raises:
        Exception: the payload has no list.
    """
    try:
        # Like `load`, without calling it: each call pays for this.
        return pickle.loads(payload[0]) if len(payload) == 1 else load(payload), True
    except KeyboardInterrupt:
        raise
    except BaseException:
        return itemwise_unpickler.load_items(*_writable(payload)), False


def _writable(payload: Payload) -> tuple[Buffer, list[Buffer]]:
    """Return the pickle of a payload, and its buffers, which may be written to."""
    body, *buffers = fetched(payload)
    buffers = [
        one if len(one) > NAME_BYTES else fetched(shared_objects.buffers_of(bytes(one)))[0]
        for one in buffers
    ]
    return body, list(map(writable, buffers))


def fetched(payload: Payload) -> Payload:
    """Return the payload itself, for one that stands for a payload elsewhere.

    Raises:
        Exception: the payload cannot be fetched.
    """
    return payload.fetch() if isinstance(payload, StoredPayload | PayloadAtWorker) else payload


class RetriedFunction:
    """A function and the exceptions after which its calls are retried, as they travel together."""

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
    before: Payload = (),
) -> tuple[bytes, list[Buffer]]:
    """Return a function's digest (16 bytes) and its payload, with the exceptions after which its
    calls are retried.

    Large buffers are copied into a block (see `shared_memory`). If they have more than
    `most_digested` bytes together, they are not digested, which would take as long again; the
    function's digest is then random. Those that are the same as in the payload `before` are
    neither copied nor digested, only compared.

    Raises:
        PicklingError: the function cannot be pickled; the text names the variable.
    """
    from _blake2 import blake2b  # not `hashlib`, which loads OpenSSL: 2 ms of a start

    whole = RetriedFunction(function, retry_on) if retry_on else function

    def encode_with(recipes: Mapping[type, Recipe]) -> list[Buffer]:
        with contextlib.closing(BlockWriter(most_digested=most_digested, before=before)) as writer:
            return encode(whole, recipes, takes_futures=True, writer=writer)

    what = f"the function {name_of(function)}"
    payload = or_explain(lambda: with_dill(encode_with), whole, what)
    digest, digested = blake2b(digest_size=16), payload
    if isinstance(payload, StoredPayload):
        digested = [payload.digest or os.urandom(16), *payload.others()]
    for buffer in digested:
        digest.update(buffer)
    return digest.digest(), payload


def load_function(payload: Payload) -> tuple[Callable[..., Any], tuple[type[BaseException], ...]]:
    """Return the function of a payload, and the exceptions after which its calls are retried.

    Raises:
        Exception: an error of importing or rebuilding the function.
    """
    loaded = load(payload)
    return (loaded.function, loaded.retry_on) if type(loaded) is RetriedFunction else (loaded, ())


def dump_calls(
    calls: Sequence[Any],
    *,
    form: int = SINGLE,
    describe: Callable[[int], str] = "call {}".format,
    repeated: RepeatedArrays | None = None,
) -> list[Buffer]:
    """Return the payload of a list of calls.

    form: the form of the calls (`payload.SINGLE`, `STAR` or `FULL`), for the text of errors.
    describe: returns a call's name for errors, by its index in the list.
    repeated: knows the large arrays of earlier calls.

    Raises:
        PicklingError: the text names the call, its argument (of several, the first is argument 1),
            and the part of the argument that cannot be pickled.
    """
    how = functools.partial(encode, list(calls), takes_futures=True, repeated=repeated)
    dump = functools.partial(with_dill, how)
    return or_explain_item(dump, calls, describe, functools.partial(arguments, form))


def dump_values(
    values: Sequence[Any],
    *,
    describe: Callable[[int], str] = "the result of call {}".format,
    whole_classes: bool = False,
) -> list[Buffer]:
    """Return the payload of a list of results, to be sent to the process that the calls came from.

    whole_classes: that process may forward the results to others, as arguments of other calls.

    Raises:
        PicklingError: the text names the result, and the part of it that cannot be pickled.
    """
    if len(values) == 1 and type(values[0]) in ATOMS:
        try:
            return [pickle.dumps([values[0]], 5)]
        except MemoryError as error:
            raise no_memory(f"to pickle {describe(0)}") from error
    how = functools.partial(encode, list(values), for_caller=True, whole_classes=whole_classes)
    dump = functools.partial(with_dill, how)
    return or_explain_item(dump, values, describe, parts_of, for_caller=True)


def load_result(payload: Payload, item: int) -> Any:
    """Rebuild one result of a payload, and return it. Data in buffers that may be written to is not
    copied.

    Raises:
        Exception: an error of rebuilding the result.
    """
    value = load_items(payload)[0][item]
    if type(value) is Unloadable:
        raise value.error
    return value


def load_values(payload: Payload) -> tuple[list[Any], bool]:
    """Return the results of a payload, and whether all could be rebuilt. An `Unloadable` stands in
    the place of a result that could not.

    Raises:
        PicklingError: the payload has no list.
    """
    try:
        values, complete = load_items(payload)
    except Exception as error:
        if isinstance(error, MemoryError):
            raise no_memory("for the results") from error
        told = PicklingError(f"the results cannot be rebuilt here: {reason(error)}")
        raise told from cause_of(error)
    for value in () if complete else values:
        if type(value) is Unloadable:
            cause = value.error
            value.error = PicklingError(f"the result cannot be rebuilt here: {reason(cause)}")
            value.error.__cause__ = cause_of(cause)
    return values, complete


def part_of_values(payload: Payload, first: int, stop: int) -> list[Buffer]:
    """Return the payload of some results of a payload, without rebuilding any: operations at the
    end of the pickle delete the others from the list (see `pickletools`).
    """
    body, *buffers = fetched(payload)
    begin, end = first.to_bytes(4, "little"), stop.to_bytes(4, "little")
    # Entry 0 of the memo may be replaced: nothing refers to it at the end of the pickle.
    others = (
        pickle.BININT + end + pickle.NONE,
        pickle.NONE + pickle.BININT + begin,
    )
    parts = [bytes(body)[: -len(pickle.STOP)], pickle.BINPUT, b"\0"]
    for numbers in others:
        parts += pickle.GLOBAL, b"operator\ndelitem\n", pickle.MARK, pickle.BINGET, b"\0"
        parts += pickle.GLOBAL, b"builtins\nslice\n", pickle.MARK, numbers, pickle.TUPLE
        parts += pickle.REDUCE, pickle.TUPLE, pickle.REDUCE, pickle.POP
    return [b"".join([*parts, pickle.STOP]), *buffers]


def dump_exception(
    error: BaseException, arguments: str = "", *, origin: BaseException | None = None
) -> list[Buffer]:
    """Return the payload of an exception that a call raised. As text it has the traceback, of the
    exception or of its `origin`, and the call's arguments. Never fails.

    A part that cannot be pickled is replaced by its `repr`, and a note says so. An exception that
    cannot travel at all is replaced by a `PicklingError` with its type's name.
    """
    name = name_of(type(error))
    try:
        PartialResults.discard(error)
        body, *buffers = _dump_error(error)
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        substitute = PicklingError(
            f"an exception of type {name} was raised that cannot be pickled: {reason(failure)}"
        )
        body, *buffers = encode(substitute, SOCKETS)
    origin = origin or error
    told = isinstance(error, GridEngineError) and origin.__traceback__ is None  # never raised
    text = "" if told else traceback_text(origin)
    return [pickle.dumps((name, text, bytes(body), arguments), 5), *buffers]


def _dump_error(error: BaseException) -> list[Buffer]:
    try:
        return with_dill(functools.partial(encode, error, for_caller=True))
    except Exception:
        shown = picklable_copy(error, lambda obj: failure_of(obj) is None)
        return with_dill(functools.partial(encode, shown, for_caller=True))


def raised_type(payload: Payload) -> str:
    """Return the name of the type of a payload's exception, without loading the user's objects."""
    return str(pickle.loads(payload[0])[0])


def load_exception(payload: Payload) -> BaseException:
    """Return the exception of a payload. Its `__cause__` is a `RemoteTraceback`, unless it is an
    error of the package that was never raised.
    """
    return load_raised(payload)[0]


def load_raised(payload: Payload) -> tuple[BaseException, str]:
    """Return the exception of a payload, like `load_exception`, and the call's arguments as text.

    An exception that cannot be rebuilt here is replaced by a `PicklingError` with its type's name.
    """
    name, text, body, arguments = pickle.loads(payload[0])
    try:
        error: BaseException = load([body, *payload[1:]])
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        error = PicklingError(
            f"an exception of type {name} was raised that cannot be rebuilt here: {reason(failure)}"
        )
    if text:
        cause = RemoteTraceback(text)
        BaseException.__setattr__(error, "__cause__", cause)  # a frozen dataclass would refuse
    return error, arguments
