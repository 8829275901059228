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
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from gridengine.dispatcher.core import objects
from gridengine.dispatcher.core.events import (
    Closing,
    Draining,
    Event,
    Launched,
    ResultAsked,
    Scaled,
)
from gridengine.dispatcher.core.policy import can_hold
from gridengine.dispatcher.core.state_machine import StateMachine
from gridengine.dispatcher.core_policy import policy_of
from gridengine.dispatcher.io_loop import EffectPerformer, IOLoop, PayloadsAtWorkers
from gridengine.dispatcher.launcher_thread import LauncherThread, LaunchRecord
from gridengine.dispatcher.run_directory import LAUNCHES, new_run_id
from gridengine.dispatcher.serving.clients import Clients
from gridengine.dispatcher.thread_queues import EventQueue
from gridengine.dispatcher.unsettled import UnsettledTasks, Wanted
from gridengine.dispatcher.worker_links import LocalWorkers, WorkersLink
from gridengine.errors import (
    Cancelled,
    ClusterError,
    ConfigurationError,
    GridEngineError,
    safe_repr,
)
from gridengine.requests import NamesForgotten
from gridengine.resources.demand import Demand, RememberedDemands
from gridengine.schedulers.base import Scheduler
from gridengine.serialize import pickling
from gridengine.settings.values import Settings
from gridengine.status.snapshot import Snapshot
from gridengine.threads import result_of
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.processes import LOCAL_THREADS, THREADS, check_threads, keep_interrupt

if TYPE_CHECKING:
    from gridengine.dispatcher.metrics_file import MetricsFile
    from gridengine.dispatcher.remote_workers import MixedWorkers, RemoteWorkers
    from gridengine.dispatcher.run_directory import Home
    from gridengine.dispatcher.serving.client_listener import Action, ClientListener
    from gridengine.dispatcher.started_ahead import StartedAhead
    from gridengine.dispatcher.watch_answers import WatchAnswers
    from gridengine.dispatcher.watch_server import Follower, WatchServer
    from gridengine.journal.dispatcher_file import DispatcherFile
    from gridengine.status.rows import Status
    from gridengine.wire.server import Server

T = TypeVar("T")
log = logging.getLogger("gridengine")

LOCAL_POLL_SECONDS = 0.5
CLOSE_SECONDS = 15.0


