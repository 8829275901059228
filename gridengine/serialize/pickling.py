"""Functions, calls and outcomes to payloads and back.

On the caller's side large buffers are copied, once, since an array may change before it is sent;
those of results are not. `by_value` is about what cannot be imported.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gridengine.errors import GridEngineError, PicklingError, RemoteTraceback
from gridengine.serialize import itemwise_unpickler, shared_objects
from gridengine.serialize.by_value import Recipe
from gridengine.serialize.encoding import SOCKETS, encode, with_dill
from gridengine.serialize.exceptions import PartialResults, picklable_copy, traceback_text
from gridengine.serialize.itemwise_unpickler import Unloadable
from gridengine.serialize.kept_payload import KeptPayload
from gridengine.serialize.payload import ATOMS, Buffer, Payload
from gridengine.serialize.shared_memory import BlockWriter, StoredPayload, writable
from gridengine.serialize.shared_objects import NAME_BYTES
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

if TYPE_CHECKING:
    from gridengine.serialize.repeated_arrays import RepeatedArrays


def dump(obj: Any) -> list[Buffer]:
    """Return an object's payload.

    Raises:
        PicklingError: it, or something in it, cannot be pickled; the text says where.
    """
    return or_explain(lambda: with_dill(functools.partial(encode, obj)), obj, "the object")


def load(payload: Payload) -> Any:
    """Return the object of a payload.

    Arrays are writable where they were writable; a large buffer that is not is copied for that.

    Raises:
        Exception: whatever rebuilding the object raised.
    """
    if len(payload) == 1:
        return pickle.loads(payload[0])
    body, buffers = _writable(payload)
    return pickle.loads(body, buffers=buffers)


def load_items(payload: Payload) -> tuple[list[Any], bool]:
    """Return the items of a payload's list, and whether all are there: in the place of one that
    cannot be rebuilt is an `Unloadable`.

    Raises:
        Exception: this is no list.
    """
    try:
        # As `load`, without a call of it: this is paid for each call.
        return pickle.loads(payload[0]) if len(payload) == 1 else load(payload), True
    except KeyboardInterrupt:
        raise
    except BaseException:
        return itemwise_unpickler.load_items(*_writable(payload)), False


def _writable(payload: Payload) -> tuple[Buffer, list[Buffer]]:
    """Return the pickle of a payload, and its buffers so that they may be written to."""
    body, *buffers = fetched(payload)
    buffers = [
        one if len(one) > NAME_BYTES else fetched(shared_objects.buffers_of(bytes(one)))[0]
        for one in buffers
    ]
    return body, list(map(writable, buffers))


def fetched(payload: Payload) -> Payload:
    """Return what a payload stands for; it may have to come from elsewhere.

    Raises:
        Exception: it cannot be had.
    """
    return payload.fetch() if isinstance(payload, StoredPayload | KeptPayload) else payload


class RetriedFunction:
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

    Large buffers are copied into a block (see `shared_memory`). When they are of more than
    `most_digested` bytes they are not digested, which takes as long again, and the function's
    digest is unlike any other.

    Raises:
        PicklingError: the text names the variable that cannot travel.
    """
    from _blake2 import blake2b  # not `hashlib`, which loads OpenSSL: 2 ms of a start

    whole = RetriedFunction(function, retry_on) if retry_on else function

    def encode_with(recipes: Mapping[type, Recipe]) -> list[Buffer]:
        with contextlib.closing(BlockWriter(most_digested=most_digested)) as writer:
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
    """Return the function of a payload, and the exceptions that are to have its calls made again.

    Raises:
        Exception: whatever importing or rebuilding it raised.
    """
    loaded = load(payload)
    return (loaded.function, loaded.retry_on) if type(loaded) is RetriedFunction else (loaded, ())


