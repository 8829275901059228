"""Workers on a cluster that runs Slurm, through its own commands."""

from __future__ import annotations

import functools
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from gridengine.errors import GridEngineError, SchedulerUnavailable
from gridengine.resources.base import Resource
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.batch import BatchLauncher, BatchScheduler, not_started
from gridengine.schedulers.cleanup import Guard
from gridengine.schedulers.launcher import (
    Handle,
    LaunchContext,
    LaunchPlan,
    Report,
    TryAgain,
    WorkerStatus,
)
from gridengine.schedulers.slurm.commands import Missing, Refused, Slurm, Trouble, sbatch_command
from gridengine.schedulers.slurm.options import (
    Option,
    own_options,
    own_walltime,
    sbatch_options,
    things,
)
from gridengine.schedulers.slurm.site import Site, impossible, refusal, unavailable
from gridengine.schedulers.slurm.srun import AtOnce, Unsuitable
from gridengine.schedulers.slurm.states import (
    ENDS,
    PURGED,
    REQUEUED,
    STATES,
    End,
    Row,
    end_words,
    explanation,
    is_permanent,
)
from gridengine.settings.values import settings
from gridengine.wire.connection import JOB_END

logger = logging.getLogger("gridengine")

T = TypeVar("T")

CLOSE_SECONDS = 5.0
ENDING_SECONDS = 30.0
"""For how long a task may be about to end before it is taken to have ended: a node that does not
answer keeps it there for long.
"""
FIRST = """if [[ ${SLURM_RESTART_COUNT:-0} -gt 0 ]]; then
    echo "gridengine: Slurm has started this job again on $HOSTNAME;" \\
        "another has taken its place, and it ends" >&2
    exit 0
fi
[[ -z ${SLURM_SRUN_COMM_PORT-} ]] || export %s="scancel --quiet $SLURM_JOB_ID\""""
"""A task that Slurm put back into its queue and started again must not pass for the worker that it
was before. And a job of srun's outlives its worker when that srun is gone, as after a crash of the
machine that it ran on."""


class SlurmScheduler(BatchScheduler):
    """Runs calls in jobs of a Slurm.

    Args:
        partition, account, qos: `--partition`, `--account`, `--qos` (default: the settings', else
            Slurm's own).
        native: more options of sbatch, as they are.
        max_workers: the most cluster tasks at a time (default: the setting, 1000).
        start_timeout: for how many seconds calls may wait for their first worker, then they fail
            with `WorkerNotStarted` and what the
            batch system says of it (default: the setting, which is for ever).
        jobs_per_worker: after how many calls a cluster task ends (default: never).
        prologue: shell lines that run before the worker, as "module load python". With any, the
            shell is a login shell. When one fails, so does the task.
        environment: variables for the worker.
        python: the interpreter on the nodes (default: this one).
        worker_resources: what each worker holds, as `Cores(32) & Memory(120)`: calls share it, and
            each worker runs all that fits (default: each worker holds what one call asks for, and
            runs one call at a time).
        strict: what Slurm takes and can never start (it waits for `PartitionConfig`,
            `PartitionTimeLimit`, `BadConstraints` or the like) is an error at once; with False it
            waits, for somebody to change the site or the job.
        options: any option of sbatch by its name, with underscores for hyphens: `time="2:00:00"`,
        `mem="4G"`, `exclusive=True`.

    Raises:
        TypeError, ConfigurationError: an argument is not what it must be; the text names it and its
        value.
    """

    start_at_once = True

    def __init__(
        self,
        *,
        partition: str | None = None,
        account: str | None = None,
        qos: str | None = None,
        native: str = "",
        max_workers: int | None = None,
        start_timeout: float | None = None,
        jobs_per_worker: int | None = None,
        prologue: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        python: str | None = None,
        worker_resources: Resource | None = None,
        strict: bool = True,
        **options: Option,
    ) -> None:
        super().__init__(
            max_workers=max_workers,
            start_timeout=start_timeout,
            jobs_per_worker=jobs_per_worker,
            prologue=prologue,
            environment=environment,
            python=python,
        )
        named = {"partition": partition, "account": account, "qos": qos}
        given = {name: value for name, value in named.items() if value is not None}
        self._options = own_options({**given, **options}, native)
        self.walltime = own_walltime(self._options)
        if not isinstance(strict, bool):
            raise TypeError(f"strict must be True or False, not {strict!r}")
        self._strict = strict
        self._site_asked: Future[Site] | None = None
        if worker_resources is not None:
            self.hold(worker_resources)

    def __repr__(self) -> str:
        return f"SlurmScheduler({' '.join(self._options) or 'no special request'})"

    def launcher(self, run: LaunchContext) -> SlurmLauncher:
        """Return what starts this scheduler's workers, as array jobs."""
        launcher = SlurmLauncher(
            run,
            script=self.script(run, FIRST % JOB_END),
            options=self._options,
            strict=self._strict,
        )
        launcher.site_asked = self._site_asked
        return launcher

    def prepare(self) -> None:
        """Ask Slurm what it allows, which takes about as long as to import what is needed next."""
        with self._lock:
            if self._shared is None and not self._closed and self._site_asked is None:
                self._site_asked = in_background(
                    functools.partial(site_for, Slurm(os.environ), self._options)
                )


