"""The dispatcher of one scheduler: an I/O thread that all its users share.

The I/O thread owns the core and the link to the workers. A second thread owns the launcher, whose
calls may be slow; its answers are posted as events. Nothing is unpickled here.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import itertools
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from gridengine.dispatcher.core import objects
from gridengine.dispatcher.core.events import (
    CancelRequested,
    Closing,
    Event,
    RecallRequested,
    ReferencesReleased,
    Released,
    ResultAsked,
    ResultWanted,
    Submitted,
    Supplied,
)
from gridengine.dispatcher.core.feasibility import can_hold
from gridengine.dispatcher.core.snapshot import Snapshot
from gridengine.dispatcher.core.state import MOST_REMEMBERED
from gridengine.dispatcher.core.state_machine import StateMachine
from gridengine.dispatcher.core.tasks import Function, ResultData, Task
from gridengine.dispatcher.effects import EffectPerformer
from gridengine.dispatcher.event_queue import EventQueue
from gridengine.dispatcher.interface import Listener
from gridengine.dispatcher.io_loop import IOLoop
from gridengine.dispatcher.kept_payloads import KeptPayloads
from gridengine.dispatcher.launcher_thread import LauncherThread
from gridengine.dispatcher.links import Link
from gridengine.dispatcher.local_workers import LocalWorkers
from gridengine.dispatcher.nested_clients import NestedClients
from gridengine.dispatcher.old_runs import new_run_id
from gridengine.dispatcher.run_directory import policy_of
from gridengine.dispatcher.unsettled import UnsettledTasks
from gridengine.errors import Cancelled, ConfigurationError, safe_repr
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.base import Scheduler
from gridengine.serialize import pickling
from gridengine.serialize.module_changes import own_modules
from gridengine.serialize.shared_objects import all_needed
from gridengine.settings.values import Settings
from gridengine.wire.open_files import check_threads

log = logging.getLogger("gridengine")

LOCAL_POLL_SECONDS = 0.5
CLOSE_SECONDS = 15.0
LOCAL_THREADS, THREADS = 2, 5
"""This one and the launcher's; with workers elsewhere also two of ZeroMQ's, and one that checks
keys.
"""
MOST_TASKS = 1000
"""How many tasks one event submits at most: meanwhile no message is handled."""


class DispatcherThread:
    """Runs tasks on one scheduler's workers. Its methods may be called from any thread.

    Raises:
        ConfigurationError: no run directory, or no socket, can be made.
    """

    at_once = False
    call_slot = None

    def __init__(self, scheduler: Scheduler, settings: Settings) -> None:
        check_threads(LOCAL_THREADS if scheduler.local else THREADS)
        self.slots = scheduler.slots * scheduler.max_workers
        self._owner = os.getpid()
        self.new_id = itertools.count(1).__next__
        """Returns an id for a task, unique for this dispatcher."""
        run_id = new_run_id()
        self._queue = EventQueue()
        self._link = _open_link(scheduler, settings, run_id, self._queue)
        self._possible: set[Demand] = set()
        self._policy = policy_of(scheduler, settings, self._link.context)
        self._core = StateMachine(self._policy)
        self._unsettled = UnsettledTasks()
        self._wanted: dict[int, Callable[[], object]] = {}
        self._kept = KeptPayloads(self._ask, self.release_references)
        # Reentrant: the collector may close this while its own thread submits.
        self._closing = threading.RLock()
        self._closed = False
        # A copy: whatever refers to the user's own scheduler would keep it from being collected.
        self._launcher = LauncherThread(
            copy.copy(scheduler).launcher, self._link.context, self._queue.post
        )
        nested = NestedClients(
            self._core.state,
            self._link.send,
            self._queue.post,
            self._unsettled,
            self.check,
            slots=self.slots,
        )
        self._loop = IOLoop(
            self._core,
            self._queue,
            self._link,
            self._launcher,
            EffectPerformer(
                self._link,
                self._launcher,
                self._unsettled,
                scheduler.worker_resources,
                self._wanted,
                nested,
                self._kept,
            ),
            nested,
            LOCAL_POLL_SECONDS if scheduler.local else settings.poll_seconds,
        )
        self._thread = threading.Thread(target=self._work, name=f"gridengine-{run_id}", daemon=True)
        self._thread.start()
        for stream in self._link.streams:
            stream.start()
        atexit.register(self._at_exit)

    # ---------------------------------------------------------------- for clients, from any thread

    def submit(self, function: Function, tasks: Sequence[Task], listener: Listener) -> None:
        """Have tasks run; the listener receives the outcome of each of their calls once.

        Raises:
            ConfigurationError: the dispatcher is closed, or belongs to the process that this one
                was forked from; or no worker can hold what a task asks for.
        """
        modules = own_modules()
        if time.monotonic() > modules.due:
            modules.check()
        with self._closing:  # nothing may be submitted behind `Closing`: nobody would read it
            if self._closed or os.getpid() != self._owner:
                self._refuse()
            shared = function.needs
            for task in tasks:
                if task.demand is not ANY:
                    self.check(task.demand)
                if task.needs:
                    shared = (*shared, *task.needs)
            self._unsettled.add(tasks, listener)
            generation = modules.generation
            if len(tasks) <= MOST_TASKS:
                self._queue.post(Submitted(function, tasks, generation))
            else:
                # The core handles one event at a time, and no message of a worker meanwhile.
                self._queue.extend(
                    [
                        Submitted(function, tasks[start : start + MOST_TASKS], generation)
                        for start in range(0, len(tasks), MOST_TASKS)
                    ]
                )
            for one in all_needed(shared) if shared else ():
                one.used_by(self)

    def check(self, demand: Demand) -> None:
        """Check that a worker can hold what calls ask for, and that the request can be pickled.

        Raises:
            ConfigurationError: no worker can; the text says what they hold.
            PicklingError: a resource is of a user's own class, which cannot be pickled.
            Exception: what a user's own class raises.
        """
        if demand not in self._possible:
            can_hold(self._policy, demand.request)
            pickling.dump(demand.resources)
            if len(self._possible) >= MOST_REMEMBERED:
                self._possible.clear()
            self._possible.add(demand)

    def cancel(
        self,
        tasks: Iterable[int],
        number: int = signal.SIGTERM,
        calls: Iterable[tuple[int, int, int]] = (),
    ) -> None:
        """End tasks, and of others these calls (a task, its first call, the one after the last):
        calls not started never run; those that run are sent the signal. The listener receives an
        outcome of each all the same.
        """
        self._post(CancelRequested(tuple(tasks), number, tuple(calls)))

    def recall(self, calls: Iterable[tuple[int, int, int]]) -> None:
        """Withdraw what has not begun of these calls (a task, its first call, the one after the
        last): it is settled as `recalled`.
        """
        self._post(RecallRequested(tuple(calls)))

    def catch_up(self) -> None:
        """Wait until all that this thread has asked for is decided, and, for workers of this
        machine, carried out.
        """
        if os.getpid() != self._owner or threading.current_thread() is self._thread:
            return
        with self._closing:
            if self._closed:
                return
            done = self._queue.barrier()
        done.wait()

    def release(self, name: bytes) -> None:
        """Note that no new task can refer to this shared object. Waits for no lock, since the
        garbage collector calls it too.
        """
        self._post(Released(name))

    def want(self, task: int, index: int, reference: int, missing: Callable[[], object]) -> None:
        """Have a reference stand for the result of a call that was handed in before. Should what
        came of it not be had here any more, `missing` is called, once, in the I/O thread: it is to
        see that `supply` is, now or later. It is let go of when that is known.
        """
        if not self._closed:
            self._wanted[reference] = missing
        self._post(ResultWanted(((task, index, reference),)))

    def supply(self, reference: int, data: ResultData) -> None:
        """Say what a reference stands for that no call of this dispatcher makes."""
        self._post(Supplied(reference, data))

    def release_references(self, references: Sequence[int]) -> None:
        """Note that no new task can refer to these results. Waits for no lock, since the garbage
        collector calls it too.
        """
        self._post(ReferencesReleased(references))

    def detach(self, submitter: int) -> None:
        """Do nothing: no call submits here."""

    def _ask(self, reference: int) -> None:
        """Have a result come here that lies with a worker. When this is being closed it comes by
        itself.
        """
        if os.getpid() != self._owner:
            self._refuse()
        self._post(ResultAsked(reference))

    def snapshot(self) -> Snapshot:
        """Return the latest published state, at most some tenths of a second old."""
        return self._loop.snapshot

    def close(self, *, wait: bool = True) -> None:
        """End all calls, the workers and the threads; calls not settled are settled with
        `Cancelled`. May be called twice.
        """
        if os.getpid() == self._owner:
            self._end(wait=wait)
            if wait:
                self.flush_output()

    def flush_output(self, seconds: float | None = None) -> None:
        """Wait until our standard output and error have taken what was printed up to now, or so
        many seconds, at most five.
        """
        self._link.streams.flush(seconds)

    def _post(self, event: Event) -> None:
        if os.getpid() == self._owner and not self._closed:
            self._queue.post(event)

    def _refuse(self) -> None:
        if os.getpid() != self._owner:
            raise ConfigurationError(
                "this scheduler's workers belong to the process that this one was forked from",
                hint="make a new scheduler after the fork",
            )
        raise ConfigurationError("this scheduler has been closed", hint="make a new one")

    # ---------------------------------------------------------------- the end

    def _end(self, *, wait: bool, for_good: bool = False) -> None:
        with self._closing:
            if not self._closed:
                self._closed = True
                self._queue.post(Closing(for_good))
        if wait and threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_SECONDS)

    def _at_exit(self) -> None:
        """Wait for what is not daemon, as the standard library does, unless an exception ends the
        interpreter; then end all.
        """
        if os.getpid() != self._owner:
            return
        try:
            self._wait_for_jobs()
            self._end(wait=True, for_good=True)
            self._link.streams.close()
        except KeyboardInterrupt:
            # Another one: what is left ends by itself when its connection to us is gone.
            self._end(wait=False, for_good=True)
            self._link.streams.drop("interrupted")

    def _wait_for_jobs(self) -> None:
        """Wait for what is not daemon, until an interrupt, and not at all when an exception ends
        the interpreter.
        """
        failed = getattr(sys, "last_value", None) is not None and not hasattr(sys, "ps1")
        try:
            self._unsettled.wait_for_jobs(lambda: failed or self._closed)
        except KeyboardInterrupt:
            log.warning("interrupted while waiting for jobs; they are ended")

    # ---------------------------------------------------------------- the I/O thread

    def _work(self) -> None:
        broken = True
        try:
            self._loop.run()
            broken = False
        except BaseException as error:
            log.critical("the dispatcher's thread failed; all that runs is ended", exc_info=True)
            self._fail_all(error)
        finally:
            self._tear_down(broken=broken)
            # Not before: who closes without waiting has the interpreter's end wait.
            atexit.unregister(self._at_exit)

    def _fail_all(self, cause: BaseException) -> None:
        """Settle all calls when the I/O thread has failed: nobody may wait for ever."""
        with self._closing:
            self._closed = True
        for failure in self._unsettled.fail(
            Cancelled(
                f"the dispatcher's thread failed: {safe_repr(cause)}",
                hint="report this as a fault of gridengine",
            )
        ):
            log.critical("somebody could not be told of it", exc_info=failure)

    def _tear_down(self, *, broken: bool) -> None:
        for done in self._queue.barriers:
            done.set()
        # The last is the first, and all are done although one may fail.
        with contextlib.ExitStack() as steps:
            steps.callback(self._unsettled.clear)
            steps.callback(self._wanted.clear)
            steps.callback(
                self._kept.close, Cancelled("the result was not fetched before all was closed")
            )
            steps.callback(objects.clear, self._core.state)
            steps.callback(self._link.streams.end)
            steps.callback(self._link.close, failed=broken or self._core.state.failed > 0)
            steps.callback(self._launcher.close)
            # Fork servers end what is below them, and then their processes need not be killed.
            steps.callback(self._link.stop_workers)


def _open_link(scheduler: Scheduler, settings: Settings, run_id: str, queue: EventQueue) -> Link:
    if scheduler.local:
        return LocalWorkers(scheduler, run_id=run_id, settings=settings, wake=queue.wake)
    from gridengine.dispatcher.remote_workers import RemoteWorkers  # imports ZeroMQ

    return RemoteWorkers(scheduler, run_id=run_id, settings=settings, wake=queue.wake)