def dump_calls(
    calls: Sequence[Any],
    *,
    form: int | None = None,
    describe: Callable[[int], str] = "call {}".format,
    repeated: RepeatedArrays | None = None,
) -> list[Buffer]:
    """Return the payload of a list of calls.

    form: what the calls are, as in `messages.Assignment`, for the text of errors (default: guessed
        from each).
    describe: gives a call's name for errors, by its index in the list.
    repeated: the large arrays that were met among earlier calls.

    Raises:
        PicklingError: the text names the call, its argument (the first is argument 1) and what in
        it cannot be pickled.
    """
    if len(calls) == 1 and type(calls[0]) in ATOMS:
        return [pickle.dumps([calls[0]], 5)]
    how = functools.partial(encode, list(calls), takes_futures=True, repeated=repeated)
    dump = functools.partial(with_dill, how)
    return or_explain_item(dump, calls, describe, functools.partial(arguments, form))


def dump_values(
    values: Sequence[Any],
    *,
    describe: Callable[[int], str] = "the result of call {}".format,
    whole_classes: bool = False,
) -> list[Buffer]:
    """Return the payload of a list of results, to be sent back to where the calls came from.

    whole_classes: from there they may go on to other processes, as what other calls are given.

    Raises:
        PicklingError: the text names the result and what in it cannot be pickled.
    """
    if len(values) == 1 and type(values[0]) in ATOMS:
        return [pickle.dumps([values[0]], 5)]
    how = functools.partial(encode, list(values), for_caller=True, whole_classes=whole_classes)
    dump = functools.partial(with_dill, how)
    return or_explain_item(dump, values, describe, parts_of, for_caller=True)


def load_result(payload: Payload, item: int) -> Any:
    """Return one of the results of a payload, made anew; what of it lies in buffers that may be
    written to stays there.

    Raises:
        Exception: what rebuilding it raised.
    """
    value = load_items(payload)[0][item]
    if type(value) is Unloadable:
        raise value.error
    return value


def load_values(payload: Payload) -> tuple[list[Any], bool]:
    """Return the results of a payload, and whether all are there: in the place of one that cannot
    be rebuilt is an `Unloadable`.

    Raises:
        PicklingError: this is no list.
    """
    try:
        values, complete = load_items(payload)
    except Exception as error:
        told = PicklingError(f"the results cannot be rebuilt here: {reason(error)}")
        raise told from cause_of(error)
    for value in () if complete else values:
        if type(value) is Unloadable:
            cause = value.error
            value.error = PicklingError(f"the result cannot be rebuilt here: {reason(cause)}")
            value.error.__cause__ = cause_of(cause)
    return values, complete


def part_of_values(payload: Payload, first: int, stop: int) -> list[Buffer]:
    """Return the payload of some of the results of a payload, which are not rebuilt for that: it
    has their list made, and then the others deleted from it (see `pickletools`).
    """
    body, *buffers = fetched(payload)
    begin, end = first.to_bytes(4, "little"), stop.to_bytes(4, "little")
    # By number 0 nothing else is wanted any more.
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
    """Return the payload of an exception that a call raised, with its traceback, or that of its
    `origin`, and what the call was given, as text. Never fails.

    What in it cannot be pickled is replaced by its `repr`, and a note says so. An exception that
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
    told = isinstance(error, GridEngineError) and origin.__traceback__ is None  # it is all there is
    text = "" if told else traceback_text(origin)
    return [pickle.dumps((name, text, bytes(body), arguments), 5), *buffers]


def _dump_error(error: BaseException) -> list[Buffer]:
    try:
        return with_dill(functools.partial(encode, error, for_caller=True))
    except Exception:
        shown = picklable_copy(error, lambda obj: failure_of(obj) is None)
        return with_dill(functools.partial(encode, shown, for_caller=True))


def raised_type(payload: Payload) -> str:
    """Return the name of the type of a payload's exception; nothing of the user's is loaded."""
    return str(pickle.loads(payload[0])[0])


def load_exception(payload: Payload) -> BaseException:
    """Return the exception of a payload; its `__cause__` is a `RemoteTraceback`, but for an error
    of ours that was never raised.
    """
    return load_raised(payload)[0]


def load_raised(payload: Payload) -> tuple[BaseException, str]:
    """Return the exception of a payload, as `load_exception`, and what the call was given as text.

    One that cannot be rebuilt here is replaced by a `PicklingError` with its type's name.
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
