"""Exceptions taken apart, and put together without their constructors.

The parameters of a constructor need not be the exception's `args`, as `pickle` assumes.
"""

from __future__ import annotations

import builtins
import pickle
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gridengine.errors import safe_repr, text_of, users_frames

MOST_OPTIONAL = 64 * 1024
"""The most bytes of the pickle of an object that may be left out."""

READ_ONLY = (
    "(an array that is read-only where it was handed over, as `.values` of pandas 3 is, or is "
    "shared by calls, is read-only in the call: write to a copy of it, `array.copy()`)"
)
NO_TERMINAL = (
    '(calls have no terminal: to debug one, have scheduler="inline" make it in the script\'s own '
    "process)"
)
PAIRS = (
    "(the call got one argument, with several elements: starmap makes an argument of each; map "
    "takes an iterable for each argument)"
)
REMEDIES: Mapping[tuple[str, str], tuple[str, str]] = {
    ("builtins", "ValueError"): ("read-only", READ_ONLY),
    ("builtins", "EOFError"): ("EOF when reading a line", NO_TERMINAL),
    ("bdb", "BdbQuit"): ("", NO_TERMINAL),
    ("builtins", "TypeError"): ("() missing ", PAIRS),
}
"""For errors that calls alone have: a part of the text, and what to write."""


def native_base(kind: type[BaseException]) -> type[BaseException]:
    """Return the builtin exception whose memory layout this type of exceptions has."""
    while kind.__module__ != "builtins":
        kind = typing.cast(type[BaseException], kind.__base__)
    return kind


def reduces_natively(kind: type[BaseException]) -> bool:
    """Return whether this type of exceptions is pickled as its builtin base says."""
    return (
        kind.__reduce__ is native_base(kind).__reduce__
        and kind.__reduce_ex__ is object.__reduce_ex__
    )


def exception_parts(error: BaseException) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments for an exception's builtin base, and the exception's attributes."""
    arguments, attributes = _natively_reduced(error)
    slots = {
        name: getattr(error, name)
        for kind in type(error).__mro__
        for name in _members(kind)
        if name not in NATIVE_MEMBERS and hasattr(error, name)
    }
    return arguments, {**unpickled_members(error), **slots, **attributes}


def unpickled_members(error: BaseException) -> dict[str, Any]:
    """Return the members that an exception's builtin base has and does not pickle, such as the name
    in an `AttributeError`, but never its `obj`.

    A class with a `__setstate__` of its own gets none, since it may expect only its own state.
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
    """Return the arguments and the state that the exception's builtin base would pickle."""
    _, arguments, *state = typing.cast(Any, native_base(type(error)).__reduce__(error))
    return arguments, (state and state[0]) or {}


def _members(kind: type) -> dict[str, types.MemberDescriptorType]:
    """Return the slots of a class, or the members of a builtin exception that can be set."""
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
"""The members of builtin exceptions. Their values come from the arguments."""


def make_exception(kind: type[BaseException], arguments: tuple[Any, ...]) -> BaseException:
    """Make an exception as its builtin base does, without calling its own constructor."""
    native = native_base(kind)
    try:
        error = kind.__new__(kind, *arguments)
    except Exception:  # its own `__new__` wants other arguments
        error = native.__new__(kind, *arguments)
    native.__init__(error, *arguments)
    return error


def fill_exception(error: BaseException, attributes: dict[str, Any]) -> None:
    """Give an exception its attributes, even if its class forbids that, as a frozen dataclass."""
    for name, value in attributes.items():
        object.__setattr__(error, name, value)


class OptionalObject(NamedTuple):
    """The pickle of an object that arrives as None where it cannot be rebuilt."""

    pickled: bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return load_optional, tuple(self)


def load_optional(pickled: bytes) -> Any:
    """Return the object; None if it cannot be rebuilt."""
    try:
        return pickle.loads(pickled)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


def picklable_copy(error: BaseException, travels: Callable[[Any], bool]) -> BaseException:
    """Return a copy of an exception in which each argument and attribute that cannot travel is
    replaced by its `repr`. A note tells which these are, and another the exception's text, if the
    copy has none or another one.
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
        text = text_of(error)
        if text is not None and text_of(copy) != text:
            note_on(copy, [f"its text in the call: {text}"])
    return copy


def note_on(error: BaseException, notes: list[str]) -> None:
    """Add notes to an exception directly, even if its class would refuse, as a frozen dataclass
    does. Its present list of notes is not changed, since another exception may have the same list.
    """
    present = error.__dict__.get("__notes__")
    error.__dict__["__notes__"] = [*(present if isinstance(present, list) else ()), *notes]


def note_remedy(error: BaseException, argument: Any = None) -> None:
    """Note on an error of a call what to write, where calls alone have that error. `argument` is
    that of a call with a single one.
    """
    kind = type(error)
    words, note = REMEDIES.get((kind.__module__, kind.__qualname__), ("", ""))
    if note and words in str(error):
        several = type(argument) in (tuple, list) and len(argument) > 1
        note_on(error, [note] if several or note is not PAIRS else [])


def copy_without_traceback(error: BaseException) -> BaseException:
    """Return a copy of a raised exception, without its traceback. An object of the traceback's
    frames may hold the copy, and is freed with it, without the garbage collector.
    """
    try:
        twin = picklable_copy(error, lambda _: True)
    except Exception:  # of the class's own code; the garbage collector then frees the objects
        return error
    BaseException.__setattr__(twin, "__cause__", error.__cause__)
    return twin


class PartialResults(list[Any]):
    """The `results` of an exception that a map raises. They stay in the process that raises it: a
    call that ends with such an exception does not send them.
    """

    @classmethod
    def discard(cls, error: BaseException) -> None:
        """Take the partial results off an exception that has them."""
        if type(error.__dict__.get("results")) is cls:
            del error.__dict__["results"]

    def attach(self, error: BaseException) -> None:
        """Give these results to an exception, unless its class has `results` of its own."""
        self.discard(error)
        if not any("results" in vars(kind) for kind in type(error).__mro__):
            error.__dict__.setdefault("results", self)


def traceback_text(error: BaseException) -> str:
    """Return an exception's traceback as text, from the first frame of the user's code on."""
    import traceback  # a worker's agent starts without

    inner = users_frames(error)
    try:
        return "".join(traceback.format_exception(type(error), error, inner or error.__traceback__))
    except KeyboardInterrupt:
        raise
    except BaseException as failure:  # of the class's own code, a `__getattr__` say
        frames = "".join(traceback.format_tb(inner or error.__traceback__))
        return (
            f"{frames}{type(error).__qualname__} (its text cannot be had: "
            f"{type(failure).__qualname__})\n"
        )
