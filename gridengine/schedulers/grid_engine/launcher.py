"""What DRMAA says of a cluster task, and what is remembered of one: pure functions.

Starts, watches and stops workers through DRMAA.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import shlex
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gridengine.errors import ClusterError, GridEngineError, TimeoutError
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.batch_system import BatchLauncher, exit_report
from gridengine.schedulers.detect import library_paths
from gridengine.schedulers.grid_engine import drmaa
from gridengine.schedulers.grid_engine.diagnostics import NOWHERE, Diagnostics, Limit, TimeLimits
from gridengine.schedulers.grid_engine.drmaa import GRID_ENGINE, GRID_ENGINE_UNNAMED, System
from gridengine.schedulers.grid_engine.options import (
    Request,
    by_shell,
    lost_report,
    native_request,
    ran_for,
    refusal,
    request_for,
    unavailable,
)
from gridengine.schedulers.launcher import (
    BatchSystemError,
    Handle,
    LaunchContext,
    LaunchPlan,
    Report,
    TryAgain,
    Unavailable,
    Unreachable,
    WorkerStatus,
    failed,
)
from gridengine.schedulers.requests import split_words
from gridengine.settings.values import settings

STATES = {
    **dict.fromkeys(
        ("queued_active", "system_on_hold", "user_on_hold", "user_system_on_hold"),
        WorkerStatus.QUEUED,
    ),
    "running": WorkerStatus.RUNNING,
    **dict.fromkeys(
        ("system_suspended", "user_suspended", "user_system_suspended"), WorkerStatus.SUSPENDED
    ),
}
"""DRMAA's states of jobs that have not ended (GFD.22); of "undetermined" nothing is known."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended, as DRMAA told: a report, whether it had started, and, of one that a signal
    ended, what it had used.
    """

    report: Report
    started: bool = True
    usage: Mapping[str, str] | None = None


def ending_of(told: Mapping[str, Any], kind: str = GRID_ENGINE) -> Ending:
    """Return what DRMAA's exit information means, as told by a library for this kind of system.

    Grid Engine's `wait` says only "aborted" of a job that was deleted and of one that failed to
    start; but it gives the time of the start of the first, none for the second, and no usage at all
    for one that was deleted while it waited. Others say less.
    """
    if "status" in told:
        status = WorkerStatus.FAILED if told["status"] else WorkerStatus.ENDED
        return Ending(Report(status, f"exit status {told['status']}"))
    usage = told.get("usage") or {}
    if "signal" in told:
        return Ending(failed(f"killed by {told['signal']}"), usage=usage)
    if not told.get("aborted"):
        return Ending(failed(told.get("words") or "the batch system does not say how it ended"))
    if kind != GRID_ENGINE:
        return Ending(failed("aborted: deleted, killed, or not even started"))
    if not usage:
        return Ending(failed("deleted while it waited", deleted=True), started=False)
    if float(usage.get("start_time") or 0) > 0:
        return Ending(failed("deleted while it ran", deleted=True))
    return Ending(failed("could not be started"), started=False)


@dataclass(slots=True)
class DrmaaTask:
    """What is remembered of a task: what it was asked for, when it was last asked about, whether it
    waits, how it ended and since when that is known, and since when it is only known to have ended;
    how often it was looked whether it is in the error state; since when nothing is known of it;
    how long it may run, once that is known.
    """

    request: Request
    asked_at: float = 0.0
    queued: bool = True
    ending: Ending | None = None
    ended_at: float = 0.0
    ending_since: float | None = None
    looks: int = 0
    unknown_since: float | None = None
    limit: Limit | None = None

    def fault(self, usage: Mapping[str, str]) -> type[GridEngineError] | None:
        """Return which of its limits one that was killed had reached; None when none is known."""
        at_its_end = self.limit is not None and ran_for(usage) >= self.limit.seconds
        return self.request.fault(usage) or (TimeoutError if at_its_end else None)

    def running(self, status: WorkerStatus) -> Report:
        """Return the report on it while it has not ended."""
        limit = self.limit or Limit()
        return Report(status, lasts_seconds=limit.seconds, limited_by=limit.words)


logger = logging.getLogger("gridengine")

POLL_SECONDS = 1.0
"""How long one round of questions may take: to ask for one job takes Grid Engine 0.2 to 10 ms, a
second when its master is busy.
"""
MOST_ASKED = 5000
LIMITS_SECONDS = 10.0
"""How often it is asked at most how long tasks may run that have begun."""
SHORT_NAME = 15
"""How long a job's name may be in any batch system: a PBS takes no more (POSIX, qsub -N)."""
FIRST_QUEUED = 20
"""Tasks of an array start in order, so of those that wait the first are asked for most often."""
REASON_SECONDS = 17.0
"""How long the reason of a failed start is looked for: Grid Engine writes its accounts every 15
s.
"""
END_SECONDS = 6.0
"""How long DRMAA may take to say how a job ended after it said that it has: it learns of it every 5
s.
"""
UNKNOWN_SECONDS = 60.0
"""How long nothing is known of a job until the master is asked whether it has it: DRMAA calls that
"undetermined", as it does while the master is busy.
"""
MOST_LOOKS = 3
"""After how many times that it is not waited for any more, though no error state keeps it from
saying so: a busy master takes longer.
"""


