"""`SlurmScheduler` and its launcher. `srun` starts the first workers at once if there is room;
`sbatch` submits the others, as for any batch system.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gridengine.errors import GridEngineError
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.batch_commands import Seen
from gridengine.schedulers.command_launcher import CommandLauncher
from gridengine.schedulers.command_scheduler import CommandScheduler
from gridengine.schedulers.launcher import Handle, LaunchesAhead, LaunchPlan, Report, TryAgain
from gridengine.schedulers.requests import site_settings
from gridengine.schedulers.slurm.commands import DrmaaWords, SlurmCommands
from gridengine.schedulers.slurm.srun import (
    ANSWER_SECONDS,
    END_SECONDS,
    Srun,
    Unsuitable,
    srun_command,
    srun_options,
)

logger = logging.getLogger("gridengine")


MOST_AT_ONCE = 4
"""The most srun processes of a launcher: each stays as long as its worker, and takes 10 MB."""
AGAIN_SECONDS = 60.0
"""How long to wait after srun found no room."""


class SlurmLauncher(CommandLauncher):
    """A launcher with `srun` for the first workers."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._of_srun: set[Handle] = set()
        self._running: list[Srun] = []
        self._unheard: set[str] = set()
        """The jobs whose srun was ended because their node never reached it."""
        self._again_at = -math.inf
        """When to try srun next."""

    def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
        """Start the first workers by srun, if there is room, and submit the others."""
        self.begin(demand)
        handles = self._launched_immediately(self._begin_immediately(count, demand), demand)
        try:
            return handles + (
                super().launch(count - len(handles), demand) if count > len(handles) else []
            )
        except (TryAgain, GridEngineError):
            if not handles:
                raise
            return handles  # the next launch tells the reason

    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        """Return the first submission, and srun's command for the first workers."""
        plan = super().plan(count, demand)
        try:
            srun = self._srun_command(self.options_for(demand), self.log_path(1, "\0"))
        except Unsuitable:
            return plan
        return plan._replace(request={**plan.request, "srun": srun})

    def _srun_command(self, options: Sequence[str], log: str) -> list[str]:
        """Return srun's command for a worker; raise Unsuitable if only sbatch can start it."""
        if not site_settings(self._any_site).srun:
            raise Unsuitable("the setting slurm.srun says so")
        if any(address.startswith("file:") for address in self.run.addresses):
            raise Unsuitable("nodes that cannot reach this machine do not reach srun")
        own = srun_options(options, self.runner.environment)
        shell = self.text.partition("\n")[0].removeprefix("#!").split()
        return srun_command(own, name=self.name, log=log, script=self.script, shell=shell)

    def launch_ahead(self, demand: Demand) -> LaunchesAhead:
        self.begin(demand)
        return partial(self._launched_immediately, self._begin_immediately(1, demand), demand)

    def _begin_immediately(self, count: int, demand: Demand) -> list[Srun]:
        """Begin to start workers by srun, if it may be able to; return the processes."""
        self._running = [one for one in self._running if one.is_running]
        room = min(count, MOST_AT_ONCE - len(self._running))
        # Not if workers are to outlive this process: srun's end with it.
        if room < 1 or self.in_doubt or self.run.epoch or time.monotonic() < self._again_at:
            return []
        self.prepare()
        options, begun = self.options_for(demand), list[Srun]()
        try:
            for _ in range(room):
                self.launches += 1
                log = self.log_path(self.launches, "\0")
                command = self._srun_command(options, log)
                self._running.append(Srun(command, self.runner.environment, log))
                begun.append(self._running[-1])
        except (Unsuitable, OSError, RuntimeError) as error:  # no process, or no thread
            logger.info("srun starts no workers: %s", error)
            self._again_at = time.monotonic() + AGAIN_SECONDS
        return begun

    def _launched_immediately(self, begun: Sequence[Srun], demand: Demand) -> list[Handle]:
        """Return the handles of the workers that these processes start."""
        if not begun:
            return []
        try:
            got = self._with_jobs(begun)
            # Not before srun, which would wait for a processor. If this process is killed before
            # this line, workers leave when their lease runs out, and end their jobs.
            self.start_guard()
        except BaseException:  # no process for the guard, or a Ctrl-C: nobody would watch these
            for one in begun:
                one.end()
            raise
        if len(got) < len(begun):
            self._again_at = time.monotonic() + AGAIN_SECONDS
        handles = [Handle(one.job, one.log.replace("\0", "0")) for one in got]
        self.launched(handles, demand)
        self._of_srun.update(handles)
        return handles

    def _with_jobs(self, begun: Sequence[Srun]) -> list[Srun]:
        """Wait for the answers of these srun processes; return those that have a job."""
        deadline = time.monotonic() + ANSWER_SECONDS
        late = [one for one in begun if not one.wait_for_answer(deadline)]
        for one in late:
            one.end()
        got = [one for one in begun if one.job and one not in late]
        self.in_doubt = bool(late)  # they may have jobs all the same
        if len(got) < len(begun):
            logger.info(
                "srun started %d of %d workers at once; sbatch is asked for the others: %s",
                len(got),
                len(begun),
                next(one.words for one in begun if one not in got),
            )
        return got

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Report]:
        """Return reports on these tasks; end each srun whose job starts nothing first."""
        for one in self._running:
            if one.is_unheard:
                self._unheard.add(one.job)
                one.end()
        return super().poll(handles)

    def amended(self, handle: Handle, end: Seen) -> Seen:
        """Return how a task ended. If srun started it and it left no log, or its node could not
        reach srun, srun starts no more.
        """
        if handle not in self._of_srun:
            return end
        if handle.id in self._unheard:
            end = replace(end, reason="its node could not open a connection to srun")
        elif Path(handle.log).exists():
            return end
        self._again_at = math.inf
        logger.info(
            "workers are left to sbatch from here on: one that srun started did nothing: %s",
            end.reason,
        )
        return replace(end, blameless=True)

    def close(self) -> None:
        """Delete all tasks, and wait for srun: killed at once, it blocks nodes for seconds."""
        super().close()
        deadline = time.monotonic() + END_SECONDS
        for one in self._running:
            if not one.wait_for_end(deadline):
                one.end()


class SlurmScheduler(CommandScheduler):
    """Runs calls in jobs of a Slurm.

    Args:
        partition, account, qos: `--partition`, `--account`, `--qos` (default: the settings', else
            Slurm's own).
        options: any option of sbatch by its name, with underscores for hyphens: `time="2:00:00"`,
            `mem="4G"`, `exclusive=True`.
        strict: whether a job that Slurm takes but can never start (it waits for `PartitionConfig`,
            `PartitionTimeLimit`, `BadConstraints` or the like) is an error at once. With False it
            waits, for somebody to change the site or the job.
    """

    _commands = SlurmCommands
    _drmaa_words = DrmaaWords
    _launcher_class = SlurmLauncher
    _start_at_once = _starts_ahead = True
