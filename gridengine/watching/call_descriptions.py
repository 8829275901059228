"""Describe pickled calls and exceptions in words, and group failures by their causes.

No code of the user is imported or run: except for a few plain classes, an object is shown as the
name of its class.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import pickle
import pickletools
import re
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from gridengine.errors import safe_repr
from gridengine.serialize.payload import FULL, SINGLE, STAR
from gridengine.status.figures import DescribedCall, FailureStatus

MOST_SHOWN, MOST_IN_ERRORS = 60, 240
"""How many characters the arguments may take in a table, and in an error."""
PLAIN = {
    "builtins": {"complex", "set", "frozenset", "bytearray", "range", "slice"},
    "collections": {"OrderedDict", "deque"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "fractions": {"Fraction"},
    "pathlib": {"Path", "PosixPath", "PurePosixPath"},
    "uuid": {"UUID"},
}
OURS = {
    ("gridengine.serialize.shared_objects", "find"): "result or shared object",
    ("gridengine.serialize.argument_snapshot", "HiddenArguments"): "several calls",
}
"""Descriptions of objects by which this package replaces users' objects."""


class Named:
    """Stands in for an object whose class is not imported."""

    name = "?"

    def __new__(cls, *args: Any, **kwargs: Any) -> Named:
        return object.__new__(cls)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Named:
        return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Accept any arguments. The methods below, by which pickles fill objects, do the same."""

    __setstate__ = __setitem__ = append = extend = add = __init__


class _DescribingUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name in PLAIN.get(module, ()):
            return getattr(importlib.import_module(module), name)
        words = OURS.get((module, name), name)
        return type(name.rpartition(".")[2], (Named,), {"name": words})

    def persistent_load(self, pid: object) -> Named:
        return Named()


def arguments_of(one: DescribedCall) -> str:
    """Return the arguments of a row's call, with the names of the parameters where they are known.
    Where its task is too long to be kept, an exception that it raised tells them.
    """
    found = call_arguments(one.arguments, one.place, one.form, one.parameters)
    if found or not isinstance(one, FailureStatus) or not one.exception:
        return found
    try:
        *_, told = _DescribingUnpickler(io.BytesIO(one.exception)).load()
    except Exception:  # it is cut off
        return ""
    kind, _, words = str(told).partition(" ")  # see `given_words`
    if kind == "argument" and one.form == SINGLE and one.parameters:
        return f"{one.parameters[0]}={words}"
    return words if kind.startswith("argument") else ""


def call_arguments(
    calls: bytes, place: int, form: int, parameters: Sequence[str] = (), *, most: int = MOST_SHOWN
) -> str:
    """Return the arguments of one of these pickled calls, in at most so many characters; empty when
    they cannot be read. The first ones have the names of these parameters; if the last name is
    empty, the last argument is the call's number, which is left out.
    """
    if not calls:
        return ""
    try:
        call = _DescribingUnpickler(io.BytesIO(calls)).load()[place]
        positional: tuple[Any, ...] = (call,) if form not in (STAR, FULL) else tuple(call)
        named: dict[str, Any] = {}
        if form == FULL:
            positional, named = call
        shorten = _shortener(most).repr
        if parameters and not parameters[-1]:
            positional, parameters = positional[:-1], parameters[:-1]
        names = [f"{one}=" for one in parameters] + [""] * len(positional)
        shown = [f"{name}{shorten(one)}" for name, one in zip(names, positional, strict=False)]
        shown += [f"{name}={shorten(one)}" for name, one in named.items()]
    except Exception:  # a pickle may contain anything, and this is only for display
        return ""
    words = ", ".join(shown)
    return words if len(words) <= most else f"{words[: most - 3]}..."


@functools.cache
def _shortener(most: int) -> reprlib.Repr:
    """Return what writes an argument in half of so many characters: others are to be seen too."""
    shortener = reprlib.Repr()
    shortener.maxstring = shortener.maxother = most // 2
    # Python refuses to write numbers of thousands of digits.
    vars(shortener).update(repr_int=lambda number, _: safe_repr(number, most=most // 2))
    shortener.maxlist = shortener.maxtuple = shortener.maxdict = shortener.maxset = 4
    return shortener


def exception_texts(pickled: bytes) -> list[str]:
    """Return the texts of a pickled exception, which may be cut off: the name of its type, its
    traceback, and the call's arguments; see `pickling.dump_exception`.
    """
    texts: list[str] = []
    with contextlib.suppress(ValueError):  # the end of the pickle is missing
        texts.extend(value for _, value, _ in pickletools.genops(pickled) if isinstance(value, str))
    return texts


def exception_words(pickled: bytes) -> str:
    """Return the last line of a pickled exception's traceback, or at least its type."""
    name, traceback, *_ = (*exception_texts(pickled), "", "")
    lines = [line for line in traceback.splitlines() if line.strip() and not line.startswith(" ")]
    words = lines[-1] if lines else name
    return words if len(words) <= 200 else f"{words[:197]}..."


class Cause(Struct, frozen=True):
    """Failures whose words differ only in numbers: how many calls, the words, and the last
    failure.
    """

    count: int
    words: str
    last: FailureStatus


def causes(failures: Iterable[FailureStatus]) -> list[Cause]:
    """Return the causes of these failures, the most frequent first."""
    found: dict[str, Cause] = {}
    for one in failures:
        words = cause_of(one)
        alike = re.sub(r"\d+", "0", words)
        before = found[alike].count if alike in found else 0
        found[alike] = Cause(before + one.calls, words, one)
    return sorted(found.values(), key=lambda cause: -cause.count)


def cause_of(one: FailureStatus) -> str:
    """Return the cause of a failure in few words, without the number of the call."""
    if one.exception:
        return exception_words(one.exception)
    return re.sub(r"\bcall \d+ of", "a call of", one.error) or "an exception"
