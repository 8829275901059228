"""The dispatcher of one scheduler: an I/O thread that all its users share.

The I/O thread owns the core and the link to the workers. A second thread owns the launcher, whose
calls may be slow; its answers are posted as events. Nothing is unpickled here.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import functools
import itertools
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from gridengine.dispatcher.clients import Clients
from gridengine.dispatcher.core import objects
from gridengine.dispatcher.core.events import (
    CancelRequested,
    Closing,
    Draining,
    Event,
    RecallRequested,
    ReferencesReleased,
    Released,
    ResultAsked,
    ResultWanted,
    Scaled,
    Submitted,
    Supplied,
)
from gridengine.dispatcher.core.feasibility import can_hold
from gridengine.dispatcher.core.snapshot import Snapshot
from gridengine.dispatcher.core.state_machine import StateMachine
from gridengine.dispatcher.core.tasks import Function, ResultData, Task
from gridengine.dispatcher.effects import EffectPerformer
from gridengine.dispatcher.event_queue import EventQueue, Question
from gridengine.dispatcher.interface import Listener
from gridengine.dispatcher.io_loop import IOLoop
from gridengine.dispatcher.kept_payloads import KeptPayloads
from gridengine.dispatcher.launch_record import LaunchRecord
from gridengine.dispatcher.launcher_thread import LauncherThread
from gridengine.dispatcher.links import Link
from gridengine.dispatcher.local_workers import LocalWorkers
from gridengine.dispatcher.old_runs import new_run_id
from gridengine.dispatcher.run_directory import policy_of
from gridengine.dispatcher.standalone_files import LAUNCHES
from gridengine.dispatcher.unsettled import UnsettledTasks
from gridengine.dispatcher.worker_record import RecordedLink
from gridengine.errors import Cancelled, ConfigurationError, safe_repr
from gridengine.resources.demand import ANY, Demand, RememberedDemands
from gridengine.schedulers.base import Scheduler
from gridengine.serialize import pickling
from gridengine.serialize.module_changes import own_modules
from gridengine.serialize.shared_objects import all_needed
from gridengine.settings.values import Settings
from gridengine.wire.open_files import check_threads

if TYPE_CHECKING:
    from gridengine.dispatcher.client_actions import Action
    from gridengine.dispatcher.client_listener import ClientListener
    from gridengine.dispatcher.core.status import Status
    from gridengine.dispatcher.metrics import MetricsFile
    from gridengine.dispatcher.standalone_files import Home
    from gridengine.dispatcher.watch_answers import WatchAnswers
    from gridengine.dispatcher.watch_server import WatchServer
    from gridengine.dispatcher.watch_streams import Follower
    from gridengine.journal.dispatcher_file import DispatcherFile
    from gridengine.wire.connection_file import ServerKeys
    from gridengine.wire.server import Server

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

    Args:
        server: of a dispatcher that has clients in other processes, what they connect to.
        home: of a stand-alone one, its folder.
        journal: where it keeps what they hand in; closed with this.

    Raises:
        ConfigurationError: no run directory, or no socket, can be made.
    """

    at_once = False
    call_slot = check_room = None
    name = script = ""
    """As who watches it calls it, and what it runs; empty for one that is in its user's script."""

    def __init__(
        self,
        scheduler: Scheduler,
        settings: Settings,
        *,
        server: Server | None = None,
        home: Home | None = None,
        journal: DispatcherFile | None = None,
    ) -> None:
        check_threads(LOCAL_THREADS if scheduler.local and home is None else THREADS)
        self.slots = scheduler.slots * scheduler.max_workers
        self._owner = os.getpid()
        self.new_id = itertools.count(1).__next__
        """Returns an id for a task, unique for this dispatcher."""
        run_id = new_run_id() if home is None else home.kept.run_id
        self._queue = EventQueue[Event]()
        self._link = _open_link(scheduler, settings, run_id, self._queue, home)
        self._possible = RememberedDemands()
        self._policy = replace(
            policy_of(scheduler, settings, self._link.context), keeps_others=home is not None
        )
        self._core = StateMachine(self._policy)
        if journal is not None:
            self._link = RecordedLink(
                self._link,
                journal,
                self._core.state.runs,
                self._queue.wake,
            )
        self._unsettled = UnsettledTasks()
        self._scheduler_name, self._began = type(scheduler).__name__, time.monotonic()
        self._settings = settings
        self._metrics = _metrics_file(settings, run_id, self._scheduler_name)
        self._answers: WatchAnswers | None = None
        self._journal = journal
        self._wanted: dict[int, Callable[[], object]] = {}
        self._kept = KeptPayloads(self._ask, self.release_references)
        # Reentrant: the collector may close this while its own thread submits.
        self._closing = threading.RLock()
        self._closed = False
        self.failure: BaseException | None = None
        """What has ended the I/O thread before it was told to."""
        self._when_ended: Callable[[], object] = lambda: None
        self.actions: dict[str, Action] = {}
        """What clients in other processes may have done, or told, by name."""
        record = None
        if home is not None and home.epoch and not scheduler.local:
            record = LaunchRecord(home.folder / LAUNCHES)
        # A copy: whatever refers to the user's own scheduler would keep it from being collected.
        self._launcher = LauncherThread(
            copy.copy(scheduler).launcher, self._link.context, self._queue.post, record
        )
        clients = Clients(
            self._core.state,
            self._link.send,
            self._queue.post,
            self._unsettled,
            self.check,
            slots=self.slots,
        )
        if journal is not None:
            _keep_in(journal, clients, self._queue.wake)
        self._performer = EffectPerformer(
            self._link,
            self._launcher,
            self._unsettled,
            scheduler.worker_resources,
            self._wanted,
            clients,
            self._kept,
        )
        self._loop = IOLoop(
            self._core,
            self._queue,
            self._link,
            self._launcher,
            self._performer,
            clients,
            LOCAL_POLL_SECONDS if scheduler.local else settings.poll_seconds,
            self._open_watch,
            None if server is None else _listen(server, clients, self.actions, settings),
        )
        if self._loop.listener is not None:
            self._loop.listener.launched = [] if record is None else record.launched()
        self._thread = threading.Thread(target=self._work, name=f"gridengine-{run_id}", daemon=True)
        self._thread.start()
        for stream in self._link.streams:
            stream.start()
        atexit.register(self._at_exit)
        if self._metrics is not None:
            self._metrics.keep(functools.partial(self.status, 0))

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

    def is_durable(self, task: int) -> bool:
        """Return False: nothing is on disk."""
        return False

    @property
    def worker_keys(self) -> ServerKeys | None:
        """The keys and the port by which workers connect; None where they need none."""
        return self._link.keys

    def clients(self) -> list[dict[str, Any]]:
        """Return what is known of each client in another process, for people, with its counts of
        calls.
        """
        listener, counts = self._loop.listener, self.snapshot().clients
        return [
            {**one, **(asdict(counts[one["number"]]) if one["number"] in counts else {})}
            for one in (() if listener is None else listener.seen())
        ]

    def left_runs(self) -> list[dict[str, Any]]:
        """Return what is known, for people, of runs that go on without their clients. For the I/O
        thread.
        """
        return [] if self._loop.listener is None else self._loop.listener.left()

    def snapshot(self) -> Snapshot:
        """Return the latest published state, at most some tenths of a second old; to what is asked
        in the I/O thread, the present one.
        """
        if threading.current_thread() is self._thread:
            return self._core.state.snapshot()
        return self._loop.snapshot

    def when_ended(self, then: Callable[[], object]) -> None:
        """Have `then` called when the I/O thread has ended, in order or not; maybe twice."""
        self._when_ended = then
        if not self._thread.is_alive():
            then()

    def end_for_good(self) -> None:
        """Have clients told, when this is closed, that nobody goes on with their calls."""
        if self._loop.listener is not None:
            self._loop.listener.ends = True

    def scale(self, minimum: int | None, maximum: int | None) -> tuple[int, int]:
        """Have from now on at least and at most so many workers, None as the scheduler says; return
        these bounds.

        Raises:
            ConfigurationError: the scheduler's workers are one, with a slot for each call; or these
                are no bounds.
        """
        policy = self._policy
        if not policy.pooled and maximum is not None:
            raise ConfigurationError(
                "the calls of a dispatcher on its own machine run in one worker",
                hint="start it again with --max-workers; or add others: gridengine worker",
            )
        least = policy.min_workers if minimum is None else minimum
        most = policy.max_workers if maximum is None else maximum
        if not (isinstance(least, int) and isinstance(most, int) and 0 <= least <= most):
            raise ConfigurationError(f"there cannot be from {least!r} to {most!r} workers")
        self._post(Scaled(minimum, maximum))
        return least, most

    def drain(self, then: Callable[[], object]) -> None:
        """Have no call begin any more but those that running ones need, and `then` called, in the
        I/O thread and maybe more than once, when none runs.
        """
        self._performer.drained = then
        self._post(Draining())

    def status(self, most: int = 100) -> Status:
        """Return what it does at this moment; of workers, runs and failures at most so many each.

        Raises:
            ConfigurationError: it has been closed, or belongs to another process.
        """
        status: Status = self._in_thread(lambda: self.current_status(most))
        return status

    def follow(self, tell: Callable[[Status | None], object], interval: float) -> object:
        """Have this be called, in the I/O thread, with the status: at once, and then each
        `interval` seconds with what has happened since; with None when there will be nothing more.
        It is to return at once. Return what to `unfollow`.

        Raises:
            ConfigurationError: it has been closed, or belongs to another process.
            ValueError: very many follow already.
        """
        from gridengine.dispatcher.watch_messages import FOLLOW, Request  # few follow
        from gridengine.dispatcher.watch_streams import StatusFollower

        follower, request = StatusFollower(tell), Request(FOLLOW, interval=interval)
        self._in_thread(lambda: self._watched().streams.begin(follower, request))
        return follower

    def unfollow(self, followed: Any) -> None:
        """Tell this one nothing more: what `follow` has returned."""
        if threading.current_thread() is self._thread:
            self._watched().streams.remove(followed)
        else:
            with contextlib.suppress(ConfigurationError):  # it has been closed
                self._in_thread(lambda: self._watched().streams.remove(followed))

    def _in_thread(self, make: Callable[[], Any]) -> Any:
        """Return what this makes in the I/O thread.

        Raises:
            ConfigurationError: this has been closed, or belongs to another process.
        """
        question = Question(make)
        with self._closing:
            if self._closed or os.getpid() != self._owner:
                self._refuse()
            self._queue.ask(question)
        question.wait()
        if question.error is not None:
            raise question.error
        return question.answer

    def current_status(self, most: int = 100) -> Status:
        """As `status`, for this very thread."""
        from gridengine.dispatcher.core.status_views import status_of  # few ask

        return status_of(self._core.state, self._began, time.monotonic(), most=most)

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

    def _open_watch(self) -> WatchServer | None:
        # Here: whoever runs for a moment needs none of it.
        from gridengine.dispatcher.watch_server import open_watch_server

        watched = self._watched()
        return open_watch_server(
            self._settings.watch_directory, watched.answer, watched.streams.remove
        )

    def watched(
        self, request: str, follower: Follower | None = None, *, may_act: bool = False
    ) -> bytes:
        """Return what who watches from another machine is answered, as JSON. For the I/O thread."""
        return self._watched().answer(request.encode(), follower, may_act=may_act)

    def _watched(self) -> WatchAnswers:
        """Return what answers those who watch."""
        from gridengine.dispatcher.watch_answers import WatchAnswers, identity_here

        if self._answers is not None:
            return self._answers
        context = self._link.context
        since, called = time.time() - (time.monotonic() - self._began), (self.name, self.script)
        self._answers = WatchAnswers(
            self._core.state,
            self._launcher,
            self._loop.recent,
            identity_here(context.id, self._scheduler_name, context.directory, since, *called),
            traffic=(self._loop.received, self._loop.sent),
            settings=self._settings,
            post=self._queue.post,
            began=self._began,
            journal=self._journal,
        )
        self._loop.streams = self._answers.streams
        return self._answers

    def _work(self) -> None:
        broken = True
        try:
            self._loop.run()
            broken = False
        except BaseException as error:
            log.critical("the dispatcher's thread failed; all that runs is ended", exc_info=True)
            self.failure = error
            self._fail_all(error)
        finally:
            try:
                self._tear_down(broken=broken)
            finally:
                # Not before: who closes without waiting has the interpreter's end wait.
                atexit.unregister(self._at_exit)
                self._when_ended()

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
            if self._loop.listener is not None:
                steps.callback(self._loop.listener.close)
            # Fork servers end what is below them, and then their processes need not be killed.
            steps.callback(self._link.stop_workers)
            steps.callback(self._loop.close_watch)
            if self._answers is not None:
                steps.callback(self._answers.leave_report)
            if self._metrics is not None:
                steps.callback(lambda file: file.close(self.current_status(0)), self._metrics)


