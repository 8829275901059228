"""Errors that name the part of an object that cannot be pickled."""

from __future__ import annotations

import functools
import io
import pickle
import socket
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from gridengine.errors import PicklingError, is_own, no_memory, users_frames
from gridengine.serialize import functions
from gridengine.serialize.byte_code import global_names
from gridengine.serialize.classes import is_by_value
from gridengine.serialize.encoding import encode, with_dill
from gridengine.serialize.payload import FULL, STAR, Buffer

Parts: TypeAlias = Iterator[tuple[str, Any]]
"""The parts of an object, each with a text for its place in the object."""
LONG_PATH = 300
"""The most characters that an error shows of a place in an object."""


def or_explain(dump: Callable[[], list[Buffer]], obj: Any, what: str) -> list[Buffer]:
    """Return the payload that `dump` makes of an object.

    Raises:
        PicklingError: the object cannot be pickled; the text names `what`, and its smallest part
        that cannot be.
    """
    try:
        return dump()
    except MemoryError as error:
        raise no_memory(f"to pickle {what}") from error
    except Exception as error:
        told = _explanation(obj, what, error, parts_of(obj), seen={id(obj)})
        raise told from cause_of(error)


def or_explain_item(
    dump: Callable[[], list[Buffer]],
    items: Sequence[Any],
    describe: Callable[[int], str],
    parts: Callable[[Any], Parts],
    *,
    for_caller: bool = False,
) -> list[Buffer]:
    """Return the payload that `dump` makes of a list.

    Args:
        describe: returns an item's name, by its index.
        parts: returns an item's parts.
        for_caller: the items are results: see `encode`.

    Raises:
        PicklingError: the list cannot be pickled; the text names the first item that cannot be, and
        the smallest such part of the item.
    """
    try:
        return dump()
    except MemoryError as error:
        what = describe(0) if len(items) == 1 else "these calls or results together"
        raise no_memory(f"to pickle {what}") from error
    except Exception as error:
        for index, item in enumerate(items):
            if (failure := failure_of(item, for_caller=for_caller)) is not None:
                told = _explanation(
                    item,
                    describe(index),
                    failure,
                    parts(item),
                    seen={id(item)} if for_caller else set(),
                    for_caller=for_caller,
                )
                raise told from cause_of(failure)
        told = PicklingError(f"these calls cannot be pickled together: {reason(error)}")
        raise told from cause_of(error)


def failure_of(obj: Any, *, for_caller: bool = False) -> Exception | None:
    """Return the error of pickling an object; None if it can be pickled."""
    try:
        with_dill(
            functools.partial(encode, obj, for_caller=for_caller, takes_futures=not for_caller)
        )
    except Exception as error:
        return error
    return None


def cause_of(error: BaseException) -> BaseException | None:
    """Return the error if it was raised outside of this package, so that its traceback can be shown
    beside a text that quotes it; else None.
    """
    frames = users_frames(error)
    while frames is not None and frames.tb_next is not None:
        frames = frames.tb_next
    return None if frames is None or is_own(frames.tb_frame.f_code.co_filename) else error


def rebuilding_error(error: BaseException) -> BaseException:
    """Return the error to raise for an error of unpickling: if the `__getattr__` of a class has
    called itself without end, an error that names the class; else the same error.
    """
    if not isinstance(error, RecursionError):
        return error
    name, frames = None, error.__traceback__
    while frames is not None:
        code = frames.tb_frame.f_code
        if code.co_name in ("__getattr__", "__getattribute__") and code.co_argcount:
            name = type(frames.tb_frame.f_locals.get(code.co_varnames[0])).__qualname__
        frames = frames.tb_next
    if name is None:
        return error
    return PicklingError(
        f"an object of the class {name} cannot be rebuilt: while it has no attributes yet, its "
        "`__getattr__` calls itself without end",
        hint="begin that with `if name.startswith('_'): raise AttributeError(name)`, or give the "
        "class a `__setstate__`",
    )


def _explanation(
    obj: Any,
    what: str,
    error: Exception,
    parts: Parts,
    *,
    seen: set[int],
    for_caller: bool = False,
) -> PicklingError:
    """Return an error that names the smallest part that cannot be pickled."""
    path, inside, captured = "", False, False
    kinds: set[type] = set()
    # An object that a recipe refuses, or that has a remedy, is named itself, not a part of it.
    while not (id(obj) in seen and (getattr(error, "refused", None) is obj or _named(obj))):
        found = _first_failing(parts, seen, for_caller)
        # Of objects that are nested too deeply, name the outermost.
        if found is None or (isinstance(error, RecursionError) and type(found[1]) in kinds):
            break
        is_wrapper = type(obj).__module__.startswith("gridengine.")
        label, obj, error = found
        kinds.add(type(obj))
        seen.add(id(obj))
        if label.startswith(("argument", "the argument")):
            what = f"{label} of {what}"
        elif label != "._function" or not is_wrapper:
            captured = captured or "variable" in label
            step = label[0] in "[."
            path += f", its {label}" if not step else label if inside else f", at {label}"
            inside = step
        parts = parts_of(obj)
    if len(path) > LONG_PATH:
        path = f"{path[: LONG_PATH // 2]}...{path[-LONG_PATH // 2 :]}"
    own = getattr(type(obj), "_refused", None) if hasattr(error, "refused") else None
    return PicklingError(
        f"{what}{path} (a {_type_name(obj)}) cannot be pickled: {own or reason(error)}",
        hint=_remedy(obj, error, captured=captured, for_caller=for_caller),
    )