class GridEngineLauncher(BatchLauncher[DrmaaTask]):
    """Starts workers through DRMAA, and asks for them one by one."""

    def __init__(
        self,
        run: LaunchContext,
        *,
        script: str,
        name: str = "",
        request: Request,
        library: str = "",
        held: Resource = ZERO,
    ) -> None:
        super().__init__(run, script=script, name=name)
        self._request = request
        self._library = library
        self._held = held
        self._system = GRID_ENGINE_UNNAMED
        self._diagnostics = Diagnostics(os.environ)
        self._limits = TimeLimits(self._diagnostics)
        self._limits_due = 0.0
        self._session: drmaa.Session | None = drmaa.shared_session(library).__enter__()
        self._guarded = False
        self._kept = set[str]()

    def _opened(self) -> drmaa.Session:
        if self._session is None:
            raise ClusterError("this launcher has been closed")
        return self._session

    def _use_system(self, system: System) -> None:
        """Write requests in the words of this system from now on."""
        self._system = system
        # This machine's Grid Engine, should it have one, knows nothing of another system's jobs.
        self._diagnostics = Diagnostics(os.environ if system.kind == GRID_ENGINE else NOWHERE)
        self._limits = TimeLimits(self._diagnostics)

    def _request_for(self, demand: Demand) -> Request:
        if self._system.kind == GRID_ENGINE:
            return request_for(
                self._request,
                demand,
                settings().grid_engine,
                lambda: self._diagnostics.parallel_environment,
            )
        return native_request(self._system, self._request, demand, self._held, settings())

    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        """Return what would be submitted first, in the words of the system that the library speaks
        to; without a library, Grid Engine's.

        Raises:
            SchedulerUnavailable: the library does not load.
        """
        libraries = library_paths(os.environ, self._library)
        if libraries:
            try:
                self._use_system(drmaa.named_system(libraries[0], os.environ))
            except Unavailable as error:
                raise unavailable(error) from None
        return super().plan(count, demand)

    def submit(self, count: int, demand: Demand, log: Callable[[object], str]) -> list[str]:
        session = self._opened()
        try:
            if self._system is GRID_ENGINE_UNNAMED:
                self._use_system(session.start())
            template = self.request(count, demand, log)
            self.request_words = str(template["nativeSpecification"])
            if not self._guarded:
                if not self.run.epoch:
                    session.guard(self.files)
                self._guarded = True
            return session.submit(template, count)
        except Unavailable as error:
            raise unavailable(error) from None
        except Unreachable as error:
            raise TryAgain(f"the batch system cannot be reached: {error}") from None
        except drmaa.DrmaaRefused as error:
            raise refusal(error, self.request_words) from None

    def facts(self) -> dict[str, str]:
        """Return what names the session."""
        return {"contact": self._opened().contact}

    def adopt(self, handles: Mapping[Handle, Demand], facts: Mapping[str, str]) -> None:
        """Watch these tasks, in the session in which they were submitted where that can be opened
        again.
        """
        if not handles:
            return  # that session is over: what it may have had that nobody knows of is deleted
        session = self._opened()
        session.take_over(facts["contact"], [handle.id for handle in handles])
        self.keep(handles)
        self._guarded = True
        self._use_system(session.start())
        super().adopt(handles, facts)

    def keep(self, handles: Collection[Handle]) -> None:
        """Have the process that speaks DRMAA, which outlives this one, delete all tasks but these
        at the end.
        """
        kept = {handle.id for handle in handles}
        if kept != self._kept:
            self._opened().keep(kept, self._kept - kept)
            self._kept = kept

    def launched(self, handles: Sequence[Handle], demand: Demand) -> None:
        request = self._request_for(demand)
        self.tasks.update((handle, DrmaaTask(request)) for handle in handles)

    def request(
        self, count: int, demand: Demand, log: Callable[[object], str]
    ) -> dict[str, object]:
        """Return the job template, by DRMAA's names. A name in the user's own words stands, which
        the template's would replace.
        """
        native = self._request_for(demand).specification()
        is_grid_engine = self._system.kind == GRID_ENGINE
        name = self.job_name if is_grid_engine else self.job_name[:SHORT_NAME]
        words = split_words(native)
        named = is_grid_engine and "-N" in words
        script = str(self.script)
        return {
            "remoteCommand": shlex.quote(script) if is_grid_engine and by_shell(words) else script,
            "workingDirectory": str(self.run.directory),
            **({} if named else {"jobName": name}),
            "outputPath": f":{log('$drmaa_incr_ph$')}",
            "joinFiles": True,
            "nativeSpecification": native,
        }

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Report]:
        """Return what is known of these tasks; of many, those that matter first and the others in
        turn.
        """
        now = time.monotonic()
        known = {handle.id: handle for handle in handles if handle in self.tasks}
        asked = [handle.id for handle in self._most_urgent_first(known.values())[:MOST_ASKED]]
        try:
            states = self._opened().status(asked, POLL_SECONDS)
        except BatchSystemError as error:
            logger.info("the batch system does not say how the workers are: %s", error)
            states = {}
        found: dict[Handle, WorkerStatus] = {}
        for id, (state, end) in states.items():
            task = self.tasks[known[id]]
            task.asked_at = now
            status = STATES.get(state)
            if state != "undetermined":
                task.unknown_since = None
            elif task.unknown_since is None:
                task.unknown_since = now
            if status is not None:
                found[known[id]] = status
                task.queued = status is WorkerStatus.QUEUED
            elif end is not None:
                task.ending, task.ended_at = ending_of(end, self._system.kind), now
            elif state != "undetermined" and task.ending_since is None:
                task.ending_since = now
        self._learn_limits(found, now)
        reports = {one: self.tasks[one].running(status) for one, status in found.items()}
        return reports | self._exit_reports(known.values(), now)

    def _learn_limits(self, handles: Iterable[Handle], now: float) -> None:
        """Ask how long those of these tasks may run that have begun, if the script has not said."""
        new = {
            handle.id: task
            for handle in handles
            if not (task := self.tasks[handle]).queued
            and task.limit is None
            and "h_rt" not in task.request.resources
        }
        if new and now >= self._limits_due:
            self._limits_due = now + LIMITS_SECONDS
            for id, limit in self._limits.of(new).items():
                new[id].limit = limit

    def _most_urgent_first(self, handles: Iterable[Handle]) -> list[Handle]:
        """Return those to ask about: in turn one that runs, one of the first that wait, one of the
        others.
        """
        open_ones = [handle for handle in handles if self.tasks[handle].ending is None]
        queued = [handle for handle in open_ones if self.tasks[handle].queued]
        active = [handle for handle in open_ones if not self.tasks[handle].queued]
        groups = [
            sorted(group, key=lambda handle: self.tasks[handle].asked_at)
            for group in (active, queued[:FIRST_QUEUED], queued[FIRST_QUEUED:])
        ]
        return [
            handle for row in itertools.zip_longest(*groups) for handle in row if handle is not None
        ]

    def _exit_reports(self, handles: Iterable[Handle], now: float) -> dict[Handle, Report]:
        """Return a report for each task that has ended, once its reason is known or has been looked
        for long enough.
        """
        reports = {}
        lacks = functools.cache(self._diagnostics.lacks)
        for handle in handles:
            task = self.tasks[handle]
            report = None
            if task.ending is not None:
                report = self._exit_report(handle, task, task.ending, now)
            elif (
                task.ending_since is not None
                and now - task.ending_since > (task.looks + 1) * END_SECONDS
            ):
                task.looks += 1
                report = self._error_report(handle, task)
            elif task.unknown_since is not None and now - task.unknown_since > UNKNOWN_SECONDS:
                task.unknown_since = now
                report = lost_report(handle) if lacks(handle.id.partition(".")[0]) else None
            if report is not None:
                self.forget([handle])
                reports[handle] = report
        return reports

    def _exit_report(
        self, handle: Handle, task: DrmaaTask, end: Ending, now: float
    ) -> Report | None:
        failure, report = None, end.report
        if report.state is WorkerStatus.FAILED and not report.deleted:
            failure = (
                self._diagnostics.logged_failure(handle.id)
                if end.started
                else self._diagnostics.failure(handle.id)
            )
            if failure is None and not end.started and now - task.ended_at < REASON_SECONDS:
                return None
        reason = "; ".join(filter(None, [report.reason, failure.words if failure else ""]))
        if end.usage is not None:
            report = report._replace(fault=task.fault(end.usage))
            limits = task.request.limits
            reason += f" (its limits: {limits})" if limits else ""
        report = report._replace(reason=reason)
        return exit_report(handle, report, failure.host if failure else "")

    def _error_report(self, handle: Handle, task: DrmaaTask) -> Report | None:
        """Delete a task that the batch system calls failed, and which has not ended: it is in the
        error state. Return a report on it; None when it may only be late to say how it ended.
        """
        reason = self._diagnostics.error_state(handle.id)
        if not reason and self._system.kind == GRID_ENGINE and task.looks < MOST_LOOKS:
            return None
        self.try_delete([handle.id])
        words = f"in the error state: {reason}" if reason else ""
        return exit_report(handle, failed(words or "failed, and the batch system does not say why"))

    def delete(self, ids: Sequence[str]) -> None:
        self._opened().terminate(ids)

    def explain(self, handles: Sequence[Handle]) -> str:
        """Return what the first of these tasks waits for, as `qstat -j` explains it."""
        return self._diagnostics.waiting(handles[0].id) if handles else ""

    def close(self) -> None:
        """Delete the tasks that are left, and give back the session."""
        if self._session is None or os.getpid() != self.owner:
            return
        self.cancel(list(self.tasks))
        session, self._session = self._session, None
        try:
            if self._kept:
                session.keep((), self._kept)
            elif self._guarded and not self.run.epoch:
                session.unguard(self.files)
        except BatchSystemError as error:
            logger.debug("the DRMAA process cannot be told: %s", error)
        session.__exit__()
        if self._guarded:
            self.script.unlink(missing_ok=True)
