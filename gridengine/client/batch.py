"""Single calls that are submitted together, as one task, and how many of them may be underway."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence

from gridengine.client.future import RUNNING, CallFuture, CallTemplate
from gridengine.client.outcomes import OutcomeListener
from gridengine.dispatcher.core.tasks import CallsFinished
from gridengine.serialize import pickling
from gridengine.serialize.argument_snapshot import CallSnapshot
from gridengine.serialize.encoding import with_needs
from gridengine.serialize.payload import Payload
from gridengine.serialize.shared_objects import needs_of


class Batch(OutcomeListener):
    """Calls of one template that were handed over as one task.

    `load` is that of each call, none for one that waits for the results of others. `unsettled` is
    how many have not ended. `unwanted` calls are cancelled should they be given back.
    """

    __slots__ = ("futures", "load", "on_event", "template", "unsettled", "unwanted")

    def __init__(
        self,
        futures: Sequence[CallFuture],
        load: int,
        on_event: Callable[[Batch, CallsFinished], None],
    ) -> None:
        self.futures = futures
        self.template: CallTemplate = futures[0].template
        self.load = load
        self.on_event = on_event
        self.unsettled = len(futures)
        self.unwanted: set[CallFuture] = set()

    def settled(self, event: CallsFinished) -> None:
        self.on_event(self, event)

    def abandoned(self) -> None:
        """Hand over nothing of what waits with these calls."""
        self.template.batcher.withdraw_waiting()

    def running(self) -> list[CallFuture]:
        """Return the calls that have no outcome yet."""
        return [future for future in self.futures if future.outcome is RUNNING]

    def payload(self) -> Payload:
        """Return the pickled list of the calls."""
        if len(self.futures) == 1:
            call = self.futures[0].call
            return call.payload if type(call) is CallSnapshot else [pickle.dumps([call], 5)]
        calls = [future.call for future in self.futures]
        needs = [needs_of(call.payload) for call in calls if type(call) is CallSnapshot]
        if not needs:
            # Constants need no pickler of our own, which takes its time to begin.
            return [pickle.dumps(calls, 5)]
        payload = pickling.dump_calls(calls, form=self.template.form)
        return with_needs(payload, *needs) if any(needs) else payload


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
