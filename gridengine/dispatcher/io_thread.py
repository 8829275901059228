"""The I/O thread that all users of one scheduler share: it performs what the core decides.

One thread owns the socket and the core. A second owns the launcher, whose calls may be slow; its
answers come back as events. Nothing is pickled or unpickled here.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import itertools
import logging
import math
import os
import select
import signal
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from gridengine.dispatcher.core import objects
from gridengine.dispatcher.core.allocator import MOST_REMEMBERED, can_hold
from gridengine.dispatcher.core.events import (
    CancelRequested,
    Closing,
    Continue,
    Event,
    Explain,
    Grant,
    Launch,
    Lost,
    Rebalance,
    RecallRequested,
    Received,
    Released,
    Send,
    Submitted,
    Tick,
    Warn,
    Withdraw,
)
from gridengine.dispatcher.core.state import StateMachine
from gridengine.dispatcher.core.tasks import CallsFinished, Function, Task, TaskMessage, TaskStarted
from gridengine.dispatcher.interface import Counts, Listener
from gridengine.dispatcher.launcher_thread import LauncherThread
from gridengine.dispatcher.local_workers import LocalWorkers
from gridengine.dispatcher.run_directory import GATHER_SECONDS, policy_of, tidy, write_connection
from gridengine.dispatcher.unsettled import UnsettledTasks
from gridengine.errors import Cancelled, ConfigurationError, safe_repr
from gridengine.resources.base import Resource
from gridengine.resources.demand import ANY, Demand
from gridengine.resources.kinds import Cores, GPUs
from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.launcher import LaunchContext
from gridengine.serialize import pickling
from gridengine.serialize.module_changes import own_modules
from gridengine.serialize.payload import Payload
from gridengine.serialize.shared_objects import all_needed
from gridengine.settings.values import Settings
from gridengine.wire.messages import Allocate, Beat, Message, Output, OutputTaken
from gridengine.wire.open_files import check_threads
from gridengine.worker.output_relay import JobsOutput
from gridengine.worker.stream_writer import StandardStreams

log = logging.getLogger("gridengine")

TICK_SECONDS = 0.25
LOOK_SECONDS = 0.03
LOCAL_POLL_SECONDS = 0.5
LEAVE_SECONDS = 1.5
CLOSE_SECONDS = 15.0
LOCAL_THREADS, THREADS = 2, 5
"""This one and the launcher's; with workers elsewhere also two of ZeroMQ's, and one that checks
keys.
"""
MOST_MESSAGES = MOST_TASKS = 1000
MOST_EVENTS = 100
"""How many submissions are taken in before workers are heard: their first answers say how many
calls are to travel together.
"""


class Poller(Protocol):
    """What `select.poll` and `zmq.Poller` have in common."""

    def register(self, fd: int, eventmask: int, /) -> object: ...
    def poll(self, timeout: int | None = None, /) -> list[tuple[Any, int]]: ...


class Link(Protocol):
    """The way to the workers: a `Server` for those elsewhere, `LocalWorkers` for those of this
    machine.
    """

    def poller(self) -> Poller: ...
    def patience(self, now: float) -> float: ...
    def receive(self, most: int) -> Iterator[tuple[bytes, Message, Payload]]: ...
    def send(self, peer: bytes, message: Message, buffers: Payload = ()) -> None: ...
    def beat(self, peer: bytes) -> None: ...
    def forget(self, peer: bytes) -> None: ...
    def close(self) -> None: ...


class DispatcherThread:
    """Runs tasks on one scheduler's workers. Its methods may be called from any thread.

    Raises:
        ConfigurationError: no run directory, or no socket, can be made.
    """

    at_once = False
    """Whether calls have ended when they have been submitted."""

    def __init__(self, scheduler: Scheduler, settings: Settings) -> None:
        check_threads(LOCAL_THREADS if scheduler.local else THREADS)
        self.slots = scheduler.slots * scheduler.max_workers
        self._owner = os.getpid()
        self._ids = itertools.count(1)
        self._run_id = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{os.urandom(3).hex()}"
        self._inbox: deque[Event] = deque()
        self._wake_up = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._sleeping = False
        self._streams = StandardStreams(self._wake)
        self._jobs_output = JobsOutput(self._streams)
        try:
            self._link, self._run = self._open(scheduler, settings)
        except BaseException:
            os.close(self._wake_up)
            raise
        self._held = scheduler.worker_resources
        self._exact = self._held is not None and _lists_cores(self._held)
        self._possible: set[Demand] = set()
        self._state = StateMachine(policy_of(scheduler, settings, self._run_id))
        self._pending = UnsettledTasks()
        # The collector may close this hub while its own thread submits.
        self._closing = threading.RLock()
        self._closed = False
        self._settled = threading.Condition()
        self._catching_up: deque[threading.Event] = deque()
        self._poll_seconds = LOCAL_POLL_SECONDS if scheduler.local else settings.poll_seconds
        # A copy: whatever refers to the user's own scheduler would keep it from being collected.
        self._desk = LauncherThread(copy.copy(scheduler).launcher, self._run, self._post)
        self._thread = threading.Thread(
            target=self._work, name=f"gridengine-{self._run_id}", daemon=True
        )
        self._thread.start()
        for stream in self._streams:
            stream.start()
        # Not when the thread ends: another may be about to wake it, and the number would be another
        # file's.
        weakref.finalize(self, os.close, self._wake_up).atexit = False
        atexit.register(self._at_exit)

    def _open(self, scheduler: Scheduler, settings: Settings) -> tuple[Link, LaunchContext]:
        """Make the way to the workers, and say how they are started."""
        if scheduler.local:
            local = LocalWorkers(
                scheduler,
                run_id=self._run_id,
                settings=settings,
                streams=self._streams,
                wake=self._wake,
            )
            return local, LaunchContext(self._run_id, Path(), Path(), local.adopt)
        from gridengine.wire.transport import Server

        server = Server(host=settings.host, workers=scheduler.max_workers)
        try:
            run = write_connection(server, scheduler, settings, self._run_id)
        except BaseException:
            server.close()
            raise
        log.info("what calls print goes to the workers' logs below %s", run.directory)
        return server, run

    # ---------------------------------------------------------------- for users, from any thread

    def new_id(self) -> int:
        """Return an id for a task, unique for this hub."""
        return next(self._ids)

    def submit(self, function: Function, tasks: Sequence[Task], listener: Listener) -> None:
        """Have tasks run; each of their calls is told to the listener once.

        Raises:
            ConfigurationError: the hub is closed, or belongs to the process that this one was
            forked from.
        """
        modules = own_modules()
        modules.look_now_and_then()
        with self._closing:  # nothing may be submitted behind the closing: nobody would read it
            self._check()
            for task in tasks:
                if task.demand is not ANY:
                    self.check(task.demand)
            self._pending.add(tasks, listener)
            # The core takes one event at a time, and meanwhile nobody is answered.
            self._inbox.extend(
                Submitted(function, tasks[start : start + MOST_TASKS], modules.generation)
                for start in range(0, len(tasks), MOST_TASKS)
            )
            for lent in all_needed(function.needs, *(task.needs for task in tasks)):
                lent.used_by(self)
        self._wake()

    def check(self, demand: Demand) -> None:
        """See whether a worker can ever hold what calls ask for, and whether it can travel.

        Raises:
            ConfigurationError: no worker can; the text says what they hold.
            PicklingError: its class is a user's own, and cannot travel.
            Exception: what a user's own class raises.
        """
        if demand not in self._possible:
            can_hold(self._state.policy, demand.request)
            pickling.dump(demand.resources)
            if len(self._possible) >= MOST_REMEMBERED:
                self._possible.clear()
            self._possible.add(demand)

    def cancel(self, tasks: Iterable[int], number: int = signal.SIGTERM) -> None:
        """End tasks: calls not started never run; those that run are sent the signal. Each is
        settled all the same.
        """
        if os.getpid() == self._owner and not self._closed:
            self._post(CancelRequested(tuple(tasks), number))

    def recall(self, calls: Iterable[tuple[int, int, int]]) -> None:
        """Take back what has not begun of these calls (a task, its first call, the one after the
        last): it is settled as `recalled`.
        """
        if os.getpid() == self._owner and not self._closed:
            self._post(RecallRequested(tuple(calls)))

    def catch_up(self) -> None:
        """Wait until all that this thread has asked for is decided, and, of workers of this
        machine, carried out.
        """
        if os.getpid() != self._owner or threading.current_thread() is self._thread:
            return
        done = threading.Event()
        with self._closing:
            if self._closed:
                return
            self._catching_up.append(done)
        self._wake()
        done.wait()

    def release(self, name: bytes) -> None:
        """Note that nobody can hand in this shared object any more. Called by the collector too, at
        any point: it waits for no lock.
        """
        if os.getpid() == self._owner and not self._closed:
            self._post(Released(name))

    def counts(self, submitter: int | None = None) -> Counts:
        """Return how much waits and runs just now; with a submitter, how much of its runs."""
        one = None if submitter is None else self._state.submitters.get(submitter)
        running = self._state.running if submitter is None else 0 if one is None else one.batches
        return Counts(self._state.calls_waiting, running, len(self._state.workers))

    def close(self, *, wait: bool = True) -> None:
        """End all that runs, the workers and the threads; what is not settled is settled with
        `Cancelled`. May be called twice.
        """
        if os.getpid() == self._owner:
            self._end(wait=wait)
            if wait:
                self.flush_output()

    def _end(self, *, wait: bool) -> None:
        with self._closing:
            first, self._closed = not self._closed, True
            if first:
                self._inbox.append(Closing())
        if first:
            self._wake()
        if wait and threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_SECONDS)

    def flush_output(self, seconds: float | None = None) -> None:
        """Wait until our standard output and error have taken what was printed up to now, or so
        many seconds, at most five.
        """
        self._streams.flush(seconds)

    def _check(self) -> None:
        if os.getpid() != self._owner:
            raise ConfigurationError(
                "this scheduler's workers belong to the process that this one was forked from",
                hint="make a new scheduler after the fork",
            )
        if self._closed:
            raise ConfigurationError("this scheduler has been closed", hint="make a new one")

    def _at_exit(self) -> None:
        """Wait for what is not daemon, as the standard library does, unless an exception ends the
        interpreter; then end all.
        """
        if os.getpid() != self._owner:
            return
        try:
            self._wait_for_jobs()
            self._end(wait=True)
            self._streams.close()
        except (
            KeyboardInterrupt
        ):  # another: what is left ends by itself, its end of the line being gone
            self._end(wait=False)
            self._streams.drop("interrupted")

    def _wait_for_jobs(self) -> None:
        """Wait for what is not daemon, until an interrupt, and not at all when an exception ends
        the interpreter.
        """
        failed = getattr(sys, "last_value", None) is not None and not hasattr(sys, "ps1")
        try:
            with self._settled:
                self._settled.wait_for(
                    lambda: failed or self._closed or self._pending.all_daemons()
                )
        except KeyboardInterrupt:
            log.warning("interrupted while waiting for jobs; they are ended")

    # ---------------------------------------------------------------- the I/O thread

    def _post(self, event: Event) -> None:
        self._inbox.append(event)
        self._wake()

    def _wake(self) -> None:
        if self._sleeping:
            with contextlib.suppress(BlockingIOError, OSError):
                os.eventfd_write(self._wake_up, 1)

    def _work(self) -> None:
        try:
            self._loop()
        except BaseException as error:
            log.critical("the dispatcher's thread failed; all that runs is ended", exc_info=True)
            self._fail_all(error)
        finally:
            self._tear_down()
            atexit.unregister(
                self._at_exit
            )  # not before: who closes without waiting has the interpreter's end wait

    def _loop(self) -> None:
        poller = self._link.poller()
        poller.register(self._wake_up, select.POLLIN)
        tick_at = poll_at = look_at = 0.0
        leave_by: float | None = None
        while True:
            self._wait(poller, min(tick_at, look_at) if self._state.restless else tick_at)
            now = time.monotonic()
            self._take_in(now)
            if self._state.unfilled:
                self._handle(Continue(), now)
            if now >= tick_at:
                self._handle(Tick(), now)
                tick_at = now + (GATHER_SECONDS if self._state.gathering else TICK_SECONDS)
            if self._state.restless and now >= look_at:
                look_at = now + LOOK_SECONDS
                self._handle(Rebalance(), now)
            if now >= poll_at and not self._state.at_rest:
                poll_at = now + self._poll_seconds
                self._desk.poll([one.handle for one in self._state.launched_workers()])
            if self._state.closing:
                leave_by = now + LEAVE_SECONDS if leave_by is None else leave_by
                if now >= leave_by or not self._state.workers:
                    return

    def _wait(self, poller: Poller, until: float) -> None:
        self._sleeping = True
        try:
            # What was posted before the line above saw nobody asleep.
            woken = dict(
                poller.poll(0 if self._inbox or self._catching_up else self._patience(until))
            )
        finally:
            self._sleeping = False
        if self._wake_up in woken:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake_up)

    def _patience(self, until: float) -> int | None:
        """Return the milliseconds until then, or None when there is nothing to look after."""
        now = time.monotonic()
        patience = self._link.patience(now)
        if self._state.unfilled:
            return 0
        if self._state.at_rest and patience:
            return None
        return math.ceil(min(patience, max(0.0, until - now)) * 1000)

    def _take_in(self, now: float) -> None:
        asked, waiting = len(self._catching_up), len(self._inbox)
        for _ in range(min(waiting, MOST_EVENTS)):
            self._handle(self._inbox[0], now)
            # not before: should the core fail, whoever submitted it is to be told
            self._inbox.popleft()
        for peer, message, buffers in self._link.receive(MOST_MESSAGES):
            if isinstance(message, Beat):
                self._link.beat(peer)
            elif isinstance(message, Output):
                self._jobs_output.take(peer, message, bytes(buffers[0]))
                continue
            self._handle(Received(peer, message, buffers), now)
        for peer, size in self._jobs_output.taken():
            self._link.send(peer, OutputTaken(size))
        for _ in range(asked if waiting <= MOST_EVENTS else 0):
            self._catching_up.popleft().set()

    def _handle(self, event: Event, now: float) -> None:
        for effect in self._state.handle(event, now):
            _PERFORM[type(effect)](self, effect)

    def _send(self, effect: Send) -> None:
        self._link.send(effect.worker, effect.message, effect.buffers)

    def _grant(self, effect: Grant) -> None:
        cores, gpus = effect.given.get(Cores), effect.given.get(GPUs)
        failed = False
        try:
            payload = pickling.dump(effect.given)
        except BaseException as error:  # a kind may be a user's own
            payload, failed = pickling.dump_exception(error), True
        message = Allocate(
            effect.allocation,
            effect.takes,
            None if cores is None else cores.c,
            None if gpus is None else gpus.g,
            exact=self._exact,
            failed=failed,
            buffers=len(payload),
        )
        self._link.send(effect.worker, message, payload)

    def _settle(self, effect: CallsFinished) -> None:
        listener = self._pending.tell(effect)
        if listener is not None and not listener.daemon:
            with self._settled:
                self._settled.notify_all()

    def _began(self, effect: TaskStarted) -> None:
        listener = self._pending.listener(effect.task)
        if listener is not None:
            listener.began(effect)

    def _noted(self, effect: TaskMessage) -> None:
        listener = self._pending.listener(effect.task)
        if listener is not None:
            listener.noted(effect)

    def _launch(self, effect: Launch) -> None:
        self._desk.launch(effect.count, effect.demand)

    def _withdraw(self, effect: Withdraw) -> None:
        self._desk.cancel(effect.handles)

    def _explain(self, effect: Explain) -> None:
        self._desk.explain(effect.handles, effect.seconds)

    def _lost(self, effect: Lost) -> None:
        self._link.forget(effect.worker)

    def _warn(self, effect: Warn) -> None:
        log.warning("%s", effect.text)

    def _fail_all(self, cause: BaseException) -> None:
        """The thread itself failed: nobody may wait for ever for what it can no longer bring."""
        with self._closing:
            self._closed = True
        for failure in self._pending.fail(
            Cancelled(
                f"the dispatcher's thread failed: {safe_repr(cause)}",
                hint="report this as a fault of gridengine",
            )
        ):
            log.critical("somebody could not be told of it", exc_info=failure)

    def _tear_down(self) -> None:
        for done in self._catching_up:
            done.set()
        with (
            contextlib.ExitStack() as steps
        ):  # the last is the first, and each is gone although another may fail
            if not isinstance(self._link, LocalWorkers):
                steps.callback(tidy, self._run)
            steps.callback(self._let_exit)
            steps.callback(objects.clear, self._state)
            steps.callback(self._streams.end)
            steps.callback(self._link.close)
            steps.callback(self._desk.close)
            if isinstance(self._link, LocalWorkers):
                steps.callback(
                    self._link.close
                )  # nurseries end what is below them, and then their processes need not be killed

    def _let_exit(self) -> None:
        """Nothing is waited for any more."""
        self._pending.clear()
        with self._settled:
            self._settled.notify_all()


_PERFORM: dict[type, Callable[[DispatcherThread, Any], None]] = {
    Send: DispatcherThread._send,
    Grant: DispatcherThread._grant,
    CallsFinished: DispatcherThread._settle,
    TaskStarted: DispatcherThread._began,
    TaskMessage: DispatcherThread._noted,
    Launch: DispatcherThread._launch,
    Withdraw: DispatcherThread._withdraw,
    Explain: DispatcherThread._explain,
    Lost: DispatcherThread._lost,
    Warn: DispatcherThread._warn,
}


def _lists_cores(held: Resource) -> bool:
    """Return whether somebody has said which cores there are: then their numbers are the machine's
    own.
    """
    cores = held.get(Cores)
    return cores is not None and repr(cores) != repr(Cores(cores.N))
