"""Errors that name the part of an object that cannot be pickled."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from gridengine.errors import PicklingError
from gridengine.serialize.classes import is_by_value
from gridengine.serialize.encoding import encode, with_dill
from gridengine.serialize.functions import global_names
from gridengine.serialize.payload import FULL, STAR, Buffer

Parts: TypeAlias = Iterator[tuple[str, Any]]
"""The parts of an object, each with a text for its place in it."""
LONG_PATH = 300
"""How many characters the place in an object takes at most in an error."""


def or_explain(dump: Callable[[], list[Buffer]], obj: Any, what: str) -> list[Buffer]:
    """Return what `dump` makes of an object.

    Raises:
        PicklingError: it cannot be pickled; the text names `what` and the smallest part of it that
        cannot.
    """
    try:
        return dump()
    except MemoryError:
        raise
    except Exception as error:
        raise _explanation(obj, what, error, parts_of(obj), seen={id(obj)}) from error


def or_explain_item(
    dump: Callable[[], list[Buffer]],
    items: Sequence[Any],
    describe: Callable[[int], str],
    parts: Callable[[Any], Parts],
) -> list[Buffer]:
    """Return what `dump` makes of a list.

    Args:
        describe: gives an item's name, by its index.
        parts: gives an item's parts.

    Raises:
        PicklingError: it cannot be pickled; the text names the first item that cannot, and the
        smallest such part of it.
    """
    try:
        return dump()
    except MemoryError:
        raise
    except Exception as error:
        for index, item in enumerate(items):
            if (failure := failure_of(item)) is not None:
                what = describe(index)
                raise _explanation(item, what, failure, parts(item), seen=set()) from failure
        raise PicklingError(f"these calls cannot be pickled together: {reason(error)}") from error


def failure_of(obj: Any) -> Exception | None:
    """Return why an object cannot be pickled; None when it can."""
    try:
        with_dill(functools.partial(encode, obj, takes_futures=True))
    except Exception as error:
        return error
    return None


def _explanation(
    obj: Any, what: str, error: Exception, parts: Parts, *, seen: set[int]
) -> PicklingError:
    """Return an error that names the smallest part that cannot be pickled."""
    path, inside = "", False
    kinds: set[type] = set()
    # What a recipe has refused is named itself, not a part of it.
    while not (id(obj) in seen and getattr(error, "refused", None) is obj):
        found = _first_failing(parts, seen)
        # Of what is nested too deeply the outermost is named.
        if found is None or (isinstance(error, RecursionError) and type(found[1]) in kinds):
            break
        label, obj, error = found
        kinds.add(type(obj))
        seen.add(id(obj))
        if label.startswith("argument"):
            what = f"{label} of {what}"
        else:
            step = label[0] in "[."
            path += f", its {label}" if not step else label if inside else f", at {label}"
            inside = step
        parts = parts_of(obj)
    if len(path) > LONG_PATH:
        path = f"{path[: LONG_PATH // 2]}...{path[-LONG_PATH // 2 :]}"
    too_deep = "it is nested too deeply; hand it over as a flat list of its parts, say"
    return PicklingError(
        f"{what}{path} (a {_type_name(obj)}) cannot be pickled: {reason(error)}",
        hint=too_deep if isinstance(error, RecursionError) else None,
    )


def _first_failing(parts: Parts, seen: set[int]) -> tuple[str, Any, Exception] | None:
    failing = (
        (label, part, failure)
        for label, part in parts
        if id(part) not in seen and (failure := failure_of(part)) is not None
    )
    return next(failing, None)


def arguments(form: int | None, call: Any) -> Parts:
    """Yield the arguments of a call; without its form they are guessed."""
    if form is None and isinstance(call, tuple):
        form = FULL if tuple(map(type, call)) == (tuple, dict) else STAR
    positional, named = call if form == FULL else (call if form == STAR else (call,), {})
    for index, value in enumerate(positional, 1):
        yield f"argument {index}", value
    for name, value in named.items():
        yield f"argument {name!r}", value


def parts_of(obj: Any) -> Parts:
    """Yield the parts of an object, the likeliest culprits first."""
    if isinstance(obj, types.FunctionType):
        yield from _function_parts(obj)
    elif isinstance(obj, functools.partial):
        yield "function", obj.func
        yield from arguments(FULL, (obj.args, obj.keywords))
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


def _type_name(obj: Any) -> str:
    kind = type(obj)
    plain = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if plain else f"{kind.__module__}.{kind.__qualname__}"


def name_of(obj: Any) -> str:
    """Return the name of a function or class, else that of its type."""
    return str(getattr(obj, "__qualname__", None) or _type_name(obj))


def reason(error: BaseException) -> str:
    """Return an error's type and text, which may be of a user's own class."""
    try:
        return f"{type(error).__qualname__}: {error}"
    except Exception as failure:
        return f"{type(error).__qualname__}, whose text raised {type(failure).__qualname__}"
