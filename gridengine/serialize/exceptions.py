"""Exceptions taken apart and put together without their constructors, whose parameters need not be
the exception's `args`.
"""

from __future__ import annotations

import builtins
import io
import pickle
import traceback
import types
import typing
from collections.abc import Callable
from typing import Any

from gridengine.errors import safe_repr, users_frames

MOST_OPTIONAL = 64 * 1024
"""How many bytes of pickle what may be left out takes at most."""


def native_base(kind: type[BaseException]) -> type[BaseException]:
    """Return the builtin exception that this type of exceptions is laid out as."""
    while kind.__module__ != "builtins":
        kind = typing.cast(type[BaseException], kind.__base__)
    return kind


def reduces_natively(kind: type[BaseException]) -> bool:
    """Return whether this type of exceptions leaves it to its builtin base how it is pickled."""
    return (
        kind.__reduce__ is native_base(kind).__reduce__
        and kind.__reduce_ex__ is object.__reduce_ex__
    )


def exception_parts(error: BaseException) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments that an exception's builtin base takes, and its attributes."""
    arguments, attributes = _natively_reduced(error)
    slots = {
        name: getattr(error, name)
        for kind in type(error).__mro__
        for name in _members(kind)
        if name not in NATIVE_MEMBERS and hasattr(error, name)
    }
    return arguments, {**unpickled_members(error), **slots, **attributes}


def unpickled_members(error: BaseException) -> dict[str, Any]:
    """Return what an exception's builtin base has and does not pickle: an `AttributeError`'s name,
    say, but not its `obj`.

    A class that says itself what becomes of its state gets none: it may expect just what it had.
    """
    kind, native = type(error), native_base(type(error))
    members = {
        name: member
        for base in native.__mro__
        if issubclass(base, BaseException) and base not in (BaseException, BaseExceptionGroup)
        for name, member in _members(base).items()
        if name != "obj" and getattr(kind, name, None) is member
    }
    if not members or kind.__setstate__ is not BaseException.__setstate__:
        return {}
    arguments, attributes = _natively_reduced(error)
    bare = make_exception(native, arguments)
    remade = {name: member.__get__(bare) for name, member in members.items()} | attributes
    found = {name: member.__get__(error) for name, member in members.items()}
    return {name: value for name, value in found.items() if value is not remade[name]}


def _natively_reduced(error: BaseException) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments and the state that an exception's builtin base would pickle."""
    _, arguments, *state = typing.cast(Any, native_base(type(error)).__reduce__(error))
    return arguments, (state and state[0]) or {}


def _members(kind: type) -> dict[str, types.MemberDescriptorType]:
    """Return the slots of a class, or the members of a builtin exception, which can be set."""
    return {
        name: value
        for name, value in vars(kind).items()
        if type(value) is types.MemberDescriptorType
    }


NATIVE_MEMBERS = frozenset(
    name
    for kind in vars(builtins).values()
    if isinstance(kind, type) and issubclass(kind, BaseException)
    for name in _members(kind)
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
    """Give an exception its attributes, whether it allows that (a frozen dataclass does not) or
    not.
    """
    for name, value in attributes.items():
        object.__setattr__(error, name, value)


class OptionalObject(io.BytesIO):
    """The pickle of an object that may be left out; takes so many bytes and no more. The object
    arrives as None where it cannot be rebuilt.
    """

    def write(self, data: Any) -> int:
        """Write.

        Raises:
            OverflowError: it is too much.
        """
        if self.tell() + memoryview(data).nbytes > MOST_OPTIONAL:
            raise OverflowError("too much")
        return super().write(data)

    def __reduce__(self) -> tuple[Any, ...]:
        return load_optional, (self.getvalue(),)


def load_optional(pickled: bytes) -> Any:
    """Return the object, or None when it cannot be rebuilt."""
    try:
        return pickle.loads(pickled)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


def picklable_copy(error: BaseException, travels: Callable[[Any], bool]) -> BaseException:
    """Return a copy of an exception in which what does not travel is replaced by its `repr`, with a
    note that says so.
    """
    arguments, attributes = exception_parts(error)
    bad: list[str] = []

    def replaced(what: str, value: Any) -> Any:
        if travels(value):
            return value
        if isinstance(error, BaseExceptionGroup) and isinstance(value, (list, tuple)):
            return [one if travels(one) else picklable_copy(one, travels) for one in value]
        bad.append(what)
        return safe_repr(value)

    arguments = tuple(replaced(f"args[{index}]", value) for index, value in enumerate(arguments))
    attributes = {name: replaced(name, value) for name, value in attributes.items()}
    copy = make_exception(type(error), arguments)
    fill_exception(copy, attributes)
    if bad:
        note_on(copy, [f"(could not be pickled, and is shown by its repr: {', '.join(bad)})"])
    return copy


def note_on(error: BaseException, notes: list[str]) -> None:
    """Add notes to an exception. Its class has no say in it: a frozen dataclass would refuse; nor
    is the list changed that it has, which may be another's too.
    """
    present = error.__dict__.get("__notes__")
    error.__dict__["__notes__"] = [*(present if isinstance(present, list) else ()), *notes]


def copy_without_traceback(error: BaseException) -> BaseException:
    """Return an exception equal to one that is raised, without its traceback: what the exception
    refers to may hold this, and is freed with it all the same.
    """
    try:
        twin = picklable_copy(error, lambda _: True)
    except Exception:  # the class's own code; then the garbage collector has to free them
        return error
    BaseException.__setattr__(twin, "__cause__", error.__cause__)
    return twin


class PartialResults(list[Any]):
    """What an exception of a map has as its `results`. It stays where it was raised: a call that
    ends with such an exception does not send it.
    """

    @classmethod
    def discard(cls, error: BaseException) -> None:
        """Take it off an exception that has it."""
        if type(error.__dict__.get("results")) is cls:
            del error.__dict__["results"]

    def attach(self, error: BaseException) -> None:
        """Give it to an exception, unless that has `results` of its own."""
        self.discard(error)
        if not any("results" in vars(kind) for kind in type(error).__mro__):
            error.__dict__.setdefault("results", self)


def traceback_text(error: BaseException) -> str:
    """Return an exception's traceback, without the frames of this package that called the user's
    code.
    """
    inner = users_frames(error)
    try:
        return "".join(traceback.format_exception(type(error), error, inner or error.__traceback__))
    except KeyboardInterrupt:
        raise
    except BaseException as failure:  # it may have a `__getattr__` of its own, for its notes, say
        frames = "".join(traceback.format_tb(inner or error.__traceback__))
        return (
            f"{frames}{type(error).__qualname__} (its text cannot be had: "
            f"{type(failure).__qualname__})\n"
        )
