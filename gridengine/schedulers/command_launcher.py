"""Starts, watches and stops workers by the commands of any batch system, which its `BatchCommands`
describe.

All jobs of a launcher have one name, which no other jobs have. One command lists them all by that
name. A listed job that the launcher does not know is deleted: it comes from a submission that
seemed to fail or gave no answer, from an earlier process that died before it noted the job, or from
a deletion that did not succeed. When this process is gone, another one deletes all jobs of the
name.

A task, from its listings (`_judge`):

    QUEUED, RUNNING or SUSPENDED -> reported as such
    ran before, and waits or was restarted -> lost, and deleted: another takes its place
    missing once -> nothing; missing twice -> looked for by its id (`endings`), and if that finds
        nothing ended (it has left a log) or deleted (it has not)
    about to end -> nothing; for `ENDING_SECONDS` -> failed
    ended or failed -> asked for its reason (`endings`), then reported, once
"""

from __future__ import annotations

import functools
import logging
import math
import os
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from msgspec import Struct

from gridengine.display import plural
from gridengine.errors import GridEngineError, SubmissionRefused
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.batch_commands import GONE, VANISHED, BatchCommands, Seen, WorkerArray
from gridengine.schedulers.batch_system import BatchLauncher, exit_report
from gridengine.schedulers.brought_files import BroughtFiles
from gridengine.schedulers.command import CommandRunner, Guard
from gridengine.schedulers.launcher import (
    BatchSystemError,
    BatchSystemRefusal,
    Handle,
    LaunchContext,
    Report,
    TryAgain,
    Unavailable,
    Unreachable,
    WorkerStatus,
)
from gridengine.schedulers.requests import (
    explanation,
    first_match,
    impossible,
    refusal,
    refused,
    unavailable,
    worker_options,
)
from gridengine.settings.values import settings

logger = logging.getLogger("gridengine")

CLOSE_SECONDS = 5.0
LOGS_SECONDS = 8.0
"""How long `close` waits for logs that jobs bring at their end."""
LISTING_SECONDS = 1.0
"""The least time between two listings."""
ENDING_SECONDS = 30.0
"""A task that is about to end for longer is taken to have failed: its node may not answer."""
MOST_NAMED = 1000
"""The most ids in one command."""
LIVE = frozenset({WorkerStatus.QUEUED, WorkerStatus.RUNNING, WorkerStatus.SUSPENDED})
RESTARTED = Seen(
    WorkerStatus.FAILED,
    "it was put back into the queue; another takes its place",
    blameless=True,
    linger=True,
)
NEVER_ENDS = Seen(WorkerStatus.FAILED, "it does not come to its end")


class CommandTask(Struct):
    """The launcher's record of a task: its demand, why it waits and whether a listing said so, when
    it started, since when it has been about to end, and whether the last listing lacked it. A task
    is `renamed` if listings lack it, and it lives: a rule of the site has given it another name.
    """

    demand: Demand
    reason: str = ""
    is_listed_reason: bool = False
    start: str | None = None
    ending_since: float | None = None
    absent: bool = False
    renamed: bool = False


