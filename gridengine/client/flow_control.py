"""Limits how many single calls are handed to the dispatcher: about as many as all slots do in some
tenths of a second, by what the calls of each function take now. Pure.
"""

from __future__ import annotations

from gridengine.client.future import CallTemplate

AHEAD_SECONDS = 0.2
"""How much is handed over: what all slots do in this time, but two calls for each slot at least."""
UNIT = 1 << 20
"""The load of a slot for that time. The load of a call is its part of it: half of it while nobody
knows what the call takes.
"""
SLOW = UNIT // 2
LARGEST_WINDOW, LARGEST_SHARE = 65_536, 16
"""So many calls are handed over at most, or so many for each slot."""
GATHER_SECONDS, GATHER_RATE = 0.025, 2000
"""Calls that take less, or of which all slots do more in a second, travel together. Those that
travel alone can be ended alone.
"""
MOST_AT_ONCE = 8
"""While slots may be idle a quick call is handed over at once, but for each so many that are on
their way one has to wait for others.
"""


class Window:
    """The calls that have been handed over and have not ended: how many, and what load they are.

    Args:
        slots: how many calls run at a time.
        most: how many calls are handed over at a time; None is as the time they take suggests.
    """

    def __init__(self, slots: int, most: int | None = None) -> None:
        self._most = most
        self._smallest = 2 * slots if most is None else most
        self._capacity = UNIT * slots if most is None else most
        self._least_load = max(1, self._capacity // max(LARGEST_WINDOW, LARGEST_SHARE * slots))
        self._gather_seconds = min(max(GATHER_SECONDS, slots / GATHER_RATE), AHEAD_SECONDS / 2)
        self._gathers_at_most = most is not None and most >= slots * AHEAD_SECONDS / GATHER_SECONDS
        self._calls = 0
        self.load = 0
        self.low = self._capacity - 1
        """Up to this load more is handed over."""

    def takes_at_once(self, template: CallTemplate, waiting: int) -> bool:
        """Return whether a call is to be handed over at once, beside others that wait, rather than
        to wait until they are many.
        """
        calls = self._calls
        return calls < self._smallest and (
            MOST_AT_ONCE * waiting >= calls or not self.travel_together(template)
        )

    def load_of(self, template: CallTemplate) -> int:
        """Return the load of one call, by what calls like it take now."""
        seconds = template.pace.seconds
        if self._most is not None:
            return 1
        if seconds is None or seconds >= AHEAD_SECONDS / 2:
            return SLOW
        return max(self._least_load, int(UNIT * seconds / AHEAD_SECONDS))

    def is_too_full(self, template: CallTemplate, load: int) -> bool:
        """Return whether calls turn out to be slow that were handed over as quick ones, each of
        this load, and more are handed over than slots need.
        """
        return (
            0 < load < SLOW // 4
            and self._most is None
            and self._calls > self._smallest
            and self.load_of(template) >= SLOW
        )

    def room_for(self, template: CallTemplate, load: int) -> int:
        """Return how many such calls, each of this load, are to be handed over together now."""
        room = self._capacity - self.load
        if room < load:
            # Slow calls are handed over one by one as others end, quick ones when half of what was
            # handed over has ended.
            slow = load >= SLOW or self._most is not None
            self.low = self._capacity - load if slow else self._capacity // 2
            return 0
        return room // load if self.travel_together(template) else 1

    def empty(self) -> None:
        """Note that no call waits: the next is handed over as soon as there is any room."""
        self.low = self._capacity - 1

    def enter(self, calls: int, load: int) -> None:
        """Note that so many calls are handed over, each of this load. Those of none wait for
        others, and keep nobody from being handed over.
        """
        self._calls += calls if load else 0
        self.load += calls * load

    def leave(self, calls: int, load: int) -> None:
        """Note that so many calls have ended, or are to wait again."""
        self._calls -= calls if load else 0
        self.load -= calls * load

    def travel_together(self, template: CallTemplate) -> bool:
        """Return whether such calls are many to a task."""
        if self._most is not None:
            return self._gathers_at_most
        seconds = template.pace.seconds
        return seconds is not None and seconds <= self._gather_seconds