class DispatcherThread:
    """Runs tasks on one scheduler's workers. Its methods may be called from any thread.

    Args:
        server: the socket for clients in other processes; None if no other process can connect.
        home: the folder of a stand-alone dispatcher.
        journal: the journal of a stand-alone dispatcher; it is closed together with the thread.
        ahead: the link and the launcher to use, if they were made already.
        clock: the clock of the I/O thread, of its local workers and of its sockets.

    Raises:
        ConfigurationError: no run directory, or no socket, can be made.
    """

    name = script = ""
    """The name of the dispatcher and of its script for watchers; empty for a dispatcher in its
    user's script.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        settings: Settings,
        *,
        server: Server | None = None,
        home: Home | None = None,
        journal: DispatcherFile | None = None,
        ahead: StartedAhead | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        keep_interrupt()
        if ahead is None:
            check_threads(LOCAL_THREADS if scheduler.local and home is None else THREADS)
        self.slots = scheduler.slots * scheduler.max_workers
        self._owner = os.getpid()
        self.new_id = itertools.count(1).__next__
        """Returns an id for a task, unique for this dispatcher."""
        self._queue = EventQueue[Event]() if ahead is None else ahead.queue
        self._unsettled = UnsettledTasks()
        self._possible = RememberedDemands()
        self._wanted: dict[int, Wanted] = {}
        # Reentrant: the garbage collector may close this in a thread that is submitting.
        self._closing = threading.RLock()
        self._closed = False
        self.settings, self._clock, self._began = settings, clock, clock.monotonic()
        self._scheduler_name = type(scheduler).__name__
        self._home = "" if home is None else str(home.folder)
        self._journal = journal
        self._answers: WatchAnswers | None = None
        self.failure: BaseException | None = None
        """The exception that has ended the I/O thread; None if there was none."""
        self._when_ended: Callable[[], object] = lambda: None
        self.actions: dict[str, Action] = {}
        """The actions that clients in other processes may ask for, by name."""
        run_id = new_run_id() if home is None else home.stored.run_id
        with contextlib.ExitStack() as opened:  # closed after a Ctrl-C: nobody will have this
            link = (
                _open_link(scheduler, settings, run_id, self._queue.wake, home, clock)
                if ahead is None
                else ahead.link
            )
            opened.callback(link.close, failed=True)
            self._open(scheduler, home, link)
            record = None
            if home is not None and home.epoch and not scheduler.local:
                record = LaunchRecord(home.folder / LAUNCHES)
            # A copy: a reference to the user's own scheduler would keep it from being garbage-
            # collected, and then its workers would never end.
            self._launcher = LauncherThread(
                copy.copy(scheduler).launcher,
                self._link.context,
                self._queue.post,
                record,
                None if ahead is None else ahead.launcher,
            )
            if home is None:  # else the next process takes over what was launched
                opened.callback(self._launcher.close)
            if ahead is not None and (handles := ahead.handles()):
                self._queue.post(Launched(handles, asked=ahead.launcher.request_words))
            clients = self._make_clients()
            self.listener = None if server is None else self._listen(server, clients, record)
            """The end of clients in other processes, if any may connect."""
            self._run(scheduler, clients, opened)

    def _open(
        self,
        scheduler: Scheduler,
        home: Home | None,
        link: LocalWorkers | RemoteWorkers | MixedWorkers,
    ) -> None:
        """Take the link to the workers, and make the core."""
        self._link: WorkersLink
        self._link = link
        self.worker_keys = link.keys
        """The keys and the port by which workers connect; None if they need none."""
        policy = policy_of(scheduler, self.settings, link.context)
        self._policy = replace(policy, keeps_others=home is not None)
        self._core = StateMachine(self._policy, checked=self.settings.check)
        if link.context.directory != Path():
            self._core.state.log.output = f"what calls printed is below {link.context.directory}"
        if self._journal is not None:
            from gridengine.dispatcher.serving.journaled_workers import RecordedLink  # few have one

            assert not isinstance(link, LocalWorkers)  # a dispatcher with a journal has a home
            self._link = RecordedLink(link, self._journal, self._core.state.runs, self._queue.wake)

    def _make_clients(self) -> Clients:
        clients = Clients(
            self._core.state,
            self._link.send,
            self._queue.post,
            self._unsettled,
            self.check,
            slots=self.slots,
        )
        if self._journal is not None:
            from gridengine.dispatcher.serving.shared_journal import Journal  # few have one

            self._journal.wake = self._queue.wake
            clients.record_in(Journal(self._journal))
        return clients

    def _listen(
        self, server: Server, clients: Clients, record: LaunchRecord | None
    ) -> ClientListener:
        from gridengine.dispatcher.serving.client_listener import ClientListener  # imports ZeroMQ

        launched = () if record is None else record.launched()
        return ClientListener(server, clients, self.actions, self.settings, launched)

    def _run(self, scheduler: Scheduler, clients: Clients, opened: contextlib.ExitStack) -> None:
        """Start the I/O thread, which closes from then on what is `opened`, and everything that
        runs beside it.
        """
        settings, run_id = self.settings, self._link.context.id
        self._named = clients.named
        self._payloads = PayloadsAtWorkers(self._ask, self._let_go)
        self._performer = EffectPerformer(
            self._link,
            self._launcher,
            self._unsettled,
            scheduler.worker_resources,
            self._wanted,
            clients,
            self._payloads,
            self._clock,
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
            self.listener,
            self._clock,
        )
        self._metrics: MetricsFile | None = None
        if settings.metrics_file:
            from gridengine.dispatcher.metrics_file import MetricsFile  # few want it

            self._metrics = MetricsFile(settings.metrics_file, run_id, self._scheduler_name)
        self._thread = threading.Thread(target=self._work, name=f"gridengine-{run_id}", daemon=True)
        try:
            self._thread.start()
            for stream in self._link.streams:
                stream.start()
            atexit.register(self._at_exit)
            if self._metrics is not None:
                self._metrics.start(functools.partial(self.status, 0))
            opened.pop_all()
        except BaseException:  # too many threads, or a Ctrl-C: nobody will have this dispatcher
            while self._thread in threading.enumerate() and not self._thread.is_alive():
                time.sleep(0.001)  # it is about to run, and closes the link itself
            self._end(wait=self._thread.is_alive(), for_good=True)
            raise

    @property
    def closed(self) -> bool:
        return self._closed

    def check(self, demand: Demand) -> None:
        if demand not in self._possible:
            can_hold(self._policy, demand.request)
            pickling.dump(demand.resources)
            self._possible.add(demand)

    def note_run(self, name: str, file: str, submitter: int) -> None:
        self._named.note(name, file, submitter)

    def snapshot(self) -> Snapshot:
        """Return the latest published state, at most some tenths of a second old; in the I/O
        thread, the present state.
        """
        if threading.current_thread() is self._thread:
            return self._core.state.snapshot()
        return self._loop.snapshot

    def when_ended(self, then: Callable[[], object]) -> None:
        """Call `then` when the I/O thread has ended, normally or by an error; perhaps twice."""
        self._when_ended = then
        if not self._thread.is_alive():
            then()

    def scale(self, minimum: int | None, maximum: int | None) -> tuple[int, int]:
        """Change the bounds for the number of workers from now on. None means the bound that the
        scheduler has. Return the bounds.

        Raises:
            ConfigurationError: the scheduler runs all calls in one worker; or the arguments
                are not valid bounds.
        """
        policy = self._policy
        if not policy.max_workers:
            raise ConfigurationError(
                "this dispatcher starts no workers",
                hint=f"start some by hand: gridengine worker {self.name}",
            )
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
        """Let no more calls begin, except those that running calls need. Once no call runs, the I/O
        thread calls `then`, perhaps more than once.
        """
        self._performer.drained = then
        self._post(Draining())

    def status(self, most: int = 100) -> Status:
        status: Status = self._in_thread(lambda: self.current_status(most))
        return status

    def follow(self, tell: Callable[[Status | None], object], interval: float) -> object:
        from gridengine.dispatcher.watch_messages import FOLLOW, WatchRequest  # few follow
        from gridengine.dispatcher.watch_server import StatusFollower

        follower, request = StatusFollower(tell), WatchRequest(FOLLOW, interval=interval)
        self._in_thread(
            lambda: self._watched().streams.begin(follower, request, self._clock.monotonic())
        )
        return follower

    def unfollow(self, followed: Any) -> None:
        """Send a follower nothing more. `followed` is the return value of `follow`."""
        if threading.current_thread() is self._thread:
            self._watched().streams.remove(followed)
        else:
            with contextlib.suppress(ConfigurationError):  # it has been closed
                self._in_thread(lambda: self._watched().streams.remove(followed))

    def current_status(self, most: int = 100) -> Status:
        """Return the status; only for the I/O thread."""
        from gridengine.dispatcher.status_views import status_of  # few ask

        return status_of(self._core.state, self._began, self._clock.monotonic(), most=most)

    def close(self, *, wait: bool = True) -> None:
        if os.getpid() == self._owner:
            self._end(wait=wait)
            if wait:
                self.flush_output()

    def flush_output(self, seconds: float | None = None) -> None:
        self._link.streams.flush(seconds)

    def _ask(self, reference: int) -> None:
        """Fetch a result that lies at a worker. A dispatcher that is closing does so by itself."""
        if os.getpid() != self._owner:
            self._refuse()
        self._post(ResultAsked(reference))

    def _let_go(self, references: Sequence[int]) -> None:
        """Note that the caller has released these results."""
        self._post(NamesForgotten(references=references))

    def _in_thread(self, make: Callable[[], Any]) -> Any:
        """Return the value of `make`, called in the I/O thread.

        Raises:
            ConfigurationError: the dispatcher has been closed, or belongs to another process.
        """
        coming = Future[Any]()

        def answer() -> None:
            try:
                coming.set_result(make())
            except Exception as error:  # an exception here would end the I/O thread
                coming.set_exception(error)

        with self._closing:
            if self._closed or os.getpid() != self._owner:
                self._refuse()
            self._queue.ask(answer)
        return result_of(coming)

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
                self._queue.post(Closing(for_good))
                self._closed = True  # only now: after a Ctrl-C in between it is posted again
        if wait and threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_SECONDS)

    def _at_exit(self) -> None:
        """Wait for jobs that are not daemons, as the standard library does, unless an exception
        ends the interpreter; then end everything.
        """
        if os.getpid() != self._owner:
            return
        try:
            self._wait_for_jobs()
            self._end(wait=True, for_good=True)
            self._link.streams.close()
        except KeyboardInterrupt:
            # A second Ctrl-C: the remaining processes end by themselves when their connection to
            # this one is gone.
            self._end(wait=False, for_good=True)
            self._link.streams.drop("interrupted")

    def _wait_for_jobs(self) -> None:
        """Wait for jobs that are not daemons, until a Ctrl-C."""
        try:
            self._unsettled.wait_for_jobs(lambda: self._closed)
        except KeyboardInterrupt:
            log.warning("interrupted while waiting for jobs; they are ended")

    # ---------------------------------------------------------------- the I/O thread

    def _open_watch(self) -> WatchServer | None:
        # Here, and in `_watched`: a process that runs for a moment needs none of it.
        from gridengine.dispatcher.watch_server import open_watch_server

        watched = self._watched()
        return open_watch_server(
            self.settings.watch_directory,
            watched.answer,
            watched.streams.remove,
            b"" if self._home else watched.record(),
        )

    def watched(
        self, request: str, follower: Follower | None = None, *, may_act: bool = False
    ) -> bytes:
        """Return the answer, as JSON, to a watcher on another machine. For the I/O thread."""
        return self._watched().answer(request.encode(), follower, may_act=may_act)

    def _watched(self) -> WatchAnswers:
        """Return the object that answers watchers, made at its first use."""
        from gridengine.dispatcher.watch_answers import WatchAnswers, identity_here

        if self._answers is not None:
            return self._answers
        context = self._link.context
        since = time.time() - (self._clock.monotonic() - self._began)
        self._answers = WatchAnswers(
            self._core.state,
            self._launcher,
            self._performer.recent,
            replace(
                identity_here(
                    context.id,
                    self._scheduler_name,
                    context.directory,
                    since,
                    self.name,
                    self.script,
                ),
                home=self._home,
            ),
            traffic=(self._loop.received, self._performer.sent),
            settings=self.settings,
            post=self._queue.post,
            began=self._began,
            journal=self._journal,
            listener=self.listener,
            printed=self._link.streams.excerpt,
            named=self._named,
            clock=self._clock,
        )
        self._loop.streams = self._answers.streams
        return self._answers

    def _work(self) -> None:
        """Run the loop. When it ends, for any reason, fail all open calls and close everything."""
        broken = True
        try:
            self._loop.run()
            broken = False
        except (ClusterError, ConfigurationError) as error:  # its own text has cause and remedy
            log.critical("all calls are ended: %s", error.message)
            self.failure = error.with_traceback(None)
            self._fail_all(error)
        except BaseException as error:
            log.critical("the dispatcher's thread failed; all calls are ended", exc_info=True)
            self.failure = error
            self._fail_all(
                Cancelled(
                    f"the dispatcher's thread failed: {safe_repr(error)}",
                    hint="report this as a fault of gridengine",
                )
            )
        finally:
            try:
                with self._loop.hold:
                    self._tear_down(broken=broken)
            finally:
                # Not earlier: if `close` did not wait, the interpreter's exit must wait for this
                # thread.
                atexit.unregister(self._at_exit)
                self._queue.close()
                self._when_ended()

    def _fail_all(self, error: GridEngineError) -> None:
        """Settle all calls with an error when the I/O thread has failed: nobody may wait for
        ever.
        """
        with self._closing:
            self._closed = True
        for failure in self._unsettled.fail(error):
            log.critical("a listener failed when it was told of that", exc_info=failure)

    def _tear_down(self, *, broken: bool) -> None:
        """Close everything in a fixed order; see the steps from the last to the first."""
        for act in self._queue.barriers:
            act()
        # The steps run in reverse order, and all of them even if one fails.
        with contextlib.ExitStack() as steps:
            steps.callback(self._unsettled.clear)
            steps.callback(self._wanted.clear)
            steps.callback(
                self._payloads.close, Cancelled("the result was not fetched before the end")
            )
            steps.callback(objects.clear, self._core.state)
            steps.callback(self._link.streams.end)
            failed = broken or self._core.state.failed + self._core.state.cancelled > 0
            steps.callback(self._link.close, failed=failed)
            steps.callback(self._launcher.close)
            if self.listener is not None:
                steps.callback(self.listener.close)
            # First, fork servers end the processes below them; then the launcher need not kill
            # these.
            steps.callback(self._link.stop_workers)
            steps.callback(self._loop.close_watch)
            if self._answers is not None:
                steps.callback(self._answers.leave_report)
            if self._metrics is not None:
                steps.callback(lambda file: file.close(self.current_status(0)), self._metrics)


def _open_link(
    scheduler: Scheduler,
    settings: Settings,
    run_id: str,
    wake: Callable[[], None],
    home: Home | None,
    clock: Clock,
) -> LocalWorkers | RemoteWorkers | MixedWorkers:
    """Return the link to a scheduler's workers. `home`: the folder of a stand-alone dispatcher."""

    def opened(kind: Callable[..., T]) -> T:
        return kind(scheduler, run_id=run_id, settings=settings, wake=wake, home=home, clock=clock)

    if home is None and scheduler.local:
        return opened(LocalWorkers)
    from gridengine.dispatcher.remote_workers import MixedWorkers, RemoteWorkers  # imports ZeroMQ

    if home is None or not scheduler.local:
        return opened(RemoteWorkers)
    return MixedWorkers(opened(LocalWorkers), opened(RemoteWorkers), home)
