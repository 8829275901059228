"""The thread that owns a launcher, whose calls may be slow and must not delay the I/O thread.

A stand-alone dispatcher records in a file which workers it has launched. When it is restarted, its
new launcher takes over these workers.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from gridengine.dispatcher.core.events import (
    Event,
    Explained,
    Launch,
    Launched,
    LaunchFailed,
    Polled,
)
from gridengine.dispatcher.core.provisioner import NO_REASON
from gridengine.dispatcher.thread_queues import HelperThread
from gridengine.errors import (
    UNREACHABLE,
    ClusterError,
    ConfigurationError,
    GridEngineError,
    safe_repr,
)
from gridengine.resources.demand import Demand, decode_demand, encode_demand
from gridengine.schedulers.launcher import (
    Handle,
    LaunchContext,
    Launcher,
    Report,
    TryAgain,
    WorkerStatus,
)
from gridengine.wire.connection_file import load_private, replace_private, to_json
from gridengine.wire.processes import fork_hooks

log = logging.getLogger("gridengine")

ENDED = WorkerStatus.ENDED, WorkerStatus.FAILED


class _Group(Struct, frozen=True):
    """Workers for one demand, in the form of `encode_demand`: their ids and logs."""

    parts: list[tuple[str, list[Any]]]
    factor: float
    handles: list[tuple[str, str]]


class _Facts(Struct, frozen=True):
    """The content of the record's file."""

    groups: list[_Group]
    facts: dict[str, str]


