"""Workers on a cluster that runs Slurm, through its own commands."""

from __future__ import annotations

from gridengine.schedulers.command_scheduler import CommandScheduler
from gridengine.schedulers.slurm.commands import SlurmCommands
from gridengine.schedulers.slurm.launcher import SlurmLauncher


class SlurmScheduler(CommandScheduler):
    """Runs calls in jobs of a Slurm.

    Args:
        partition, account, qos: `--partition`, `--account`, `--qos` (default: the settings', else
            Slurm's own).
        options: any option of sbatch by its name, with underscores for hyphens: `time="2:00:00"`,
            `mem="4G"`, `exclusive=True`.
        strict: what Slurm takes and can never start (it waits for `PartitionConfig`,
            `PartitionTimeLimit`, `BadConstraints` or the like) is an error at once; with False it
            waits, for somebody to change the site or the job.
    """

    _commands = SlurmCommands
    _launcher_class = SlurmLauncher
    _start_at_once = True
