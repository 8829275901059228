"""Starts, watches and stops workers on a Slurm, through its own commands."""

from __future__ import annotations

import functools
import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from gridengine.errors import GridEngineError
from gridengine.resources.demand import ANY, Demand
from gridengine.resources.units import plural
from gridengine.schedulers.batch_system import BatchLauncher, exit_report
from gridengine.schedulers.cleanup import Guard
from gridengine.schedulers.launcher import (
    BatchSystemError,
    Handle,
    LaunchContext,
    LaunchPlan,
    Refused,
    Report,
    TryAgain,
    Unavailable,
    Unreachable,
    WorkerStatus,
    failed,
)
from gridengine.schedulers.slurm.commands import MEMORY_VARIABLES, Slurm, sbatch_command, variables
from gridengine.schedulers.slurm.options import option_values, sbatch_options
from gridengine.schedulers.slurm.site import (
    OWN_LIMIT,
    Site,
    impossible,
    no_jobs_allowed,
    refusal,
    unavailable,
)
from gridengine.schedulers.slurm.srun import ImmediateWorkers, Unsuitable
from gridengine.schedulers.slurm.states import (
    ENDS,
    PURGED,
    REQUEUED,
    STATES,
    Row,
    end_words,
    explanation,
    is_permanent,
)
from gridengine.settings.values import settings

logger = logging.getLogger("gridengine")

CLOSE_SECONDS = 5.0
ENDING_SECONDS = 30.0
"""For how long a task may be about to end before it is taken to have ended: a node that does not
answer keeps it there for long.
"""


@dataclass(slots=True)
class SlurmTask:
    """What is remembered of a task: what it was asked for, why it waits, when Slurm says that it
    started, since when it has been about to end, whether Slurm's last listing lacked it, and
    whether srun started it.
    """

    demand: Demand
    reason: str = ""
    start: str | None = None
    ending_since: float | None = None
    absent: bool = False
    by_srun: bool = False