class LaunchRecord:
    """The workers that were launched and not seen to end, and the `facts` that a later launcher
    needs. All methods are for one thread.

    Raises:
        ConfigurationError: the file exists and cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.exists = path.exists()
        """Whether the file exists, written by this process or an earlier one."""
        self._changed = not self.exists
        self.handles: dict[Handle, Demand] = {}
        self.facts: Mapping[str, str] = {}
        if self.exists:
            known = load_private(path, _Facts)
            self.facts = known.facts
            for group in known.groups:
                demand = decode_demand(group.parts, group.factor)
                self.handles |= {Handle(*one): demand for one in group.handles}

    def launched(self) -> list[Launched]:
        """Return the recorded workers, as one event for each demand."""
        return [Launched(handles, demand) for demand, handles in self._by_demand().items()]

    def _by_demand(self) -> dict[Demand, list[Handle]]:
        found: dict[Demand, list[Handle]] = {}
        for handle, demand in self.handles.items():
            found.setdefault(demand, []).append(handle)
        return found

    def add(self, handles: Iterable[Handle], demand: Demand) -> None:
        """Record workers that were launched."""
        self.handles |= dict.fromkeys(handles, demand)
        self._changed = True

    def note_reports(self, reports: Mapping[Handle, Report]) -> None:
        """Forget the workers that have ended."""
        self.remove(handle for handle, report in reports.items() if report.state in ENDED)

    def remove(self, handles: Iterable[Handle]) -> None:
        """Forget workers that have ended, or that are being stopped."""
        for handle in handles:
            self._changed = self.handles.pop(handle, None) is not None or self._changed

    def save(self, launcher: Launcher) -> None:
        """Write the file if anything has changed, and tell the launcher which workers are in it."""
        if not self._changed:
            return
        groups, noted = [], list[Handle]()
        for demand, handles in self._by_demand().items():
            try:
                parts, factor = encode_demand(demand)
            except ConfigurationError as error:
                log.warning("a restarted dispatcher will not know some workers: %s", error.message)
                continue
            groups.append(_Group(parts, factor, [(one.id, one.log) for one in handles]))
            noted += handles
        replace_private(self._path, to_json(_Facts(groups, dict(launcher.facts()))))
        self.exists = True
        launcher.keep(noted)
        self._changed = False

    def delete(self) -> None:
        """Remove the file: all launched workers have been stopped."""
        self._path.unlink(missing_ok=True)


CLOSE_SECONDS = 15.0


class LauncherThread:
    """The thread that owns a launcher. It takes requests in order, and posts events.

    Args:
        run: the dispatcher that workers connect to.
        record: the record of launched workers, for a dispatcher that may be restarted. If it has
            workers of an earlier process, the launcher takes them over.
        made: the launcher, if it was made already.
    """

    def __init__(
        self,
        make: Callable[[LaunchContext], Launcher],
        run: LaunchContext,
        post: Callable[[Event], None],
        record: LaunchRecord | None = None,
        made: Launcher | None = None,
    ) -> None:
        self._make = make
        self._run = run
        self._post = post
        self._record = record
        self._adopts = record if record is not None and record.exists else None
        """The record of the workers that the launcher must still take over; None once it has."""
        self._launcher = made
        self._polling = False
        # Started now: the first job may be submitted as the last act of a script, and from Python
        # 3.12 on no thread starts once the interpreter ends.
        self._thread = HelperThread(f"gridengine-launcher-{run.id}")

    def launch(self, effect: Launch) -> None:
        """Start workers; posts `Launched` or `LaunchFailed`."""
        demand = effect.demand

        def start() -> Event:
            try:
                self._check_directory()
                launcher = self._opened()
                launcher.label, launcher.left_out = effect.label, effect.left_out
                self._save()  # a kill may follow the submission: the record's facts find the jobs
                handles = launcher.launch(effect.count, demand)
                if self._record is not None:
                    self._record.add(handles, demand)
                return Launched(handles, demand, launcher.request_words)
            except TryAgain as error:
                return LaunchFailed(ClusterError(str(error)), for_now=True, demand=demand)
            except GridEngineError as error:
                # The text says everything: whoever gets this error sees his own lines in the
                # traceback, not these.
                return LaunchFailed(error.with_traceback(None), demand=demand)
            except BaseException as error:  # a user's own resource or scheduler may raise anything
                log.error("the scheduler failed", exc_info=True)
                return LaunchFailed(
                    ClusterError(f"the scheduler failed: {safe_repr(error)}"), demand=demand
                )

        self._ask(start)

    def _check_directory(self) -> None:
        """Check that workers would find the run directory.

        Raises:
            ClusterError: they would not.
        """
        try:
            self._run.directory.stat()
        except FileNotFoundError:
            raise ClusterError(
                f"somebody has removed the run directory {self._run.directory}, in which workers "
                "find this script",
                hint="leave run directories alone while their scripts run",
            ) from None
        except OSError as error:  # perhaps for a moment, and not on the workers' machines
            log.debug("the run directory cannot be looked at: %s", error)

    def cancel(self, handles: Sequence[Handle]) -> None:
        """Stop workers."""

        def stop() -> None:
            self._opened().cancel(handles)
            if self._record is not None:
                self._record.remove(handles)

        self._ask(stop)

    def poll(self, handles: Sequence[Handle]) -> None:
        """Request the states of these workers, and of recorded workers that have left but not
        ended. Posts `Polled`, if the scheduler can be reached. Do nothing while the previous
        request is open.
        """
        record = self._record

        def look() -> Event:
            try:
                on_record = () if record is None else record.handles
                asked = dict.fromkeys([*handles, *on_record])
                reports = self._opened().poll(list(asked))
                if record is not None:
                    record.note_reports(reports)
                return Polled(reports)
            finally:
                self._polling = False

        if not self._polling and (handles or (record is not None and record.handles)):
            self._polling = True
            self._ask(look)

    def explain(
        self, handles: Sequence[Handle], seconds: float, *, level: int = logging.WARNING
    ) -> None:
        """Log the reason why queued workers wait; posts `Explained`."""

        def look_up() -> Event:
            words = self._opened().explain(handles)
            log.log(
                level,
                "waiting for %.0f s for cluster job %s to start: %s",
                seconds,
                handles[0].id,
                words or NO_REASON,
            )
            return Explained(handles[0], words)

        self._ask(look_up)

    def read_log(self, handles: Sequence[Handle], seconds: float) -> None:
        """Log why a running worker cannot connect, if its log says so, and post `Explained`."""

        def look_up() -> Event | None:
            with fork_hooks().importing:
                from gridengine.schedulers.logs import unanswered  # clusters alone have such logs

            words = unanswered(handles[0].log)
            if not words:
                return None
            log.warning(
                "cluster job %s has run for %.0f s, and its worker gets no answer at %s: %s",
                handles[0].id,
                seconds,
                words,
                UNREACHABLE,
            )
            return Explained(handles[0], words, running=True)

        self._ask(look_up)

    def close(self) -> None:
        """Stop all remaining workers, and the thread."""
        self._thread.do(self._end)
        self._thread.end(wait=True, seconds=CLOSE_SECONDS)

    def _opened(self) -> Launcher:
        if self._launcher is None:
            self._launcher = self._make(self._run)
        if self._adopts is not None:
            self._launcher.adopt(self._adopts.handles, self._adopts.facts)
            # Only now: `adopt` fails while the batch system is down, and is tried again.
            self._adopts = None
        return self._launcher

    def _save(self) -> None:
        """Write the record. If that fails, the next request tries again; workers go on."""
        if self._record is not None and self._launcher is not None:
            try:
                self._record.save(self._launcher)
            except Exception as error:
                log.warning(
                    "the record of launched workers cannot be written: %s", safe_repr(error)
                )

    def _ask(self, request: Callable[[], Event | None]) -> None:
        self._thread.do(functools.partial(self._perform, request))

    def _perform(self, request: Callable[[], Event | None]) -> None:
        """Handle a request, and post its event."""
        try:
            event = request()
        except BaseException as error:
            # A request that fails now is made again later. A failure to ask is never taken for a
            # worker's death.
            log.warning("the scheduler does not answer: %s", safe_repr(error))
            return
        self._save()
        if event is not None:
            self._post(event)

    def _end(self) -> None:
        """Stop all launched workers, including those of the record's earlier processes. Workers
        that cannot be stopped now stay on record.
        """
        if self._adopts is not None:
            try:
                self._opened()
            except Exception as error:
                log.warning("workers of an earlier process cannot be stopped: %s", safe_repr(error))
        if self._launcher is not None:
            self._launcher.close()
        if self._record is not None and self._adopts is None:
            self._record.delete()
