"""`SlurmScheduler`, and its launcher, which has `srun` start the first workers where there is room;
sbatch the others, as for any batch system.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

from gridengine.errors import GridEngineError
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.batch_commands import Seen
from gridengine.schedulers.command_launcher import CommandLauncher
from gridengine.schedulers.command_scheduler import CommandScheduler
from gridengine.schedulers.launcher import Handle, LaunchPlan, TryAgain
from gridengine.schedulers.slurm.commands import SlurmCommands
from gridengine.schedulers.slurm.srun import ImmediateWorkers, Unsuitable


class SlurmLauncher(CommandLauncher):
    """A launcher with `srun` for the first workers."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._of_srun: set[Handle] = set()

    @functools.cached_property
    def _immediate(self) -> ImmediateWorkers:
        return ImmediateWorkers(self.runner.environment, self.name, self.script, self.text)

    def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
        """Start the first workers by srun, if there is room, and submit the others."""
        self.begin(demand)
        handles = self._launch_immediately(count, demand)
        try:
            return handles + (
                super().launch(count - len(handles), demand) if count > len(handles) else []
            )
        except (TryAgain, GridEngineError):
            if not handles:
                raise
            return handles  # the next launch tells the reason

    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        """Return what would be submitted, and srun's command for the first workers."""
        plan = super().plan(count, demand)
        try:
            srun = self._immediate.command(self.options_for(demand), self.log_path(1, "\0"))
        except Unsuitable:
            return plan
        return plan._replace(request={**plan.request, "srun": srun})

    def _launch_immediately(self, count: int, demand: Demand) -> list[Handle]:
        # Not if workers are to outlive this process: srun's end with it.
        room = 0 if self.in_doubt or self.run.epoch else min(count, self._immediate.room)
        if not room:
            return []
        self.prepare()
        self.start_guard()
        logs = [self.log_path(self.launches + place, "\0") for place in range(1, room + 1)]
        self.launches += room
        jobs, self.in_doubt = self._immediate.start(self.options_for(demand), logs)
        handles = [Handle(job, log.replace("\0", "0")) for job, log in jobs.items()]
        self.launched(handles, demand)
        self._of_srun.update(handles)
        return handles

    def amended(self, handle: Handle, end: Seen) -> Seen:
        """Return how a task ended. If srun started it and it left no log, srun starts no more."""
        if handle not in self._of_srun or Path(handle.log).exists():
            return end
        self._immediate.stop(end.reason)
        return replace(end, blameless=True)

    def close(self) -> None:
        super().close()
        if self._of_srun:
            self._immediate.close()


class SlurmScheduler(CommandScheduler):
    """Runs calls in jobs of a Slurm.

    Args:
        partition, account, qos: `--partition`, `--account`, `--qos` (default: the settings', else
            Slurm's own).
        options: any option of sbatch by its name, with underscores for hyphens: `time="2:00:00"`,
            `mem="4G"`, `exclusive=True`.
        strict: a job that Slurm takes and can never start (it waits for `PartitionConfig`,
            `PartitionTimeLimit`, `BadConstraints` or the like) is an error at once; with False it
            waits, for somebody to change the site or the job.
    """

    _commands = SlurmCommands
    _launcher_class = SlurmLauncher
    _start_at_once = True
