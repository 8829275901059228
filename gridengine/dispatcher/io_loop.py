"""The loop of the I/O thread: wait, pass events and messages to the core, perform its effects, and
publish snapshots.
"""

from __future__ import annotations

import math
import select
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from gridengine.dispatcher.core.events import (
    Continue,
    Event,
    Rebalance,
    Received,
    Tick,
)
from gridengine.dispatcher.core.state_machine import StateMachine
from gridengine.dispatcher.effects import EffectPerformer
from gridengine.dispatcher.launcher_thread import LauncherThread
from gridengine.dispatcher.links import Link
from gridengine.dispatcher.run_directory import GATHER_SECONDS
from gridengine.dispatcher.serving.clients import REQUESTS, Clients
from gridengine.dispatcher.thread_queues import EventQueue
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.messages import Output

if TYPE_CHECKING:
    from gridengine.dispatcher.serving.client_listener import ClientListener
    from gridengine.dispatcher.watch_server import WatchServer, WatchStreams

TICK_SECONDS = 0.25
REBALANCE_SECONDS = 0.03
LEAVE_SECONDS = 1.5
"""How long workers have to leave once the dispatcher is closed."""
WATCH_SECONDS = 0.3
"""A dispatcher can be watched from this long after its start."""
MOST_MESSAGES = 1000
MOST_EVENTS = 100
"""At most this many submissions are handled before messages of workers: the first results determine
how many calls travel together.
"""


