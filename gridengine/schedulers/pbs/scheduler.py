"""Workers in jobs of a PBS, through its own commands."""

from __future__ import annotations

from gridengine.schedulers.command_scheduler import CommandScheduler
from gridengine.schedulers.pbs.commands import PBSCommands


class PBSScheduler(CommandScheduler):
    """Runs calls in jobs of an OpenPBS or a PBS Professional.

    Tried by hand with OpenPBS 23.06 on one machine; not run by us on a cluster, nor in our tests,
    nor with PBS Professional.

    Args:
        queue, account, project, priority: `-q`, `-A`, `-P`, `-p` (default: the settings', else
            PBS's own).
        options: any resource by its name, as `walltime="2:00:00"`, `mem="4gb"`,
            `select="1:ncpus=4:mem=8gb"`, `place="excl"`; other options of qsub go into `native`.
        strict: what PBS takes and can never start ("Can Never Run") is an error at once; with False
            it waits, for somebody to change the site or the job.
    """

    _commands = PBSCommands
