"""A snapshot of a call's arguments at the time of its submission: arguments that may change are
pickled at once (`client.future.CallTemplate`).

Arguments that cannot change wait as they are. Workers import this module too, so it imports little.
"""

from __future__ import annotations

import itertools
import pickle
from typing import Any

from gridengine.errors import short_repr
from gridengine.serialize import pickling
from gridengine.serialize.payload import ATOMS, FULL, STAR, Payload, size_of
from gridengine.serialize.references import Reference

MOST_SHOWN = 6
"""The most positional arguments, and the most keywords, that are shown of a failed call."""
SHORT = 256
"""Texts, bytes and tuples up to this length wait as they are."""


class CallSnapshot:
    """A call that was pickled when it was submitted. It arrives as the call itself."""

    __slots__ = ("payload", "references", "size")

    def __init__(self, payload: Payload) -> None:
        self.payload = payload
        self.size = size_of(payload)
        self.references: tuple[Reference, ...] = ()
        """The results of other calls that it needs; set once the dispatcher knows of them."""

    def __reduce__(self) -> tuple[Any, ...]:
        first, *buffers = self.payload
        return restore, (first, *map(pickle.PickleBuffer, buffers))


class HiddenArguments(list[Any]):
    """Arguments that errors of a call do not show: its function shows them itself, in notes."""

    __slots__ = ()


def restore(*payload: Any) -> Any:
    """Return the one call of a payload."""
    return pickling.load(payload)[0]


def given_words(call: Any, form: int) -> str:
    """Return a call's arguments for people, shortened: "argument -1.5", "arguments 1, b=2". Hidden
    arguments give an empty text.
    """
    if type(call) is HiddenArguments:
        return ""
    positional, named = (call, {}) if form == STAR else call if form == FULL else ((call,), {})
    shown = [short_repr(value) for value in itertools.islice(positional, MOST_SHOWN)]
    shown += [f"{name}={short_repr(named[name])}" for name in itertools.islice(named, MOST_SHOWN)]
    count = len(positional) + len(named)
    shown += ["..."] * (count > len(shown))
    return f"argument{'s' * (count > 1)} {', '.join(shown)}" if count else "no argument"


def is_constant(value: Any) -> bool:
    """Return whether a value is short and can never change; for a tuple, also all of its items."""
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value) <= SHORT
    if kind is not tuple:
        return kind in ATOMS
    if len(value) > SHORT:
        return False
    for one in value:  # each call pays for this
        kind = type(one)
        if kind not in ATOMS or ((kind is str or kind is bytes) and len(one) > SHORT):
            return False
    return True