def _first_failing(
    parts: Parts, seen: set[int], for_caller: bool
) -> tuple[str, Any, Exception] | None:
    failing = (
        (label, part, failure)
        for label, part in parts
        if id(part) not in seen and (failure := failure_of(part, for_caller=for_caller)) is not None
    )
    return next(failing, None)


_REMEDIES: Mapping[tuple[type, ...], tuple[str, str]] = {
    (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Event): (
        "make it in the function, or exclude it from pickling (`__getstate__`); a lock that "
        "calls on this machine share is a multiprocessing.Manager().Lock()",
        "return the data that it guards, without the lock",
    ),
    (threading.Thread,): ("start it in the function", "return the data that it made"),
    (io.IOBase,): (
        "hand over its path, and open it in the function",
        "return its path, or its content",
    ),
    (socket.socket,): ("connect in the function", "return the data that it received"),
    (types.GeneratorType, types.AsyncGeneratorType): (
        "hand over list() of it, or make it in the function",
        "return list() of it",
    ),
    (types.CoroutineType,): (
        "submit the `async def` itself, with its arguments, or await this and give the result",
        "return asyncio.run() of it",
    ),
}
"""Remedies by the types that cannot be pickled: on the way to a call, and back from it."""


def _named(obj: Any) -> tuple[str, str] | None:
    """Return the remedies for an object, one on the way to a call and one on the way back, if its
    class or `_REMEDIES` has some.
    """
    own: tuple[str, str] | None = getattr(type(obj), "_not_pickled", None)
    if type(obj).__qualname__ == "TqdmDefaultWriteLock":
        own = (
            "before, call tqdm.set_lock(multiprocessing.get_context('spawn').RLock()); or leave "
            "out the lock: the bars of each call's process have one",
            "leave it in the call",
        )
    if type(obj).__module__ == "_asyncio":  # futures and tasks, without importing asyncio
        own = "await it, and give the result", "await it, and return the result"
    return own or next((it for kinds, it in _REMEDIES.items() if isinstance(obj, kinds)), None)


def _remedy(obj: Any, error: Exception, *, captured: bool, for_caller: bool) -> str | None:
    """Return the remedy; None if the error already names it, or comes from the user's own code."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply; hand it over as a flat list of its parts, say"
    if (known := _named(obj)) is not None:
        return known[for_caller]
    if not isinstance(error, (TypeError, pickle.PicklingError)) or hasattr(error, "refused"):
        return None
    if for_caller:
        return "return plain data, or exclude it from pickling (`__getstate__`)"
    if captured:
        return (
            "make it in the function, or in a module that the function imports: each process then "
            "has its own"
        )
    return "make it in the function, or exclude it from pickling (`__getstate__`)"


def arguments(form: int, call: Any) -> Parts:
    """Yield the arguments of a call of this form."""
    if form not in (FULL, STAR):
        yield "the argument", call
        return
    positional, named = call if form == FULL else (call, {})
    for index, value in enumerate(positional, 1):
        yield f"argument {index}", value
    for name, value in named.items():
        yield f"argument {name!r}", value


def parts_of(obj: Any) -> Parts:
    """Yield the parts of an object, the likeliest culprits first."""
    if isinstance(obj, types.FunctionType):
        yield from _function_parts(obj)
    elif (own := getattr(type(obj), "_gridengine_parts", None)) is not None:
        yield from own(obj)
    elif isinstance(obj, functools.partial):
        yield "function", obj.func
        yield from arguments(FULL, (obj.args, obj.keywords))
    elif isinstance(obj, types.MethodType | types.BuiltinMethodType):
        yield "object", obj.__self__
        if isinstance(obj, types.MethodType):
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
        except ValueError:  # the variable has no value yet
            continue
    for name in global_names(function.__code__):
        if name in function.__globals__:
            yield f"global variable {name!r}", function.__globals__[name]
    positional, names = function.__defaults__ or (), function.__code__.co_varnames
    last = function.__code__.co_argcount
    defaults = dict(zip(names[last - len(positional) : last], positional, strict=True))
    defaults |= function.__kwdefaults__ or {}
    yield from ((f"default value of {name!r}", value) for name, value in defaults.items())
    yield "annotations", functions.annotations_of(function)
    yield "attributes", vars(function)


def _type_name(obj: Any) -> str:
    kind = type(obj)
    plain = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if plain else f"{kind.__module__}.{kind.__qualname__}"


def name_of(obj: Any) -> str:
    """Return the name of a function or class; for another object, the name of its type."""
    return str(getattr(obj, "__qualname__", None) or _type_name(obj))


def reason(error: BaseException) -> str:
    """Return an error's type and text, even if a user's class cannot give its text."""
    try:
        return f"{type(error).__qualname__}: {error}"
    except Exception as failure:
        return f"{type(error).__qualname__}, whose text raised {type(failure).__qualname__}"
