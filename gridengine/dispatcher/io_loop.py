"""The loop of the I/O thread (`IOLoop`): wait, pass events and messages to the core, perform the
core's effects (`EffectPerformer`), and publish snapshots.

Large results stay at their workers until the caller asks for them (`PayloadsAtWorkers`).
"""

from __future__ import annotations

import logging
import math
import select
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from gridengine.dispatcher.core.events import (
    Continue,
    Drained,
    Event,
    Explain,
    Grant,
    Inform,
    Launch,
    Lost,
    Rebalance,
    Received,
    ResultFetched,
    ResultStays,
    Send,
    StateSaved,
    Tick,
    Warn,
    Withdraw,
)
from gridengine.dispatcher.core.state_machine import StateMachine
from gridengine.dispatcher.core_policy import GATHER_SECONDS
from gridengine.dispatcher.launcher_thread import LauncherThread
from gridengine.dispatcher.serving.clients import REQUESTS, Clients
from gridengine.dispatcher.thread_queues import EventQueue
from gridengine.dispatcher.unsettled import UnsettledTasks, Wanted
from gridengine.dispatcher.worker_links import WorkersLink
from gridengine.errors import GridEngineError
from gridengine.requests import (
    CallsFinished,
    Effect,
    ResultData,
    TaskBegan,
    TaskMessage,
    WantAnswered,
)
from gridengine.resources.base import Resource
from gridengine.resources.demand import cores_of_rank
from gridengine.resources.kinds import Cores, GPUs
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.messages import Allocate, Output
from gridengine.wire.processes import fork_hooks

if TYPE_CHECKING:
    from gridengine.dispatcher.serving.client_listener import ClientListener
    from gridengine.dispatcher.watch_server import WatchServer, WatchStreams

log = logging.getLogger("gridengine")

MOST_LINES = 50
TICK_SECONDS = 0.25
REBALANCE_SECONDS = 0.03
LEAVE_SECONDS = 1.5
"""How long workers have to leave once the dispatcher is closed."""
WATCH_SECONDS = 0.3
"""A dispatcher can be watched from this long after its start."""
MOST_MESSAGES = 1000
MOST_EVENTS = 100
"""At most this many submissions, or messages of clients, are handled before messages of workers:
the first results determine how many calls travel together.
"""


class PayloadsAtWorkers:
    """The payloads with which the caller's outcomes refer to results that are still at workers. The
    I/O thread adds and fills them; any thread may ask for one.

    Args:
        ask: called with the reference of a result that somebody waits for.
        release: called with the references of payloads that the caller has released; also by the
            garbage collector.
    """

    def __init__(
        self, ask: Callable[[int], object], release: Callable[[Sequence[int]], object]
    ) -> None:
        self._ask = ask
        self._release = release
        self._coming: dict[int, Future[ResultData]] = {}

    def add(self, effect: ResultStays) -> None:
        """Make a payload able to fetch its result."""
        payload, reference = effect.payload, effect.payload.reference
        self._coming[reference] = coming = Future[ResultData]()
        payload.load = partial(self._load, reference, coming)
        payload.when_here = partial(self._when_here, reference, coming)
        payload.outcome = coming.result
        # Not at the interpreter's exit: the dispatcher has ended by then, or releases everything
        # itself.
        weakref.finalize(payload, self._let_go, reference).atexit = False

    def _let_go(self, reference: int) -> None:
        self._coming.pop(reference, None)
        self._release((reference,))

    def _load(self, reference: int, coming: Future[ResultData]) -> Payload:
        """Fetch a payload, and wait for it."""
        if not coming.done():
            self._ask(reference)
        data = coming.result()
        if data.error is not None:
            raise data.error
        assert data.payload is not None
        if data.raised:
            raise pickling.load_exception(data.payload)
        return data.payload

    def _when_here(
        self, reference: int, coming: Future[ResultData], act: Callable[[], object]
    ) -> bool:
        if coming.done():
            return False
        coming.add_done_callback(lambda _: act())
        self._ask(reference)
        return True

    def fill(self, effect: ResultFetched) -> None:
        """Pass on a result that has been fetched."""
        coming = self._coming.get(effect.reference)
        if coming is not None and not coming.done():
            coming.set_result(effect.data)

    def close(self, error: GridEngineError) -> None:
        """Give everybody who waits an error, and drop the functions that refer to the
        dispatcher.
        """
        for reference in list(self._coming):
            self.fill(ResultFetched(reference, ResultData(error=error)))
        self._ask = self._release = _ignore


def _ignore(which: object) -> None:
    """Do nothing: the dispatcher has ended."""