class CommandLauncher(BatchLauncher[CommandTask]):
    """Starts workers as tasks of array jobs of one name.

    Args:
        system: how the system's commands are called.
        options: the scheduler's own options.
        strict: whether a job that can never start is an error.
        site: the result of asking the system for its site's limits, if that has begun already.
        runner: runs the system's commands (default: in this process's environment).
    """

    def __init__(
        self,
        run: LaunchContext,
        *,
        script: str,
        name: str = "",
        system: BatchCommands,
        options: Sequence[str] = (),
        strict: bool = True,
        site: Future[BatchCommands] | None = None,
        runner: CommandRunner | None = None,
    ) -> None:
        super().__init__(run, script=script, name=name)
        self.title = system.title
        self.runner = runner or CommandRunner(system, os.environ)
        self._any_site = system
        self._options = list(options)
        self._strict = strict
        self._site_asked = site
        self._guard: Guard | None = None
        self._advised = False
        self._untold = set[str]()
        self._listed_at = -math.inf
        self.in_doubt = False
        """Whether there may be jobs of our name that are not in `tasks`."""

    excluded: Sequence[str] = ()
    """The hosts that the user leaves out."""
    brought: BroughtFiles | None = None
    """The files that jobs are brought; None where nodes share files with this machine."""

    # The jobs' name, and their options.

    @functools.cached_property
    def name(self) -> str:
        """The name of all jobs of this launcher, and of no others; people see its beginning."""
        return f"{self.job_name}-{self.run.id}-{os.urandom(3).hex()}"

    @functools.cached_property
    def system(self) -> BatchCommands:
        """The system with its site's limits; raises SchedulerUnavailable if it does not answer."""
        asked, self._site_asked = self._site_asked, None
        try:
            if asked is not None:
                return asked.result()
            return system_at_site(self._any_site, self.runner, self._options)
        except BatchSystemError as error:
            raise unavailable(self._any_site, str(error)) from None

    def options_for(self, demand: Demand) -> list[str]:
        """Return all options for workers of this demand."""
        left_out = (*self.excluded, *self.left_out)
        return worker_options(self.system, self._options, demand, left_out=left_out)

    def request(
        self, count: int, demand: Demand, log: Callable[[object], str]
    ) -> dict[str, list[str]]:
        return {"argv": self._submission(self.options_for(demand), count, log)}

    def _submission(
        self, options: Sequence[str], count: int, log: Callable[[object], str]
    ) -> list[str]:
        files, host = None, ""
        if self.brought is not None:
            assert self.system.unbrought is not None
            files = self.brought.all_files(self.run.connection, self.system.unbrought)
            host = settings().host or socket.gethostname()
        array = WorkerArray(
            name=self.name,
            count=count,
            script=self.script,
            options=options,
            log=log,
            files=files,
            host=host,
        )
        return list(self.system.submit(array))

    # Submission.

    def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
        """Submit `count` tasks, in arrays no larger than the site allows."""
        self.begin(demand)
        return super().launch(count, demand)

    def begin(self, demand: Demand) -> None:
        """Note the options for this demand and the size of arrays; log the system's advice once."""
        most = max(1, self.system.most_tasks)
        self.largest = min(self.largest or most, most)
        options = self.options_for(demand)
        self.request_words = " ".join(options)
        advice = "" if self._advised else self.system.advice(options)
        if advice:
            self._advised = True
            logger.warning("%s", advice)

    def submit(self, count: int, demand: Demand, log: Callable[[object], str]) -> list[str]:
        """Submit one array; before that, delete unknown jobs that may have our name."""
        options = self.options_for(demand)
        command = self._submission(options, count, log)
        self.start_guard()
        try:
            if self.in_doubt:
                self._delete_unknown(self._listing())
            output = self.runner.submit(command)
            ids = self.system.ids(output, count)
            if len(ids) != count:
                self.in_doubt = True
                raise self._unnamed(command[0], output, len(ids), count)
            return ids
        except Unavailable as error:
            raise unavailable(self._any_site, str(error)) from None
        except Unreachable as error:
            self.in_doubt = True
            raise TryAgain(f"{self.title} cannot be reached: {error}") from None
        except BatchSystemRefusal as error:
            self.in_doubt |= bool(self.system.ids(error.output, count))
            raise self._refusal(error, options, count) from None

    def _unnamed(self, command: str, output: str, ids: int, count: int) -> SubmissionRefused:
        """Return the error of a submission that succeeded, and does not tell the jobs' ids."""
        return SubmissionRefused(
            f"{command} has submitted {plural(count, 'job')} to {self.title}, and names "
            f"{ids} of them: {output.strip()!r}",
            hint="a wrapper or a banner of the site changes its output: ask the administrators for "
            "the command itself; these jobs are deleted",
        )

    def handle_of(self, launch: int, task: int, id: str) -> Handle:
        return Handle(id, self.log_path(launch, self.system.log_word(task, id)))

    def launched(self, handles: Sequence[Handle], demand: Demand) -> None:
        self.tasks.update((handle, CommandTask(demand)) for handle in handles)

    def _refusal(
        self, error: BatchSystemRefusal, asked: Sequence[str], count: int
    ) -> TryAgain | GridEngineError:
        """Return the error of a refused array of `count` tasks with these options."""
        asked = [*asked, *self.runner.said_by_variables()]
        remedy = first_match(str(error), self.system.own_limits) if count == 1 else None
        if remedy is None or self._has_jobs():
            return refusal(self.system, str(error), asked, count)
        text = f"{self.title} takes no job of this user, who has none: {error}"
        return refused(text, " ".join(asked), remedy, self.system.key)

    def _has_jobs(self) -> bool:
        """Return whether any job of this user waits or runs; True if unknown."""
        command = self.system.own_jobs()
        try:
            return not command or bool(self.runner.run(command))
        except BatchSystemError:
            return True

    def start_guard(self) -> None:
        """Start the process that deletes all jobs when this one is gone, unless they may stay."""
        if self._guard is None and not self.run.epoch:
            self._guard = self._new_guard()

    def _new_guard(self) -> Guard:
        command = self.runner.whole(self._any_site.cancel_all(self.name))
        return Guard(command, self.files, self.runner.environment)

    # What a later process needs.

    def facts(self) -> dict[str, str]:
        """Return the name of the jobs."""
        return {"name": self.name}

    def adopt(self, handles: Mapping[Handle, Demand], facts: Mapping[str, str]) -> None:
        """Watch these tasks. Delete other jobs of their name, since no record has them."""
        self.__dict__["name"] = facts["name"]
        super().adopt(handles, facts)
        self.in_doubt = True

    # Watching.

    def _listing(self) -> dict[str, Seen]:
        """Return the listing of all jobs of our name; raise Unreachable if there is none."""
        try:
            return self.system.parse(self.runner.run(self.system.listing(self.name)))
        except (ValueError, BatchSystemRefusal) as error:
            raise Unreachable(str(error)) from error

    def _delete_unknown(self, seen: Mapping[str, Seen]) -> None:
        """Delete listed jobs that are not in `tasks`."""
        ours = {task.id for task in self.tasks}
        unknown = [
            id for id, one in seen.items() if id not in ours and (one.state in LIVE or one.linger)
        ]
        if unknown:
            self._cancel(unknown)
        self.in_doubt = False

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Report]:
        """Return reports on these tasks, from one listing and questions about the failed ones."""
        now = time.monotonic()
        if now - self._listed_at < LISTING_SECONDS:
            return {}
        self._listed_at = now
        try:
            seen = self._listing()
            self._delete_unknown(seen)
        except BatchSystemError as error:
            logger.info("%s does not say how the workers are: %s", self.title, error)
            return {}
        # Workers that left in order are watched until the system no longer runs their tasks.
        left = self.tasks.keys() - set(handles)
        self.forget([task for task in left if task.id not in seen or _is_over(seen[task.id])])
        reports: dict[Handle, Report] = {}
        ends: dict[Handle, Seen] = {}
        for handle in (handle for handle in handles if handle in self.tasks):
            found = self._judge(handle, seen.get(handle.id), now)
            if isinstance(found, Report):
                reports[handle] = found
            elif found is not None:
                ends[handle] = found
        return reports | self._exit_reports(ends)

    def _judge(self, handle: Handle, seen: Seen | None, now: float) -> Report | Seen | None:
        """Return a report on a task that has not ended, or how it ended, or None if unknown."""
        task = self.tasks[handle]
        was_absent, task.absent = task.absent, seen is None
        if seen is None:
            # Twice, since one incomplete answer must not pass for a death.
            lost = GONE if Path(handle.log).exists() else VANISHED
            return lost if was_absent else None
        if seen.state is None:
            task.ending_since = now if task.ending_since is None else task.ending_since
            return NEVER_ENDS if now - task.ending_since > ENDING_SECONDS else None
        task.ending_since = None
        if seen.state not in LIVE:
            return seen
        if _started_again(task, seen) or (seen.again and Path(handle.log).exists()):
            return RESTARTED
        if seen.state is WorkerStatus.QUEUED:
            return self._waits(task, seen.reason)
        left = min(seen.remaining_seconds, seen.ends_at - time.time())
        return Report(seen.state, remaining_seconds=left, host=self._avoidable(seen.host))

    def _waits(self, task: CommandTask, reason: str) -> Report:
        task.reason = reason or task.reason  # `explain` may have learned it
        task.is_listed_reason = bool(reason)
        never = self._strict and self.system.never.search(task.reason)
        error = None
        if never:
            asked = self.options_for(task.demand)
            error = impossible(self.system, task.reason, asked)
        return Report(WorkerStatus.QUEUED, explanation(self.system, task.reason), error)

    def explain(self, handles: Sequence[Handle]) -> str:
        """Return the reason why the first of these tasks waits, its meaning and the remedy."""
        task = self.tasks.get(handles[0]) if handles else None
        if task is None:
            return ""
        command = self.system.why(handles[0].id)
        if command and not task.is_listed_reason:
            try:
                said = self.runner.run(command)
                task.reason = self.system.because(said) or task.reason
            except BatchSystemError as error:
                logger.info("%s does not say what workers wait for: %s", self.title, error)
        return explanation(self.system, task.reason)

    # Ends.

    def _exit_reports(self, ends: Mapping[Handle, Seen]) -> dict[Handle, Report]:
        """Return a report on each task that ended, with the details that the system tells; and on
        each that lives all the same.
        """
        known = self._endings({handle.id: end for handle, end in ends.items()}) if ends else {}
        reports, living = dict[Handle, Report](), dict[Handle, Report]()
        lingering = []
        for handle, listed in ends.items():
            end = known.get(handle.id, listed)
            if not _is_over(end):
                self.tasks[handle].renamed = True
                found = self._judge(handle, end, time.monotonic())
                if not isinstance(found, Seen):
                    living |= {handle: found} if found else {}
                    continue
                end = found
            end = self.amended(handle, end)
            if listed.linger or end.linger:
                lingering.append(handle.id)
            report = report_of(end)._replace(host=self._avoidable(end.host))
            reports[handle] = exit_report(handle, report, end.host, look=self.system.look)
            if self.system.never.search(end.reason):
                asked = self.options_for(self.tasks[handle].demand)
                error = impossible(self.system, end.reason, asked, ended=True)
                reports[handle] = reports[handle]._replace(error=error)
        if lingering:
            self.try_delete(lingering)
        self.forget(reports)
        return living | reports

    def _avoidable(self, host: str) -> str:
        """Return a host if it is one, not several, and the system has words to leave it out."""
        return host if self.system.host_option and not re.search(r"[\[,]", host) else ""

    def _endings(self, ended: Mapping[str, Seen]) -> dict[str, Seen]:
        outputs = []
        for command in self.system.endings(ended):
            try:
                outputs.append(self.runner.run(command))
            except BatchSystemError as error:
                if str(error) not in self._untold:  # a site without accounts says so each time
                    self._untold.add(str(error))
                    logger.info("%s does not say why workers ended: %s", self.title, error)
                outputs.append("")
        return self.system.parse_endings(ended, outputs)

    def amended(self, handle: Handle, end: Seen) -> Seen:
        """Return how a task ended, corrected if the launcher knows more than the system."""
        return end

    # Deletion.

    def _cancel(self, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), MOST_NAMED):
            self.runner.run(self.system.cancel(ids[start : start + MOST_NAMED]))

    def delete(self, ids: Sequence[str]) -> None:
        try:
            self._cancel(ids)
        except BatchSystemError:
            self.in_doubt = True
            raise

    def close(self) -> None:
        """Delete the remaining tasks; if the system does not answer, another process retries."""
        if os.getpid() != self.owner:
            return
        guard, self._guard = self._guard, None
        if self.run.epoch and "name" in self.__dict__:  # who may have submitted
            guard = self._new_guard()
        if guard is not None:
            try:
                self.runner.run(self._any_site.cancel_all(self.name), CLOSE_SECONDS)
                self._cancel([task.id for task, one in self.tasks.items() if one.renamed])
            except BatchSystemError as error:
                logger.warning(
                    "process %d still tries to cancel this run's jobs: %s", guard.leave(), error
                )
            else:
                guard.dismiss()
                self._await_logs()
        self.script.unlink(missing_ok=True)

    def _await_logs(self) -> None:
        """Wait for the logs that the system copies into the run directory at the end of jobs. The
        run directory may be removed after this; a system that has not copied the logs by then
        leaves the jobs' folders on the nodes.
        """
        command = self.system.wait_all(self.name) if self.brought is not None else ()
        if command:
            try:
                self.runner.run(command, LOGS_SECONDS)
            except BatchSystemError:
                logger.warning("the logs of jobs that have not ended yet are lost")


def _is_over(seen: Seen) -> bool:
    return seen.state is not None and seen.state not in LIVE


def _started_again(task: CommandTask, seen: Seen) -> bool:
    """Note a task's start. Return whether it ran before, and now waits again or was restarted."""
    before = task.start
    if seen.state is WorkerStatus.RUNNING and before is None:
        task.start = seen.start
    return before is not None and (
        seen.state is WorkerStatus.QUEUED
        or (seen.state is WorkerStatus.RUNNING and seen.start != before)
    )


def report_of(seen: Seen) -> Report:
    """Return the report on an ended task."""
    assert seen.state is not None
    return Report(
        seen.state,
        seen.reason,
        deleted=seen.deleted,
        fault=seen.fault,
        blameless=seen.blameless,
        uncertain=seen.uncertain,
    )


def system_at_site(
    system: BatchCommands, runner: CommandRunner, options: Sequence[str]
) -> BatchCommands:
    """Return the system with its site's limits; raise a BatchSystemError if it does not answer."""
    asked = worker_options(system, options, ANY)
    return system.told(runner.answers(system.questions()), asked)
