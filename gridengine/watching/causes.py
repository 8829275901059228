"""Failures by their causes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from gridengine.dispatcher.core.status import FailureStatus
from gridengine.watching.pickled import exception_words


class Cause(Struct, frozen=True):
    """What calls failed by that differ in numbers alone: how many calls, and the last of them, with
    its words.
    """

    count: int
    words: str
    last: FailureStatus


def causes(failures: Iterable[FailureStatus]) -> list[Cause]:
    """Return the causes, the most frequent first."""
    found: dict[str, Cause] = {}
    for one in failures:
        words = cause_of(one)
        alike = re.sub(r"\d+", "0", words)
        before = found[alike].count if alike in found else 0
        found[alike] = Cause(before + one.calls, words, one)
    return sorted(found.values(), key=lambda cause: -cause.count)


def cause_of(one: FailureStatus) -> str:
    """Return what calls that failed for the same cause have in common, in few words."""
    if one.exception:
        return exception_words(one.exception)
    return re.sub(r"\bcall \d+ of", "a call of", one.error) or "an exception"
