"""Starts, watches and stops workers by DRMAA.

DRMAA lists no jobs: each task is asked for by its id, in a session that belongs to one process at a
time (`drmaa`). DRMAA tells once, and late, how a task ended. At first the task only counts as
"failed"; its exit status follows some seconds later. If Grid Engine could not start the task, the
reason is in the master's log or, 15 seconds later, in the accounts (`diagnostics`). Therefore a
task is reported as ended only when its reason is known, or was looked for long enough.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import shlex
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gridengine.errors import ClusterError, GridEngineError, TimeoutError, WorkerNotStarted
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.batch_system import BatchLauncher, exit_report
from gridengine.schedulers.batch_words import BatchWords
from gridengine.schedulers.detect import library_paths
from gridengine.schedulers.grid_engine import drmaa
from gridengine.schedulers.grid_engine.diagnostics import NOWHERE, Diagnostics, JobFailure, Limit
from gridengine.schedulers.grid_engine.drmaa import GRID_ENGINE, GRID_ENGINE_UNNAMED, System
from gridengine.schedulers.grid_engine.options import (
    OwnArguments,
    TaskOptions,
    by_shell,
    ran_for,
    request_for,
    words_for,
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
from gridengine.schedulers.logs import host_in_log
from gridengine.schedulers.requests import explanation, refusal, unavailable

logger = logging.getLogger("gridengine")

POLL_SECONDS = 1.0
"""How long one round of questions may take. A question takes Grid Engine 0.2 to 10 ms, and a second
while its master is busy.
"""
MOST_ASKED = 5000
LIMITS_SECONDS = 10.0
"""The least time between two questions for the time limits of running tasks."""
SHORT_NAME = 15
"""How long a job's name may be in any batch system: PBS takes no more (POSIX, qsub -N)."""
FIRST_QUEUED = 20
"""This many of the first waiting tasks are asked for most often: an array's tasks start in order.
"""
REASON_SECONDS = 17.0
"""How long to look for the reason of a failed start: Grid Engine writes its accounts every 15 s."""
END_SECONDS = 6.0
"""How long DRMAA may take to tell an exit status after the end: it learns of it every 5 s."""
UNKNOWN_SECONDS = 60.0
"""How long a task may be "undetermined" before the master is asked whether it has the job."""
MOST_LOOKS = 3
"""After this many times `END_SECONDS` an ended task is reported without an exit status."""

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
"""DRMAA's states of jobs that have not ended (GFD.22), without "undetermined"."""


@dataclass(frozen=True, slots=True)
class JobEnding:
    """How a job ended, by DRMAA: a report, whether it started, its usage if a signal ended it."""

    report: Report
    started: bool = True
    usage: Mapping[str, str] | None = None


def ending_of(told: Mapping[str, Any], kind: str = GRID_ENGINE) -> JobEnding:
    """Return the meaning of DRMAA's exit information, from a library for this kind of system.

    Grid Engine says "aborted" both of a deleted job and of one that failed to start. But it has a
    start time for a job that was deleted while it ran, none for a failed start, and no usage at all
    for a job that was deleted while it waited. Other systems say less.
    """
    if "status" in told:
        status = WorkerStatus.FAILED if told["status"] else WorkerStatus.ENDED
        return JobEnding(Report(status, f"exit status {told['status']}"))
    usage = told.get("usage") or {}
    if "signal" in told:
        return JobEnding(failed(f"killed by {told['signal']}"), usage=usage)
    if not told.get("aborted"):
        return JobEnding(failed(told.get("words") or "the batch system does not say how it ended"))
    if kind != GRID_ENGINE:
        return JobEnding(failed("aborted: deleted, killed, or not even started"))
    if not usage:
        return JobEnding(failed("deleted while it waited", deleted=True), started=False)
    if float(usage.get("start_time") or 0) > 0:
        return JobEnding(failed("deleted while it ran", deleted=True))
    return JobEnding(failed("could not be started"), started=False)