class SlurmLauncher(BatchLauncher[SlurmTask]):
    """Starts workers as the tasks of array jobs, the first by srun, that all have one name, and
    asks for all of them at once.

    Args:
        site: what this Slurm allows, if it has been asked already.
        slurm: what calls its commands (default: of the Slurm that this environment names).
    """

    def __init__(
        self,
        run: LaunchContext,
        *,
        script: str,
        name: str = "",
        options: Sequence[str],
        strict: bool = True,
        site: Future[Site] | None = None,
        slurm: Slurm | None = None,
    ) -> None:
        super().__init__(run, script=script, name=name)
        self._options = list(options)
        self._strict = strict
        self._slurm = slurm or Slurm(os.environ)
        self._site_asked = site
        self._guard: Guard | None = None
        self._warned = False
        self._in_doubt = False
        """Whether there may be jobs of our name that are not in `tasks`."""

    def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
        """Have srun start the first workers, if there is room, and submit the others, in arrays no
        larger than the site allows.
        """
        self.largest = max(1, self._site.largest)
        options = self._options_for(demand)
        self.request_words = " ".join(options)
        self._warn_of_waste(options)
        handles = self._launch_immediately(count, demand)
        try:
            return handles + (
                super().launch(count - len(handles), demand) if count > len(handles) else []
            )
        except (TryAgain, GridEngineError):
            if not handles:
                raise
            return handles  # what keeps the others from it is told at the next launch

    def _warn_of_waste(self, options: Sequence[str]) -> None:
        """Say once that jobs are given more of a node than they ask for."""
        cores = option_values(options).get("--cpus-per-task", ("1", ""))[0]
        whole = self._site.whole_cores
        if self._warned:
            return
        if cores.isdecimal() and int(cores) < whole:
            self._warned = True
            logger.warning(
                "this Slurm gives each job a whole node, of %d cores or more, and the workers ask "
                "for %s each: with worker_resources=Cores(%d) of the scheduler, calls share a node",
                whole,
                plural(int(cores), "core"),
                whole,
            )
        elif self._site.hides_memory and not self._memory_is_said(options):
            self._warned = True
            logger.warning(
                "this Slurm gives a job that asks for no memory all that a node has, and does not "
                "show how much that is: ask for what a call needs, as resources=Memory(2)"
            )

    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        """Return what is submitted, and how the first workers are started where there is room at
        once.
        """
        plan = super().plan(count, demand)
        try:
            srun = self._immediate.command(self._options_for(demand), self._log(1, "\0"))
        except Unsuitable:
            return plan
        return plan._replace(request={**plan.request, "srun": srun})

    def _launch_immediately(self, count: int, demand: Demand) -> list[Handle]:
        # Those of srun would end with this process.
        room = 0 if self._in_doubt or self.run.epoch else min(count, self._immediate.room)
        if not room:
            return []
        self.prepare()
        self._start_guard()
        logs = [self._log(self._launches + place, "\0") for place in range(1, room + 1)]
        self._launches += room
        jobs, self._in_doubt = self._immediate.start(self._options_for(demand), logs)
        handles = [Handle(job, log.replace("\0", "0")) for job, log in jobs.items()]
        self.tasks.update((handle, SlurmTask(demand, by_srun=True)) for handle in handles)
        return handles

    @functools.cached_property
    def _name(self) -> str:
        """The name of all jobs of this launcher, and of no others: what has it and is not known is
        cancelled. `squeue` shows its beginning.
        """
        return f"{self.job_name}-{self.run.id}-{secrets.token_hex(3)}"

    @functools.cached_property
    def _immediate(self) -> ImmediateWorkers:
        return ImmediateWorkers(self._slurm.environment, self._name, self.script, self._text)

    @functools.cached_property
    def _site(self) -> Site:
        """What this Slurm allows; it is asked until it has answered once.

        Raises:
            SchedulerUnavailable: it does not answer.
        """
        asked, self._site_asked = self._site_asked, None
        try:
            return asked.result() if asked is not None else site_for(self._slurm, self._options)
        except BatchSystemError as error:
            raise unavailable(str(error)) from None

    def _options_for(self, demand: Demand) -> list[str]:
        """Return all options for workers of this demand. Some memory is always asked for, where a
        job would else be given all of a node.
        """
        options = sbatch_options(self._options, demand, settings().slurm)
        memory = self._site.memory
        return [memory, *options] if memory and not self._memory_is_said(options) else options

    def _memory_is_said(self, options: Sequence[str]) -> bool:
        return "--mem" in option_values(options) or any(
            name in self._slurm.environment for name in MEMORY_VARIABLES
        )

    def request(
        self, count: int, demand: Demand, log: Callable[[object], str]
    ) -> dict[str, list[str]]:
        tasks = count if self._site.largest else 0
        options = self._options_for(demand)
        return {
            "argv": sbatch_command(
                options, name=self._name, count=tasks, log=log, script=self.script
            )
        }

    def submit(self, count: int, demand: Demand, log: Callable[[object], str]) -> list[str]:
        """Submit one array, or one job where the site has no arrays."""
        command = self.request(count, demand, log)["argv"]
        self._start_guard()
        try:
            if self._in_doubt:
                self._cancel_unknown(self._slurm.jobs(self._name))
            return self._slurm.submit(command, count if self._site.largest else 0)
        except Unavailable as error:
            raise unavailable(str(error)) from None
        except Unreachable as error:
            self._in_doubt = True
            raise TryAgain(f"Slurm cannot be reached: {error}") from None
        except Refused as error:
            asked = [*self._options_for(demand), *variables(self._slurm.environment)]
            if count == 1 and OWN_LIMIT.search(str(error)) and not self._slurm.has_jobs():
                raise no_jobs_allowed(str(error), asked) from None
            raise refusal(str(error), asked, count) from None

    def _start_guard(self) -> None:
        """See that nothing of this launcher's outlives this process."""
        if self._guard is None and not self.run.epoch:
            self._guard = self._new_guard()

    def _new_guard(self) -> Guard:
        command = self._slurm.cancel_command(self._name)
        return Guard(command, self.files, self._slurm.environment)

    def facts(self) -> dict[str, str]:
        """Return the name of the jobs."""
        return {"name": self._name}

    def adopt(self, handles: Mapping[Handle, Demand], facts: Mapping[str, str]) -> None:
        """Watch these tasks; other jobs of their name are cancelled: nobody knows of them."""
        self.__dict__["_name"] = facts["name"]
        super().adopt(handles, facts)
        self._in_doubt = True

    def launched(self, handles: Sequence[Handle], demand: Demand) -> None:
        self.tasks.update((handle, SlurmTask(demand)) for handle in handles)

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Report]:
        """Return what is known of these tasks, by one question for all, and by one more for each
        array of which some ended badly.
        """
        now = time.monotonic()
        try:
            rows = self._slurm.jobs(self._name)
            self._cancel_unknown(rows)
        except BatchSystemError as error:
            logger.info("Slurm does not say how the workers are: %s", error)
            return {}
        # Who left in order is asked for no more.
        self.forget(
            [
                task
                for task in self.tasks.keys() - set(handles)
                if task.id not in rows or rows[task.id].state in ENDS
            ]
        )
        reports: dict[Handle, Report] = {}
        ends: dict[Handle, tuple[str, Report]] = {}
        for handle in (handle for handle in handles if handle in self.tasks):
            found = self._judge(handle, rows.get(handle.id), now)
            if isinstance(found, Report):
                reports[handle] = found
            elif found is not None:
                ends[handle] = found
        return reports | self._exit_reports(ends)

    def _cancel_unknown(self, rows: Mapping[str, Row]) -> None:
        """Cancel what has our name and is not ours any more: what could not be cancelled, or was
        submitted after all.
        """
        ours = {task.id for task in self.tasks}
        unknown = [id for id, row in rows.items() if row.state in STATES and id not in ours]
        if unknown:
            self._slurm.cancel(unknown)
        self._in_doubt = False

    def _judge(
        self, handle: Handle, row: Row | None, now: float
    ) -> Report | tuple[str, Report] | None:
        """Return a report on a task that has not ended, or how it ended, or None when nothing is
        certain.
        """
        task = self.tasks[handle]
        was_absent, task.absent = task.absent, row is None
        if row is None:
            # Twice, lest one answer that lacks something passes for a death.
            return ("", PURGED) if was_absent else None
        state = STATES.get(row.state)
        if state is not None:
            task.ending_since = None
            if _started_again(task, state, row) or _waits_again(handle, row):
                return row.state, REQUEUED
            task.reason = row.reason
            if row.state == "PENDING":
                return self._waits(task)
            return Report(state, remaining_seconds=row.remaining_seconds)
        if row.state in ENDS:
            return row.state, ENDS[row.state]
        if task.ending_since is None:
            task.ending_since = now
        if now - task.ending_since > ENDING_SECONDS:
            return row.state, failed("it does not come to its end")
        return None

    def _waits(self, task: SlurmTask) -> Report:
        never = self._strict and is_permanent(task.reason)
        error = impossible(task.reason, self._options_for(task.demand)) if never else None
        return Report(WorkerStatus.QUEUED, explanation(task.reason), error)

    def _exit_reports(self, ends: Mapping[Handle, tuple[str, Report]]) -> dict[Handle, Report]:
        """Return a report on each task that ended, with what Slurm knows beyond its state."""
        arrays = {
            handle.id.partition("_")[0]
            for handle, (_, end) in ends.items()
            if end.state is WorkerStatus.FAILED
        }
        known: dict[str, dict[str, str]] = {}
        try:
            for array in arrays:
                known.update(self._slurm.details(array))
        except BatchSystemError as error:
            logger.info("Slurm does not say why workers ended: %s", error)
        reports = {}
        for handle, (state, end) in ends.items():
            fields = known.get(handle.id, {})
            if end is PURGED and fields.get("JobState") in STATES:
                continue
            reports[handle] = self._exit_report(handle, state, end, fields)
        self.try_delete([handle.id for handle, (_, end) in ends.items() if end is REQUEUED])
        self.forget(reports)
        return reports

    def _exit_report(
        self, handle: Handle, state: str, end: Report, fields: Mapping[str, str]
    ) -> Report:
        if end is PURGED and not Path(handle.log).exists():
            # Of those that wait, only those that somebody cancelled vanish at once.
            state, end = "CANCELLED", ENDS["CANCELLED"]
        words = end_words(state, end, fields)
        who = self._who_cancelled(handle) if end.deleted else ""
        words += f", by {who}" if who else ""
        host = fields.get("NodeList", "").replace("(null)", "")
        of_srun = self.tasks[handle].by_srun and not Path(handle.log).exists()
        if of_srun:
            self._immediate.stop(words)
        end = end._replace(reason=words, blameless=end.blameless or of_srun)
        return exit_report(handle, end, host)

    def _who_cancelled(self, handle: Handle) -> str:
        if not self._site.accounts:
            return ""
        try:
            return self._slurm.cancelled_by(handle.id)
        except BatchSystemError as error:
            logger.info("Slurm's accounts do not say who cancelled %s: %s", handle.id, error)
            return ""

    def delete(self, ids: Sequence[str]) -> None:
        try:
            self._slurm.cancel(ids)
        except BatchSystemError:
            self._in_doubt = True
            raise

    def explain(self, handles: Sequence[Handle]) -> str:
        """Return what the first of these tasks waits for: Slurm's reason, what it means and what
        can be done.
        """
        task = self.tasks.get(handles[0]) if handles else None
        return explanation(task.reason) if task is not None and task.reason else ""

    def close(self) -> None:
        """Cancel the tasks that are left; should Slurm not answer, that is tried for a minute
        more.
        """
        if os.getpid() != self.owner:
            return
        guard, self._guard = self._guard, None
        if self.run.epoch and "_name" in self.__dict__:  # who may have submitted
            guard = self._new_guard()
        if guard is not None:
            try:
                self._slurm.run(*self._slurm.cancel_command(self._name), seconds=CLOSE_SECONDS)
            except BatchSystemError as error:
                logger.warning(
                    "process %d still tries to cancel this run's jobs: %s", guard.leave(), error
                )
            else:
                guard.dismiss()
                self._immediate.close()
        self.script.unlink(missing_ok=True)


def _started_again(task: SlurmTask, state: WorkerStatus, row: Row) -> bool:
    """Return whether this task ran before, and waits again or was started again."""
    before = task.start
    if state is WorkerStatus.RUNNING and before is None:
        task.start = row.start
    return before is not None and (
        state is WorkerStatus.QUEUED or (state is WorkerStatus.RUNNING and row.start != before)
    )


def _waits_again(handle: Handle, row: Row) -> bool:
    """Return whether this task, which has a log, waits to be started again: it may have run between
    two looks.
    """
    return row.state == "PENDING" and row.reason == "BeginTime" and Path(handle.log).exists()


def site_for(slurm: Slurm, options: Sequence[str]) -> Site:
    """Return what a Slurm allows in the partitions that these options, or the settings, say."""
    said = option_values(sbatch_options(options, ANY, settings().slurm))
    return slurm.site(said.get("--partition", ("", ""))[0])