def _metrics_file(settings: Settings, run_id: str, name: str) -> MetricsFile | None:
    if not settings.metrics_file:
        return None
    from gridengine.dispatcher.metrics import MetricsFile  # few want it

    return MetricsFile(settings.metrics_file, run_id, name)


def _keep_in(file: DispatcherFile, clients: Clients, wake: Callable[[], object]) -> None:
    from gridengine.dispatcher.client_journal import Journal

    file.wake = wake
    clients.keep_in(Journal(file))


def _listen(
    server: Server, clients: Clients, actions: dict[str, Action], settings: Settings
) -> ClientListener:
    from gridengine.dispatcher.client_listener import ClientListener  # imports ZeroMQ

    return ClientListener(server, clients, actions, settings)


def _open_link(
    scheduler: Scheduler,
    settings: Settings,
    run_id: str,
    queue: EventQueue[Event],
    home: Home | None,
) -> Link:
    if scheduler.local and home is not None:
        from gridengine.dispatcher.mixed_workers import MixedWorkers  # imports ZeroMQ

        return MixedWorkers(scheduler, run_id=run_id, settings=settings, wake=queue.wake, home=home)
    if scheduler.local:
        return LocalWorkers(scheduler, run_id=run_id, settings=settings, wake=queue.wake)
    from gridengine.dispatcher.remote_workers import RemoteWorkers  # imports ZeroMQ

    return RemoteWorkers(scheduler, run_id=run_id, settings=settings, wake=queue.wake, home=home)