@dataclass(slots=True)
class DrmaaTask:
    """The launcher's record of a task.

    Attributes:
        request: the options that it requested.
        asked_at: when DRMAA was last asked about it.
        queued: whether it waits.
        ending, ended_at: how it ended, and when that was learned.
        ending_since: when it first counted as failed without an exit status; None if it does not.
        looks: how often the error state was looked for since then.
        unknown_since: when it became "undetermined"; None if it is not.
        limit: how long it may run, once known.
    """

    request: TaskOptions
    asked_at: float = 0.0
    queued: bool = True
    ending: JobEnding | None = None
    ended_at: float = 0.0
    ending_since: float | None = None
    looks: int = 0
    unknown_since: float | None = None
    limit: Limit | None = None

    def note(self, state: str, end: Mapping[str, Any] | None, kind: str, now: float) -> None:
        """Note DRMAA's answer at this time: a state, and the exit information, if there is any."""
        self.asked_at = now
        status = STATES.get(state)
        if state != "undetermined":
            self.unknown_since = None
        elif self.unknown_since is None:
            self.unknown_since = now
        if status is not None:
            self.queued = status is WorkerStatus.QUEUED
        elif end is not None:
            self.ending, self.ended_at = ending_of(end, kind), now
        elif state != "undetermined" and self.ending_since is None:
            self.ending_since = now

    def fault(self, usage: Mapping[str, str]) -> type[GridEngineError] | None:
        """Return the error for the limit that a killed task had reached; None if none is known."""
        at_its_end = self.limit is not None and ran_for(usage) >= self.limit.seconds
        return self.request.fault(usage) or (TimeoutError if at_its_end else None)

    def running(self, status: WorkerStatus) -> Report:
        """Return the report on a task that has not ended."""
        limit = self.limit or Limit()
        return Report(status, lasts_seconds=limit.seconds, limited_by=limit.words)


