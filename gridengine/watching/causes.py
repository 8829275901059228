"""Group failures by their causes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from gridengine.status.rows import FailureStatus
from gridengine.watching.pickled import exception_words


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
