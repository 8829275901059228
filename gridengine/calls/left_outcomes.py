"""Outcomes received but not yet acknowledged, including those inherited from earlier clients of the
same named run.
"""

from __future__ import annotations

import math

from msgspec import Struct

from gridengine.dispatcher.core.tasks import CallsFinished
from gridengine.dispatcher.nested_encoding import finished_calls
from gridengine.serialize.payload import Payload
from gridengine.wire.messages import Finished

MOST_UNTOLD, TELL_SECONDS = 16, 0.05
"""Acknowledge messages with outcomes when this many have arrived, or after this time. Acknowledging
each at once would keep the dispatcher and its journal busy while the next call is on its way.
"""


class Left(Struct, frozen=True):
    """Outcomes of calls that earlier clients have left. `number` is the message's, to be passed to
    `took`; `life` is the dispatcher's epoch in which the message came.
    """

    number: int
    life: int
    outcomes: list[CallsFinished]


class Took(Struct, frozen=True):
    """A note that the messages of these numbers are stored, which came in this epoch of the
    dispatcher.
    """

    numbers: list[int]
    life: int


def left_of(message: Finished, buffers: Payload, life: int) -> Left:
    """Decode inherited outcomes that came in this epoch of the dispatcher."""
    offset, found = 0, list[CallsFinished]()
    for item in message.outcomes:
        stop = offset + item.count_buffers()
        found.append(finished_calls(item, buffers[offset:stop]))
        offset = stop
    return Left(message.number, life, found)


class TakenOutcomes:
    """Numbers of messages to acknowledge: `MOST_UNTOLD` together, or after `TELL_SECONDS`. For one
    thread.
    """

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._tell_at = math.inf

    def add(self, *numbers: int) -> None:
        """Add numbers of messages."""
        self._numbers += numbers

    @property
    def are_many(self) -> bool:
        """Whether there are enough to acknowledge them now."""
        return len(self._numbers) >= MOST_UNTOLD

    def seconds_left(self, now: float) -> float:
        """Return after how many seconds they must be acknowledged; infinite if there are none."""
        if not self._numbers:
            return math.inf
        self._tell_at = min(self._tell_at, now + TELL_SECONDS)
        return max(self._tell_at - now, 0.0)

    def take(self) -> list[int]:
        """Return the numbers, and forget them."""
        numbers, self._numbers, self._tell_at = self._numbers, [], math.inf
        return numbers
