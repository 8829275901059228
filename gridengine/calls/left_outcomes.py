"""Outcomes that a client has of its dispatcher, its own and those that others have left, until the
dispatcher knows so.
"""

from __future__ import annotations

import math

from msgspec import Struct

from gridengine.dispatcher.core.tasks import CallsFinished
from gridengine.dispatcher.nested_encoding import finished_calls
from gridengine.serialize.payload import Payload
from gridengine.wire.messages import Finished

MOST_UNTOLD, TELL_SECONDS = 16, 0.05
"""Of how many messages with outcomes, and for how long, the dispatcher is not told that they are
here: each message would have it, and its journal, at work while the next call is on its way.
"""


class Left(Struct, frozen=True):
    """Outcomes of calls that clients before this one have left: their number, to be `took`, and of
    which `life` of the dispatcher they are.
    """

    number: int
    life: int
    outcomes: list[CallsFinished]


class Took(Struct, frozen=True):
    """Outcomes of these numbers, which came in this life of the dispatcher, are kept."""

    numbers: list[int]
    life: int


def left_of(message: Finished, buffers: Payload, life: int) -> Left:
    """Return what others have left, as it came in this life of the dispatcher."""
    offset, found = 0, list[CallsFinished]()
    for item in message.outcomes:
        stop = offset + item.count_buffers()
        found.append(finished_calls(item, buffers[offset:stop]))
        offset = stop
    return Left(message.number, life, found)


class TakenOutcomes:
    """The numbers of outcomes that the dispatcher is to be told of: `MOST_UNTOLD` together, else
    after `TELL_SECONDS`. For one thread.
    """

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._tell_at = math.inf

    def add(self, *numbers: int) -> None:
        """Add some."""
        self._numbers += numbers

    @property
    def are_many(self) -> bool:
        """Whether they are so many that the dispatcher is told of them now."""
        return len(self._numbers) >= MOST_UNTOLD

    def seconds_left(self, now: float) -> float:
        """Return after how many seconds it is to be told of them; infinite if there are none."""
        if not self._numbers:
            return math.inf
        self._tell_at = min(self._tell_at, now + TELL_SECONDS)
        return max(self._tell_at - now, 0.0)

    def take(self) -> list[int]:
        """Return them, once."""
        numbers, self._numbers, self._tell_at = self._numbers, [], math.inf
        return numbers
