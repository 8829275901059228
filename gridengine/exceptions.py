"""Exceptions taken apart and put together without their constructors, whose parameters need not be the exception's `args`."""

from __future__ import annotations

import builtins
import traceback
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any


def native_base(kind: type[BaseException]) -> type[BaseException]:
    """Return the builtin exception that this type of exceptions is laid out as."""
    while kind.__module__ != "builtins":
        kind = typing.cast(type[BaseException], kind.__base__)
    return kind


def reduces_natively(kind: type[BaseException]) -> bool:
    """Say whether this type of exceptions leaves it to its builtin base how it is pickled."""
    return kind.__reduce__ is native_base(kind).__reduce__ and kind.__reduce_ex__ is object.__reduce_ex__


def exception_parts(error: BaseException) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments that an exception's builtin base takes, and its attributes."""
    _, arguments, *state = typing.cast(tuple[Any, ...], native_base(type(error)).__reduce__(error))
    slots = [name for cls in type(error).__mro__ for name, value in vars(cls).items() if type(value) is types.MemberDescriptorType]
    mine = {name: getattr(error, name) for name in slots if name not in NATIVE_MEMBERS and hasattr(error, name)}
    return arguments, {**mine, **(state[0] if state and state[0] else {})}


NATIVE_MEMBERS = frozenset(
    name
    for kind in vars(builtins).values()
    if isinstance(kind, type) and issubclass(kind, BaseException)
    for name, value in vars(kind).items()
    if type(value) is types.MemberDescriptorType
)
"""The members of builtin exceptions, which come from their arguments."""


def make_exception(kind: type[BaseException], arguments: tuple[Any, ...]) -> BaseException:
    """Return an exception as its builtin base makes it; its own constructor is not called."""
    native = native_base(kind)
    try:
        error = kind.__new__(kind, *arguments)
    except Exception:  # its own __new__ wants other arguments
        error = native.__new__(kind, *arguments)
    native.__init__(error, *arguments)
    return error


def fill_exception(error: BaseException, attributes: dict[str, Any]) -> None:
    """Give an exception its attributes, whether it allows that (a frozen dataclass does not) or not."""
    for name, value in attributes.items():
        object.__setattr__(error, name, value)


def presentable(error: BaseException, travels: Callable[[Any], bool]) -> BaseException:
    """Return a copy of an exception in which what does not travel is replaced by its `repr`, with a note that says so."""
    arguments, attributes = exception_parts(error)
    bad: list[str] = []

    def replaced(what: str, value: Any) -> Any:
        if travels(value):
            return value
        if isinstance(error, BaseExceptionGroup) and isinstance(value, (list, tuple)):
            return [one if travels(one) else presentable(one, travels) for one in value]
        bad.append(what)
        return _repr(value)

    arguments = tuple(replaced(f"args[{index}]", value) for index, value in enumerate(arguments))
    attributes = {name: replaced(name, value) for name, value in attributes.items()}
    copy = make_exception(type(error), arguments)
    fill_exception(copy, attributes)
    if bad:
        copy.add_note(f"(could not be pickled, and is shown by its repr: {', '.join(bad)})")
    return copy


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__qualname__}, whose repr raised {type(error).__qualname__}>"


def traceback_text(error: BaseException) -> str:
    """Return an exception's traceback, without the frames of this package that called the user's code."""
    here = str(Path(__file__).parent)
    inner = error.__traceback__
    while inner is not None and inner.tb_frame.f_code.co_filename.startswith(here):
        inner = inner.tb_next
    return "".join(traceback.format_exception(type(error), error, inner or error.__traceback__))
