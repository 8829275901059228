"""Single calls that are submitted together, as one task, and the number of calls that may be handed
over.
"""

from __future__ import annotations

from collections.abc import Sequence

from gridengine.client.future import CallFuture, CallTemplate
from gridengine.client.hand_in import HandedTask


class TaskOfCalls(HandedTask):
    """Calls of one template that were handed over as one task. `load` is the load of each, 0 for a
    call that waits for the results of others.
    """

    template: CallTemplate
    futures: Sequence[CallFuture]
    load: int


AHEAD_SECONDS = 0.2
"""The time for which all slots have work when the window is full. It holds two calls for each slot
at least.
"""
UNIT = 1 << 20
"""The load of one slot for `AHEAD_SECONDS`. A call's load is its share of that time, but half of it
at most, and half of it while the call's duration is unknown.
"""
SLOW = UNIT // 2
LARGEST_WINDOW, LARGEST_SHARE = 65_536, 16
"""At most this many calls are handed over, or `LARGEST_SHARE` for each slot if that is more."""
GATHER_SECONDS, GATHER_RATE = 0.025, 2000
"""Calls travel together if they take less than `GATHER_SECONDS`, or if all slots together do more
than `GATHER_RATE` of them in a second. A call that travels alone can be ended alone.
"""
MOST_AT_ONCE = 8
"""While slots may be idle, a quick call is handed over at once; but one call waits for company for
each `MOST_AT_ONCE` that are handed over.
"""


class CallWindow:
    """The calls that have been handed over and have not ended: their number and their load.

    Args:
        slots: how many calls run at a time.
        most: how many calls are handed over at a time; None lets the window decide by their
            duration.
    """

    def __init__(self, slots: int, most: int | None = None) -> None:
        self._most = most
        self._smallest = 2 * slots if most is None else most
        self._capacity = UNIT * slots if most is None else most
        # The window never holds more calls than `LARGEST_WINDOW` or `LARGEST_SHARE` allow, however
        # short they are.
        self._least_load = max(1, self._capacity // max(LARGEST_WINDOW, LARGEST_SHARE * slots))
        # With many slots longer calls travel together too: otherwise more than `GATHER_RATE` tasks
        # would end in a second.
        self._gather_seconds = min(max(GATHER_SECONDS, slots / GATHER_RATE), AHEAD_SECONDS / 2)
        self._gathers_at_most = most is not None and most >= slots * AHEAD_SECONDS / GATHER_SECONDS
        self._calls = 0
        self.load = 0
        self.low = self._capacity - 1
        """More calls are handed over when the load is at most this."""

    def takes_at_once(self, template: CallTemplate, waiting: int) -> bool:
        """Return whether a call is handed over at once, rather than gathered with others.

        Args:
            waiting: how many calls wait, this one included.
        """
        calls = self._calls
        return calls < self._smallest and (
            MOST_AT_ONCE * waiting >= calls or not self.travel_together(template)
        )

    def load_of(self, template: CallTemplate) -> int:
        """Return the load of one call, by the present duration of calls like it."""
        seconds = template.pace.seconds
        if self._most is not None:
            return 1
        if seconds is None or seconds >= AHEAD_SECONDS / 2:
            return SLOW
        return max(self._least_load, int(UNIT * seconds / AHEAD_SECONDS))

    def is_too_full(self, template: CallTemplate, load: int) -> bool:
        """Return whether too many calls are handed over because they are slower than they were:
        each counts with this small load, but calls like them are slow now.
        """
        return (
            0 < load < SLOW // 4
            and self._most is None
            and self._calls > self._smallest
            and self.load_of(template) >= SLOW
        )

    def room_for(self, template: CallTemplate, load: int) -> int:
        """Return how many calls of this template and load to hand over together now."""
        room = self._capacity - self.load
        if room < load:
            # Slow calls are handed over one by one, as others end; quick ones when half of the load
            # that was handed over has ended.
            slow = load >= SLOW or self._most is not None
            self.low = self._capacity - load if slow else self._capacity // 2
            return 0
        return room // load if self.travel_together(template) else 1

    def empty(self) -> None:
        """Note that no call waits: the next call is handed over as soon as there is any room."""
        self.low = self._capacity - 1

    def enter(self, calls: int, load: int) -> None:
        """Note that calls are handed over, each of this load. Calls of load 0 wait for other calls,
        and take no room.
        """
        self._calls += calls if load else 0
        self.load += calls * load

    def leave(self, calls: int, load: int) -> None:
        """Note that calls have ended, or wait again."""
        self._calls -= calls if load else 0
        self.load -= calls * load

    def travel_together(self, template: CallTemplate) -> bool:
        """Return whether calls of this template are quick enough to travel many in a task."""
        if self._most is not None:
            return self._gathers_at_most
        seconds = template.pace.seconds
        return seconds is not None and seconds <= self._gather_seconds
