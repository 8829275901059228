"""The options by which `gridengine dispatcher start` is told which scheduler to use, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from gridengine.cli.resource_options import options
from gridengine.schedulers.registry import STARTERS

_BATCH = ("grid_engine", "slurm")
_TAKEN_BY: Mapping[str, tuple[str, ...]] = {
    "partition": ("slurm",),
    "account": ("slurm",),
    "qos": ("slurm",),
    "queue": ("grid_engine",),
    "parallel_environment": ("grid_engine",),
    "native": _BATCH,
    "prologue": _BATCH,
    "python": _BATCH,
    "job_name": _BATCH,
    "jobs_per_worker": _BATCH,
    "min_workers": _BATCH,
    "max_workers": STARTERS,
    "start_timeout": STARTERS,
}
"""Which schedulers take which of the options."""
_NAMES = {"job_name": "name"}
"""What the arguments are called that have another name than their option."""

_OPTIONS = (
    click.option(
        "--scheduler",
        type=click.Choice(STARTERS),
        help="What starts the workers (default: the setting, else the best that is here).",
    ),
    click.option(
        "--max-workers",
        type=click.IntRange(min=1),
        help="The most workers at a time (processes: the most calls).",
    ),
    click.option(
        "--min-workers",
        type=click.IntRange(min=0),
        help="How many workers are kept though they have nothing to do (default: none).",
    ),
    click.option("--partition", help="Slurm's --partition."),
    click.option("--account", help="Slurm's --account."),
    click.option("--qos", help="Slurm's --qos."),
    click.option("--queue", help="Grid Engine's -q."),
    click.option("--parallel-environment", metavar="PE", help="Grid Engine's -pe, as 'smp 4'."),
    click.option("--native", help="More options of the batch system, as they are."),
    click.option(
        "--prologue",
        multiple=True,
        metavar="LINE",
        help="A shell line that runs before each worker; may be given more than once.",
    ),
    click.option("--python", metavar="PATH", help="The Python on the nodes (default: this one)."),
    click.option("--job-name", help="What the batch system calls the jobs."),
    click.option(
        "--jobs-per-worker",
        type=click.IntRange(min=1),
        metavar="N",
        help="After how many calls a worker is replaced (default: never).",
    ),
    click.option(
        "--start-timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="How long calls may wait for their first worker, then they fail (default: for ever).",
    ),
)


scheduler_options = options(*_OPTIONS)
"""Gives a command the options above."""


def arguments_of(scheduler: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for the class of a scheduler of this name that were given.

    Raises:
        click.UsageError: it does not take one of them.
    """
    found = {name: value for name, value in given.items() if value not in (None, ())}
    for name in found:
        if scheduler not in _TAKEN_BY[name]:
            takers = " and ".join(_TAKEN_BY[name])
            raise click.UsageError(
                f"--{name.replace('_', '-')} is for {takers}, not for {scheduler}"
            )
    return {_NAMES.get(name, name): value for name, value in found.items()}
