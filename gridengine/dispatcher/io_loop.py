"""The loop of the I/O thread: waits, hands events and messages to the core, performs its effects,
and publishes snapshots.
"""

from __future__ import annotations

import math
import select
import time
from collections.abc import Callable
from types import MappingProxyType

from gridengine.dispatcher.core.events import (
    Continue,
    Event,
    Rebalance,
    Received,
    Tick,
)
from gridengine.dispatcher.core.state import StateMachine
from gridengine.dispatcher.effects import EffectPerformer
from gridengine.dispatcher.event_queue import EventQueue
from gridengine.dispatcher.interface import Snapshot
from gridengine.dispatcher.launcher_thread import LauncherThread
from gridengine.dispatcher.links import Link, Poller
from gridengine.dispatcher.run_directory import GATHER_SECONDS

TICK_SECONDS = 0.25
REBALANCE_SECONDS = 0.03
LEAVE_SECONDS = 1.5
"""How long workers have to leave once the dispatcher is closed."""
MOST_MESSAGES = 1000
MOST_EVENTS = 100
"""How many submissions are handled before messages of workers are: their first results determine
how many calls travel together.
"""


class IOLoop:
    """Runs the core. All methods are for one thread; `snapshot` may be read by any.

    Args:
        poll_seconds: between two requests to the launcher for the workers' states.
    """

    def __init__(
        self,
        core: StateMachine,
        queue: EventQueue,
        link: Link,
        launcher: LauncherThread,
        effects: EffectPerformer,
        poll_seconds: float,
    ) -> None:
        self._core = core
        self._queue = queue
        self._link = link
        self._launcher = launcher
        self._perform: Callable[..., None] = effects.perform
        self._poll_seconds = poll_seconds
        self._tick_at = self._poll_at = self._rebalance_at = 0.0
        self._leave_by = math.inf
        self.snapshot = Snapshot()

    def run(self) -> None:
        """Return once the core was told to close, and its workers have left or had time to."""
        poller = self._link.poller()
        poller.register(self._queue.fd, select.POLLIN)
        core = self._core
        while not (core.closing and self._may_leave()):
            ready = self._wait(poller)
            now = time.monotonic()
            self._take_events(ready, now)
            if core.unfilled:
                self._perform(core.handle(Continue(), now))
            if now >= self._tick_at or now >= self._poll_at or core.restless:
                self._handle_due(now)

    def _may_leave(self) -> bool:
        now = time.monotonic()
        self._leave_by = min(self._leave_by, now + LEAVE_SECONDS)
        return now >= self._leave_by or not self._core.workers

    def _wait(self, poller: Poller) -> dict[int, int]:
        """Sleep until there is something to do; return what polled as readable."""
        queue = self._queue
        queue.sleeping = True
        try:
            # What was posted before the line above found nobody asleep.
            busy = queue.events or queue.barriers
            ready = dict(poller.poll(0 if busy else self._milliseconds()))
        finally:
            queue.sleeping = False
        if queue.fd in ready:
            queue.drain()
        return ready

    def _milliseconds(self) -> int | None:
        """Return how long to sleep at most; None is until something wakes us."""
        core, deadline, now = self._core, self._link.next_deadline(), time.monotonic()
        if core.unfilled:
            return 0
        if core.at_rest and deadline > now:
            self.snapshot = snapshot_of(core)  # until there is something to do, no tick comes
            return None
        deadline = min(deadline, self._tick_at)
        if core.restless:
            deadline = min(deadline, self._rebalance_at)
        return max(0, math.ceil((deadline - now) * 1000))

    def _take_events(self, ready: dict[int, int], now: float) -> None:
        """Handle what was posted, and what workers have sent."""
        core, perform, events = self._core, self._perform, self._queue.events
        barriers, posted = len(self._queue.barriers), len(events)
        for _ in range(min(posted, MOST_EVENTS)):
            perform(core.handle(events[0], now))
            # Not before: should the core fail, whoever submitted it is to be told.
            events.popleft()
        for peer, message, buffers in self._link.receive(ready, now, MOST_MESSAGES):
            perform(core.handle(Received(peer, message, buffers), now))
        for _ in range(barriers if posted <= MOST_EVENTS else 0):
            self._queue.barriers.popleft().set()

    def _handle_due(self, now: float) -> None:
        """Handle the timers that are due."""
        core = self._core
        if now >= self._tick_at:
            self._handle(Tick(), now)
            self._tick_at = now + (GATHER_SECONDS if core.gathering else TICK_SECONDS)
            self.snapshot = snapshot_of(core)
        if core.restless and now >= self._rebalance_at:
            self._rebalance_at = now + REBALANCE_SECONDS
            self._handle(Rebalance(), now)
        if now >= self._poll_at and not core.at_rest:
            self._poll_at = now + self._poll_seconds
            self._launcher.poll([one.handle for one in core.launched_workers()])

    def _handle(self, event: Event, now: float) -> None:
        self._perform(self._core.handle(event, now))


def snapshot_of(core: StateMachine) -> Snapshot:
    """Return the state of the core now. For the thread that owns it."""
    batches = {one.number: one.batches for one in core.submitters.values() if one.batches}
    return Snapshot(core.calls_waiting, core.running, len(core.workers), MappingProxyType(batches))