class EffectPerformer:
    """Performs effects in the I/O thread.

    Args:
        link: the way to the workers.
        launcher: starts and stops workers.
        unsettled: the tasks that have no outcome yet, with their listeners.
        held: the resources of each worker whose calls share it; None if each worker holds the
            demand of one call.
        wanted: the functions to call if a wanted result is missing, by reference.
        nested: the clients in other processes.
        payloads: the caller's payloads of results that stay at their workers.
        clock: the I/O thread's.
    """

    def __init__(
        self,
        link: WorkersLink,
        launcher: LauncherThread,
        unsettled: UnsettledTasks,
        held: Resource | None,
        wanted: dict[int, Wanted],
        nested: Clients,
        payloads: PayloadsAtWorkers,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._link = link
        self._send = link.send
        self._launcher = launcher
        self._wanted = wanted
        self._nested = nested
        self.recent = deque[tuple[float, str, bool]](maxlen=MOST_LINES)
        """The latest lines of the run's log: when, in monotonic seconds, the text, and whether it
        is a warning.
        """
        self.sent = defaultdict[type, int](int)
        """How many messages workers were sent, by kind."""
        self.drained: Callable[[], object] = lambda: None
        """Called when a draining dispatcher has no running call left."""
        self._exact = held is not None and _lists_cores(held)
        self._methods: dict[type, Callable[[Any], object]] = {
            Grant: self._grant,
            CallsFinished: unsettled.settle,
            TaskBegan: unsettled.began,
            TaskMessage: unsettled.noted,
            Launch: launcher.launch,
            Withdraw: lambda effect: launcher.cancel(effect.handles),
            Explain: self._explain,
            Lost: self._lost,
            WantAnswered: self._answer_want,
            ResultStays: payloads.add,
            ResultFetched: payloads.fill,
            StateSaved: nested.record_state,
            Warn: self._warn,
            Inform: self._inform,
            Drained: lambda effect: self.drained(),
        }

    def perform(self, effects: list[Effect]) -> None:
        """Perform effects in their order."""
        for effect in effects:
            if type(effect) is Send:
                self._send(effect.worker, effect.message, effect.buffers)
                self.sent[type(effect.message)] += 1
            else:
                self._methods[type(effect)](effect)
        if self._nested.finished:
            self._nested.flush()

    def _grant(self, effect: Grant) -> None:
        """Tell a worker the resources of an allocation. If they cannot be pickled, the worker gets
        the error, and its calls fail with it.
        """
        given = effect.given
        cores, gpus = given.get(Cores), given.get(GPUs)
        failed = False
        try:
            payload = pickling.dump(given)
        except BaseException as error:  # a user's own kind of resource may raise anything
            payload, failed = pickling.dump_exception(error), True
        message = Allocate(
            effect.allocation,
            effect.takes,
            None if cores is None else cores.given,
            None if gpus is None else gpus.given,
            exact=self._exact,
            failed=failed,
            buffers=len(payload),
            threads=cores_of_rank(given),
        )
        self._send(effect.worker, message, payload)
        self.sent[Allocate] += 1

    def _explain(self, effect: Explain) -> None:
        look = self._launcher.read_log if effect.running else self._launcher.explain
        look(effect.handles, effect.seconds)

    def _lost(self, effect: Lost) -> None:
        self._link.forget(effect.worker)
        self._nested.forget(effect.worker)

    def _warn(self, effect: Warn) -> None:
        self.recent.append((self._clock.monotonic(), effect.text, True))
        log.warning("%s", effect.text)

    def _inform(self, effect: Inform) -> None:
        self.recent.append((self._clock.monotonic(), effect.text, False))
        inform(effect)

    def _answer_want(self, answer: WantAnswered) -> None:
        wanted = self._wanted.pop(answer.reference, None)
        if wanted is None:
            self._nested.answer_want(answer)
        elif answer.missing:
            wanted[1]()


def inform(effect: Inform) -> None:
    """Log the progress of a run."""
    log.info("%s", effect.text)


def _lists_cores(held: Resource) -> bool:
    """Return whether a user has listed the cores; then their numbers are the machine's own."""
    cores = held.get(Cores)
    return cores is not None and repr(cores) != repr(Cores(cores.N))


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
        link: WorkersLink,
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
        self._read_until = self._round_at = self._clock.monotonic()
        self._round = 0
        self._leave_by = math.inf
        self._open_watch = open_watch
        self._watch: WatchServer | None = None
        self._watch_at = self._clock.monotonic() + WATCH_SECONDS
        self.streams: WatchStreams | None = None
        """The streams for followers; None before anybody could follow."""
        self.snapshot = core.state.snapshot()
        self.hold = fork_hooks().new_hold()
        """Entered while the thread is awake."""

    def run(self) -> None:
        """Run until the core was told to close and its workers have left, or until their time to
        leave is over.
        """
        with self._clock.waking(self._queue.wake), self.hold:
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
            self.hold.leave()
            try:
                ready = dict(self._link.poller.poll(timeout))
            finally:
                self.hold.enter()
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
        count = 0
        for peer, message, buffers in self._link.receive(ready, now, MOST_MESSAGES):
            count += 1
            received[type(message)] += 1
            if type(message) in REQUESTS:
                for event in self._clients.events(peer, message, buffers):
                    perform(core.handle(event, now))
            elif type(message) is Output:
                self._clients.output.pass_on(peer, message, buffers)
            else:
                perform(core.handle(Received(peer, message, buffers), now))
        # The link itself may have taken more messages than it has passed on, and have others left.
        if count < MOST_MESSAGES and self._link.deadline > 0.0:
            self._read_until, self._round_at, self._round = now, now, 0
        else:
            self._count_round(count, now)
        if self.listener is not None:
            came = self.listener.fd in ready or self.listener.pending
            for event in self.listener.events(now, MOST_EVENTS if came else 0):
                perform(core.handle(event, now))
            if now >= self.listener.deadline:
                for event in self.listener.look(now):
                    perform(core.handle(event, now))
        for _ in range(barriers if posted <= MOST_EVENTS else 0):
            self._queue.barriers.popleft()()

    def _count_round(self, count: int, now: float) -> None:
        """Note up to when all workers have been heard that had written something. ZeroMQ's sockets
        give one message of each peer in turn: after as many messages as there are workers, this is
        when these began to be read.
        """
        self._round += count
        if self._round >= len(self._state.workers):
            self._read_until, self._round_at, self._round = self._round_at, now, 0

    def _tick(self, now: float) -> None:
        """Let the core handle the passing of time, poll the workers' states, and publish a
        snapshot. While the core is idle, no next tick is due.
        """
        state = self._state
        late = now - self._tick_at if self._tick_at else 0.0
        # A busy machine is late by less: there, workers that have died must still be found.
        late = late if late > state.policy.lease_seconds / 2 else 0.0
        self._handle(Tick(late, now - self._read_until), now)
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
