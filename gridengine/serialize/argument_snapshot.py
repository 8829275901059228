"""Takes a snapshot of a call's arguments at submit: those that cannot change are kept, others
pickled. Imported by workers too, so it imports little.
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
"""How many positional arguments of a call that failed are shown at most, and how many by name."""
SHORT = 256
"""Strings and tuples up to that length wait as they are."""


class CallSnapshot:
    """A call pickled when it was submitted; arrives as what it was."""

    __slots__ = ("payload", "references", "size")

    def __init__(self, payload: Payload) -> None:
        self.payload = payload
        self.size = size_of(payload)
        self.references: tuple[Reference, ...] = ()
        """The results of other calls that it needs, once its dispatcher has been told of them."""

    def __reduce__(self) -> tuple[Any, ...]:
        first, *buffers = self.payload
        return restore, (first, *map(pickle.PickleBuffer, buffers))


class HiddenArguments(list[Any]):
    """The arguments of a call that its errors do not show: its function shows them itself, in
    notes, or they are gone.
    """

    __slots__ = ()


def restore(*payload: Any) -> Any:
    """Return the one call of a payload."""
    return pickling.load(payload)[0]


def snapshot(call: Any, form: int, name: str = "the function") -> Any:
    """Return a call as it may wait: as it is when it cannot change, else pickled.

    Raises:
        PicklingError: it cannot be; the text names the argument.
    """
    if is_constant(call if form != FULL else (*call[0], *call[1].values())):
        return call
    return pickled_call(call, form, name)


def pickled_call(call: Any, form: int, name: str) -> CallSnapshot:
    """Return a call pickled, whatever it is.

    Raises:
        PicklingError: as `snapshot`.
    """
    return CallSnapshot(
        pickling.dump_calls([call], form=form, describe=lambda _: f"the call of {name}")
    )


def given_words(call: Any, form: int) -> str:
    """Return what a call was given, shortened, for people: "argument -1.5", "arguments 1, b=2";
    empty for what is hidden, and for a snapshot, which is not rebuilt here: that may be what the
    call died of.
    """
    if type(call) is CallSnapshot or type(call) is HiddenArguments:
        return ""
    positional, named = (call, {}) if form == STAR else call if form == FULL else ((call,), {})
    shown = [short_repr(value) for value in itertools.islice(positional, MOST_SHOWN)]
    shown += [f"{name}={short_repr(named[name])}" for name in itertools.islice(named, MOST_SHOWN)]
    count = len(positional) + len(named)
    shown += ["..."] * (count > len(shown))
    return f"argument{'s' * (count > 1)} {', '.join(shown)}" if count else "no argument"


def is_constant(value: Any) -> bool:
    """Return whether a value, and with a tuple each of its members, is short and can never
    change.
    """
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value) <= SHORT
    if kind is not tuple:
        return kind in ATOMS
    if len(value) > SHORT:
        return False
    for one in value:  # this is paid for each call
        kind = type(one)
        if kind not in ATOMS or ((kind is str or kind is bytes) and len(one) > SHORT):
            return False
    return True