class GridEngineLauncher(BatchLauncher[DrmaaTask]):
    """Starts workers by DRMAA, and asks for each of their tasks."""

    def __init__(
        self,
        run: LaunchContext,
        *,
        script: str,
        name: str = "",
        own: OwnArguments,
        library: str = "",
    ) -> None:
        super().__init__(run, script=script, name=name)
        self._own = own
        self._library = library
        self._use_system(GRID_ENGINE_UNNAMED)
        self._limits_due = 0.0
        self._session: drmaa.DrmaaSession | None = drmaa.shared_session(library).__enter__()
        self._guarded = False
        self._kept = set[str]()

    def _opened(self) -> drmaa.DrmaaSession:
        if self._session is None:
            raise ClusterError("this launcher has been closed")
        return self._session

    def _use_system(self, system: System) -> None:
        """Write requests in the words of this system from now on."""
        self._system = system
        # This machine's Grid Engine, if it has one, knows nothing of another system's jobs.
        self._diagnostics = Diagnostics(os.environ if system.kind == GRID_ENGINE else NOWHERE)

    @property
    def _words(self) -> BatchWords:
        return words_for(self._system, lambda: self._diagnostics.parallel_environment)

    def _request_for(self, demand: Demand) -> TaskOptions:
        left_out = (*self._own.left_out, *self.left_out)
        return request_for(self._words, replace(self._own, left_out=left_out), demand)

    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        """Return the first submission, in the words of the system that the library speaks to; in
        Grid Engine's without a library.

        Raises:
            SchedulerUnavailable: the library does not load.
        """
        libraries = library_paths(os.environ, self._library)
        if libraries:
            try:
                self._use_system(drmaa.named_system(libraries[0], os.environ))
            except Unavailable as error:
                raise unavailable(self._words, str(error)) from None
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
            raise unavailable(self._words, str(error)) from None
        except Unreachable as error:
            raise TryAgain(f"the batch system cannot be reached: {error}") from None
        except drmaa.DrmaaRefused as error:
            if error.for_now:
                raise TryAgain(str(error)) from None
            raise refusal(self._words, str(error), [self.request_words], count) from None

    def request(
        self, count: int, demand: Demand, log: Callable[[object], str]
    ) -> dict[str, object]:
        """Return the job template. If the user's options have `-N`, the template has no name, which
        would replace it.
        """
        request = self._request_for(demand)
        is_grid_engine = self._system.kind == GRID_ENGINE
        name = self.job_name if is_grid_engine else self.job_name[:SHORT_NAME]
        named = is_grid_engine and "-N" in request.options
        by_a_shell = is_grid_engine and by_shell(request.options)
        script = str(self.script)
        return {
            "remoteCommand": shlex.quote(script) if by_a_shell else script,
            "workingDirectory": str(self.run.directory),
            **({} if named else {"jobName": name}),
            "outputPath": f":{log('$drmaa_incr_ph$')}",
            "joinFiles": True,
            "nativeSpecification": request.native,
        }

    def launched(self, handles: Sequence[Handle], demand: Demand) -> None:
        request = self._request_for(demand)
        self.tasks.update((handle, DrmaaTask(request)) for handle in handles)

    # What a later process needs.

    def facts(self) -> dict[str, str]:
        """Return the facts by which a later process finds the session."""
        return {"contact": self._opened().contact}

    def adopt(self, handles: Mapping[Handle, Demand], facts: Mapping[str, str]) -> None:
        """Watch these tasks, in the session of the earlier process if it can be opened again."""
        if not handles:
            return  # the session is over, and what it may still have had is deleted
        session = self._opened()
        session.take_over(facts["contact"], [handle.id for handle in handles])
        self.keep(handles)
        self._guarded = True
        self._use_system(session.start())
        super().adopt(handles, facts)

    def keep(self, handles: Collection[Handle]) -> None:
        """Have the DRMAA process, which outlives this one, delete all tasks but these."""
        kept = {handle.id for handle in handles}
        if kept != self._kept:
            self._opened().keep(kept, self._kept - kept)
            self._kept = kept

    # Watching.

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Report]:
        """Return reports on these tasks; of many, the most urgent are asked about first."""
        now = time.monotonic()
        known = {handle.id: handle for handle in handles if handle in self.tasks}
        asked = [handle.id for handle in self._most_urgent_first(known.values())[:MOST_ASKED]]
        try:
            states = self._opened().status(asked, POLL_SECONDS)
        except BatchSystemError as error:
            logger.info("the batch system does not say how the workers are: %s", error)
            states = {}
        for id, (state, end) in states.items():
            self.tasks[known[id]].note(state, end, self._system.kind, now)
        found = {known[id]: STATES[state] for id, (state, _) in states.items() if state in STATES}
        self._learn_limits(found, now)
        reports = {one: self.tasks[one].running(status) for one, status in found.items()}
        return reports | self._exit_reports(known.values(), now)

    def _learn_limits(self, handles: Iterable[Handle], now: float) -> None:
        """Ask for the time limits of those of these tasks that have begun and requested no time."""
        new = {
            handle.id: task
            for handle in handles
            if not (task := self.tasks[handle]).queued
            and task.limit is None
            and "h_rt" not in task.request.values
        }
        if new and now >= self._limits_due:
            self._limits_due = now + LIMITS_SECONDS
            for id, limit in self._diagnostics.limits(new).items():
                new[id].limit = limit

    def _most_urgent_first(self, handles: Iterable[Handle]) -> list[Handle]:
        """Return the order in which to ask about tasks. Three groups take turns: running tasks, the
        first few waiting tasks, and all other waiting tasks. Within a group, the task that was
        asked about longest ago comes first.
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
        """Return reports on tasks that have ended, once the reason is known or looked for long."""
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
        self, handle: Handle, task: DrmaaTask, end: JobEnding, now: float
    ) -> Report | None:
        """Return the report on an ended task; None while its reason may still be found."""
        failure, report = None, end.report
        if report.deleted and not task.queued:  # without a usage, as by an advance reservation
            report = report._replace(reason="deleted while it ran")
        if report.state is WorkerStatus.FAILED and not report.deleted:
            look = self._diagnostics.logged_failure if end.started else self._diagnostics.failure
            failure = look(handle.id)
            if failure is None and not end.started and now - task.ended_at < REASON_SECONDS:
                return None
        reason = "; ".join(filter(None, [report.reason, failure.words if failure else ""]))
        if end.usage is not None:
            report = report._replace(fault=task.fault(end.usage))
            limits = task.request.limits
            reason += f" (its limits: {limits})" if limits else ""
        report = report._replace(reason=reason)
        return self._report_with_host(handle, report, failure)

    def _error_report(self, handle: Handle, task: DrmaaTask) -> Report | None:
        """Delete a task that counts as failed and has no exit status: it is in the error state.
        Return a report on it; None if its exit status may only be late.
        """
        reason = self._diagnostics.error_state(handle.id)
        if not reason and self._system.kind == GRID_ENGINE and task.looks < MOST_LOOKS:
            return None
        self.try_delete([handle.id])
        words = f"in the error state: {reason}" if reason else ""
        report = failed(words or "failed, and the batch system does not say why")
        return self._report_with_host(handle, report, self._diagnostics.logged_failure(handle.id))

    def _report_with_host(
        self, handle: Handle, report: Report, failure: JobFailure | None
    ) -> Report:
        host = (failure.host if failure else "") or host_in_log(handle.log)
        can_leave_out = host if self._words.host_option else ""
        return exit_report(handle, report._replace(host=can_leave_out), host, look=self._words.look)

    def explain(self, handles: Sequence[Handle]) -> str:
        """Return why the first of these tasks waits, in `qstat -j`'s words, and the remedy."""
        return explanation(self._words, self._diagnostics.waiting(handles[0].id)) if handles else ""

    # Ends.

    def delete(self, ids: Sequence[str]) -> None:
        self._opened().terminate(ids)

    def close(self) -> None:
        """Delete the remaining tasks, and give back the session."""
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


def lost_report(handle: Handle) -> Report:
    """Return the report on a job to which Grid Engine gave a number and that it no longer knows.
    Its worker may still run, for example after the master was restored from a backup.
    """
    number = handle.id.partition(".")[0]
    words = f"Grid Engine does not have this job, to which it gave the number {number}"
    error = WorkerNotStarted(
        words,
        job=handle.id,
        hint=f"`qstat -j {number}` says so too. Where an option or a rule of the site (-w v, a "
        "JSV) has jobs checked and not taken, leave it out; or the master was restored from an "
        "older copy: run this again, or ask the administrators",
    )
    return failed(words, error=error, uncertain=True)