class SlurmLauncher(BatchLauncher):
    """Starts workers as the tasks of array jobs, the first by srun, that all have one name, and
    asks for all of them at once.
    """

    def __init__(
        self, run: LaunchContext, *, script: str, options: Sequence[str], strict: bool = True
    ) -> None:
        super().__init__(run, script=script)
        self._options = list(options)
        self._strict = strict
        # Of this launcher alone: what has this name and is not known to it is cancelled.
        self._name = f"gridengine-{run.id}-{secrets.token_hex(3)}"
        self._slurm = Slurm(os.environ)
        self._at_once = AtOnce(self._slurm.environment, self._name, self.script, script)
        self.site_asked: Future[Site] | None = None
        self._known_site: Site | None = None
        self._guard: Guard | None = None
        self._in_doubt = False
        self._tasks: dict[Handle, Demand] = {}
        self._reasons: dict[Handle, str] = {}
        self._started: dict[Handle, str] = {}
        self._ending_since: dict[Handle, float] = {}
        self._absent: set[Handle] = set()

    def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
        """Have srun start the first workers, if there is room, and submit the others, in arrays no
        larger than the site allows.
        """
        self.largest = max(1, self._site().largest)
        handles = self._start_at_once(count, demand)
        try:
            return handles + (
                super().launch(count - len(handles), demand) if count > len(handles) else []
            )
        except (TryAgain, GridEngineError):
            if not handles:
                raise
            return handles  # what keeps the others from it is told at the next launch

    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        """Return what is submitted, and how the first workers are started where there is room at
        once.
        """
        plan = super().plan(count, demand)
        try:
            return replace(
                plan,
                request={
                    **plan.request,
                    "srun": self._at_once.command(self._options_for(demand), self._log(1, "\0")),
                },
            )
        except Unsuitable:
            return plan

    def _start_at_once(self, count: int, demand: Demand) -> list[Handle]:
        places = 0 if self._in_doubt else min(count, self._at_once.places)
        if not places:
            return []
        self.prepare()
        self._watch_over()
        logs = [self._log(self._launches + place, "\0") for place in range(1, places + 1)]
        self._launches += places
        jobs, self._in_doubt = self._at_once.start(self._options_for(demand), logs)
        handles = [Handle(job, log.replace("\0", "0")) for job, log in jobs.items()]
        self.launched(handles, demand)
        return handles

    def _site(self) -> Site:
        """Return what this Slurm allows; it is asked once.

        Raises:
            SchedulerUnavailable: it does not answer.
        """
        if self._known_site is None:
            try:
                asked, self.site_asked = self.site_asked, None
                self._known_site = (
                    asked.result() if asked is not None else site_for(self._slurm, self._options)
                )
            except (Missing, Trouble, Refused) as error:
                raise unavailable(str(error)) from error
        return self._known_site

    def _request(self, demand: Demand) -> list[str]:
        return sbatch_options(self._options, demand, settings().slurm)

    def _options_for(self, demand: Demand) -> list[str]:
        """Return all options for workers of this demand. Some memory is always asked for, where a
        job would else be given all of a node.
        """
        options = self._request(demand)
        memory = self._site().memory
        return [memory, *options] if memory and "--mem" not in things(options) else options

    def request(
        self, count: int, demand: Demand, log: Callable[[object], str]
    ) -> dict[str, list[str]]:
        """Return the command that submits."""
        tasks = count if self._site().largest else 0
        return {
            "argv": sbatch_command(
                self._options_for(demand), name=self._name, count=tasks, log=log, script=self.script
            )
        }

    def submit(self, count: int, demand: Demand, log: Callable[[object], str]) -> list[str]:
        """Submit one array, or one job where the site has no arrays."""
        command = self.request(count, demand, log)["argv"]
        self._watch_over()
        try:
            if self._in_doubt:
                self._sweep(self._slurm.jobs(self._name))
            return self._slurm.submit(command, count if self._site().largest else 0)
        except Missing as error:
            raise unavailable(str(error)) from error
        except Trouble as error:
            self._in_doubt = True
            raise TryAgain(f"Slurm cannot be reached: {error}") from error
        except Refused as error:
            raise refusal(str(error), self._options_for(demand), count) from error

    def _watch_over(self) -> None:
        """See that nothing of this launcher's outlives this process."""
        if self._guard is None:
            self._guard = Guard(
                self._slurm.cancel_command(self._name), self.files, self._slurm.environment
            )

    def launched(self, handles: Sequence[Handle], demand: Demand) -> None:
        """Note these new tasks."""
        self._tasks.update(dict.fromkeys(handles, demand))

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Report]:
        """Return what is known of these tasks, by one question for all, and by one more for each
        array of which some ended badly.
        """
        now = time.monotonic()
        try:
            rows = self._slurm.jobs(self._name)
            self._sweep(rows)
        except (Missing, Trouble, Refused) as error:
            logger.info("Slurm does not say how the workers are: %s", error)
            return {}
        asked = set(handles)
        # Who left in order is asked for no more.
        self._forget(
            [
                task
                for task in self._tasks.keys() - asked
                if task.id not in rows or rows[task.id].state in ENDS
            ]
        )
        reports: dict[Handle, Report] = {}
        ends: dict[Handle, tuple[str, End]] = {}
        for handle in (handle for handle in handles if handle in self._tasks):
            said = self._judge(handle, rows.get(handle.id), now)
            if isinstance(said, Report):
                reports[handle] = said
            elif said is not None:
                ends[handle] = said
        return reports | self._inquests(ends)

    def _sweep(self, rows: Mapping[str, Row]) -> None:
        """Cancel what has our name and is not ours any more: what could not be cancelled, or was
        submitted after all.
        """
        ours = {task.id for task in self._tasks}
        strays = [id for id, row in rows.items() if row.state in STATES and id not in ours]
        if strays:
            self._slurm.cancel(strays)
        self._in_doubt = False

    def _judge(
        self, handle: Handle, row: Row | None, now: float
    ) -> Report | tuple[str, End] | None:
        """Return a report on a task that lives, or how it ended, or None when nothing is
        certain.
        """
        if row is None:
            # Twice, lest one answer that lacks something passes for a death.
            if handle in self._absent:
                return "", PURGED
            self._absent.add(handle)
            return None
        self._absent.discard(handle)
        state = STATES.get(row.state)
        if state is not None:
            self._ending_since.pop(handle, None)
            if self._is_anew(handle, state, row) or self._waits_again(handle, row):
                return row.state, REQUEUED
            self._reasons[handle] = row.reason
            return self._waits(handle, row) if row.state == "PENDING" else Report(state)
        if row.state in ENDS:
            return row.state, ENDS[row.state]
        if now - self._ending_since.setdefault(handle, now) > ENDING_SECONDS:
            return row.state, End("it does not come to its end")
        return None

    def _waits(self, handle: Handle, row: Row) -> Report:
        never = self._strict and is_permanent(row.reason)
        error = impossible(row.reason, self._options_for(self._tasks[handle])) if never else None
        return Report(WorkerStatus.QUEUED, explanation(row.reason), error)

    def _is_anew(self, handle: Handle, state: WorkerStatus, row: Row) -> bool:
        """Return whether this task ran before, and waits again or was started again."""
        began = self._started.get(handle)
        if state is WorkerStatus.RUNNING:
            self._started.setdefault(handle, row.start)
        return began is not None and (
            state is WorkerStatus.QUEUED or (state is WorkerStatus.RUNNING and row.start != began)
        )

    def _waits_again(self, handle: Handle, row: Row) -> bool:
        """Return whether this task, which has a log, waits to be started again: it may have run
        between two looks.
        """
        return row.state == "PENDING" and row.reason == "BeginTime" and Path(handle.log).exists()

    def _inquests(self, ends: Mapping[Handle, tuple[str, End]]) -> dict[Handle, Report]:
        """Return a report on each task that ended, with what Slurm knows beyond its state."""
        arrays = {handle.id.partition("_")[0] for handle, (_, end) in ends.items() if not end.clean}
        known: dict[str, dict[str, str]] = {}
        try:
            for array in arrays:
                known.update(self._slurm.details(array))
        except (Missing, Trouble) as error:
            logger.info("Slurm does not say why workers ended: %s", error)
        reports = {}
        for handle, (state, end) in ends.items():
            fields = known.get(handle.id, {})
            if end is PURGED and fields.get("JobState") in STATES:
                continue
            reports[handle] = self._report(handle, state, end, fields)
        anew = [handle.id for handle, (_, end) in ends.items() if end is REQUEUED]
        self._forget(reports)
        self._cancel(anew)
        return reports

    def _report(self, handle: Handle, state: str, end: End, fields: Mapping[str, str]) -> Report:
        if end is PURGED and not Path(handle.log).exists():
            # Of those that wait, only those that somebody cancelled vanish at once.
            state, end = "CANCELLED", ENDS["CANCELLED"]
        words = end_words(state, end, fields)
        who = self._who_cancelled(handle) if end.deleted else ""
        words += f", by {who}" if who else ""
        host = fields.get("NodeList", "").replace("(null)", "")
        error = not_started(handle, words, deleted=end.deleted, host=host)
        failed = handle.id in self._at_once and not Path(handle.log).exists()
        if failed:
            self._at_once.stop(words)
        return Report(
            WorkerStatus.ENDED if end.clean else WorkerStatus.FAILED,
            words,
            error,
            deleted=end.deleted,
            fault=end.fault,
            blameless=end.blameless or failed,
        )

    def _who_cancelled(self, handle: Handle) -> str:
        if not self._site().accounts:
            return ""
        try:
            return self._slurm.cancelled_by(handle.id)
        except (Missing, Trouble, Refused) as error:
            logger.info("Slurm's accounts do not say who cancelled %s: %s", handle.id, error)
            return ""

    def _forget(self, handles: Iterable[Handle]) -> None:
        for handle in handles:
            self._tasks.pop(handle, None)
            self._at_once.forget(handle.id)
            self._absent.discard(handle)
            for known in (self._reasons, self._started, self._ending_since):
                known.pop(handle, None)

    def cancel(self, handles: Sequence[Handle]) -> None:
        """Cancel these tasks; when Slurm cannot be reached, as soon as it can."""
        ours = [handle for handle in handles if handle in self._tasks]
        if os.getpid() == self.owner:
            self._forget(ours)
            self._cancel([handle.id for handle in ours])

    def _cancel(self, ids: Sequence[str]) -> None:
        try:
            self._slurm.cancel(ids)
        except (Missing, Trouble, Refused) as error:
            logger.warning("%d cluster tasks could not be cancelled yet: %s", len(ids), error)
            self._in_doubt = True

    def explain(self, handles: Sequence[Handle]) -> str:
        """Return what the first of these tasks waits for: Slurm's reason, what it means and what
        can be done.
        """
        reason = self._reasons.get(handles[0], "") if handles else ""
        return explanation(reason) if reason else ""

    def close(self) -> None:
        """Cancel the tasks that are left; should Slurm not answer, that is tried for a minute
        more.
        """
        if os.getpid() != self.owner:
            return
        guard, self._guard = self._guard, None
        if guard is not None:
            try:
                self._slurm.run(*self._slurm.cancel_command(self._name), seconds=CLOSE_SECONDS)
            except (Missing, Trouble, Refused) as error:
                logger.warning(
                    "process %d still tries to cancel this run's jobs: %s", guard.leave(), error
                )
            else:
                guard.dismiss()
                self._at_once.close()
        self.script.unlink(missing_ok=True)


def site_for(slurm: Slurm, options: Sequence[str]) -> Site:
    """Return what a Slurm allows in the partitions that these options, or the settings, say."""
    partitions, _ = things(sbatch_options(options, ANY, settings().slurm)).get(
        "--partition", ("", "")
    )
    return slurm.site(partitions)


def in_background(ask: Callable[[], T]) -> Future[T]:
    """Return the answer to come of a question that a thread asks now."""
    answer: Future[T] = Future()

    def fetch() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=fetch, name="gridengine-slurm-site", daemon=True).start()
    return answer


def system_here() -> str:
    """Return "Slurm" when a job of this user would be taken.

    Raises:
        ConfigurationError: it would not, or a setting is wrong.
    """
    try:
        Slurm(os.environ).probe(sbatch_options([], ANY, settings().slurm))
    except Refused as error:
        raise SchedulerUnavailable(f"a job of this user is refused: {error}") from error
    except (Missing, Trouble) as error:
        raise SchedulerUnavailable(str(error)) from error
    return "Slurm"