class IOLoop:
    """Runs the core. All methods are for one thread; any thread may read `snapshot`.

    Args:
        poll_seconds: between two requests to the launcher for the workers' states.
        listener: the end of clients in other processes, if there may be any.
        clock: for waits, and for all times that the core is given.
        open_watch: returns the server for watchers. Called once, a little after the start, because
            a process that runs for a moment is not watched.
    """

    def __init__(
        self,
        core: StateMachine,
        queue: EventQueue[Event],
        link: Link,
        launcher: LauncherThread,
        effects: EffectPerformer,
        clients: Clients,
        poll_seconds: float,
        open_watch: Callable[[], WatchServer | None],
        listener: ClientListener | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._core = core
        self._state = core.state
        self._queue = queue
        self._link = link
        self._launcher = launcher
        self._perform = effects.perform
        self._clients = clients
        self.listener = listener
        self.received = defaultdict[type, int](int)
        """How many messages workers have sent, by kind."""
        self._poll_seconds = poll_seconds
        self._tick_at = self._poll_at = self._rebalance_at = 0.0
        self._leave_by = math.inf
        self._open_watch = open_watch
        self._watch: WatchServer | None = None
        self._watch_at = self._clock.monotonic() + WATCH_SECONDS
        self.streams: WatchStreams | None = None
        """The streams for followers; None before anybody could follow."""
        self.snapshot = core.state.snapshot()

    def run(self) -> None:
        """Run until the core was told to close and its workers have left, or had the time to."""
        with self._clock.waking(self._queue.wake):
            self._run()

    def _run(self) -> None:
        """Wait, handle and perform, until the dispatcher may leave. Posted events come before
        ticks, so that a tick sees everything that was asked.
        """
        poller = self._link.poller
        poller.register(self._queue.fd, select.POLLIN)
        if self.listener is not None:
            poller.register(self.listener.fd, select.POLLIN)
            for event in self.listener.restore():
                self._handle(event, self._clock.monotonic())
        state = self._state
        while not (state.closing and self._may_leave()):
            ready = self._wait()
            now = self._clock.monotonic()
            self._take_events(ready, now)
            if self._watch is not None and self._watch.fd in ready:
                self._watch.serve()
            if self.streams is not None and now >= self.streams.deadline:
                self.streams.push(now)
            if state.deferred:
                self._handle(Continue(), now)
            if now >= self._tick_at:
                self._tick(now)
            if state.rebalance_due and now >= self._rebalance_at:
                self._rebalance_at = now + REBALANCE_SECONDS
                self._handle(Rebalance(), now)

    def _may_leave(self) -> bool:
        now, state = self._clock.monotonic(), self._state
        if self._leave_by == math.inf or state.away:
            self._leave_by = now + LEAVE_SECONDS  # the caller may still fetch results from workers
        return now >= self._leave_by or not state.workers

    def _wait(self) -> dict[int, int]:
        """Sleep until there is something to do; return the descriptors that polled as readable."""
        state, queue = self._state, self._queue
        until = min(self._link.deadline, self._tick_at)
        if state.rebalance_due:
            until = min(until, self._rebalance_at)
        if self.listener is not None:
            until = min(until, self.listener.deadline)
        if self.streams is not None:
            until = min(until, self.streams.deadline)
        queue.sleeping = True
        try:
            # An event that was posted before `sleeping` was set has woken nobody.
            if queue.events or queue.barriers or state.deferred:
                timeout: int | None = 0
            elif self.listener is not None and self.listener.pending:
                timeout = 0
            elif until == math.inf:
                timeout = None
            else:
                timeout = max(0, math.ceil((until - self._clock.monotonic()) * 1000))
            ready = dict(self._link.poller.poll(timeout))
        finally:
            queue.sleeping = False
        if queue.fd in ready:
            queue.drain()
        if self._tick_at == self._watch_at:
            self._tick_at = 0.0  # the event that woke us may have made ticks necessary again
        return ready

    def _take_events(self, ready: dict[int, int], now: float) -> None:
        """Handle posted events, and messages of workers and clients."""
        core, perform, events = self._core, self._perform, self._queue.events
        barriers, posted, received = len(self._queue.barriers), len(events), self.received
        for _ in range(min(posted, MOST_EVENTS)):
            perform(core.handle(events[0], now))
            # Only now: if the core fails, the submission must still be known, so that its listener
            # is told.
            events.popleft()
        for peer, message, buffers in self._link.receive(ready, now, MOST_MESSAGES):
            received[type(message)] += 1
            if type(message) in REQUESTS:
                for event in self._clients.events(peer, message, buffers):
                    perform(core.handle(event, now))
            elif type(message) is Output:
                self._clients.output.pass_on(peer, message, buffers)
            else:
                perform(core.handle(Received(peer, message, buffers), now))
        if self.listener is not None:
            came = self.listener.fd in ready or self.listener.pending
            for event in self.listener.events(now, MOST_MESSAGES if came else 0):
                perform(core.handle(event, now))
            if now >= self.listener.deadline:
                for event in self.listener.look(now):
                    perform(core.handle(event, now))
        for _ in range(barriers if posted <= MOST_EVENTS else 0):
            self._queue.barriers.popleft()()

    def _tick(self, now: float) -> None:
        """Let the core handle the passing of time, poll the workers' states, and publish a
        snapshot. While the core is idle, no next tick is due.
        """
        state = self._state
        self._handle(Tick(), now)
        self.snapshot = state.snapshot()
        if now >= self._watch_at:
            self._be_watched()
        if state.is_idle:
            self._tick_at = self._watch_at
            return
        self._tick_at = now + (GATHER_SECONDS if state.gathering else TICK_SECONDS)
        if now >= self._poll_at:
            self._poll_at = now + self._poll_seconds
            self._launcher.poll([one.handle for one in state.launched_workers()])

    def _be_watched(self) -> None:
        self._watch_at = math.inf
        self._watch = self._open_watch()
        if self._watch is not None:
            self._link.poller.register(self._watch.fd, select.POLLIN)

    def close_watch(self) -> None:
        """Tell followers a last time, and close the server for watchers. May be called twice."""
        if self.streams is not None:
            self.streams.close(self._clock.monotonic())
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _handle(self, event: Event, now: float) -> None:
        self._perform(self._core.handle(event, now))
