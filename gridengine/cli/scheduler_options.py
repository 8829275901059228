"""The options by which commands are told which scheduler to use, and how, and what its workers
hold.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from gridengine.errors import ConfigurationError
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.kinds import Cores, GPUs, Memory, Token, WTime
from gridengine.resources.units import parse_gigabytes
from gridengine.schedulers.registry import OF_DISPATCHERS, STARTERS
from gridengine.settings.schema import TABLES

F = TypeVar("F", bound=Callable[..., Any])


def _options(*those: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return what gives a command these options, in this order."""
    return lambda command: functools.reduce(lambda it, one: one(it), reversed(those), command)


_BATCH = tuple(TABLES)
_OF_SITES = ("partition", "account", "qos", "queue", "parallel_environment")
"""Options for what the settings of some batch systems say too."""
_TAKEN_BY: Mapping[str, tuple[str, ...]] = {
    **{
        option: tuple(name for name, site in TABLES.items() if option in site.__struct_fields__)
        for option in _OF_SITES
    },
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

_HELP = "What starts the workers (default: the setting, else the best that is here"
_which_scheduler = click.option("--scheduler", type=click.Choice(STARTERS), help=f"{_HELP}).")
_which_of_dispatcher = click.option(
    "--scheduler", type=click.Choice(OF_DISPATCHERS), help=f"{_HELP}; none: people do, by hand)."
)
_how_it_starts = (
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
    click.option("--account", help="Whose account the jobs go to."),
    click.option("--qos", help="Slurm's --qos."),
    click.option("--queue", help="The queue that workers wait in."),
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
scheduler_options = _options(_which_scheduler, *_how_it_starts)
"""Gives a command the options by which it is told what starts workers, and how."""
dispatcher_options = _options(_which_of_dispatcher, *_how_it_starts)
"""As `scheduler_options`, for a dispatcher, which need not start any workers."""
_held = (
    click.option("--cores", type=click.IntRange(min=1), help="Cores of each worker."),
    click.option("--memory", metavar="GB", help="Memory of each worker, as 1.5 or 512M."),
    click.option("--gpus", type=click.IntRange(min=1), help="GPUs of each worker."),
    click.option("--token", help="A label of each worker; on a cluster, its name in the settings."),
)
held_options = _options(*_held)
"""Gives a command the options by which it is told what workers hold for as long as they stay."""
resource_options = _options(
    *_held,
    click.option(
        "--time",
        "walltime",
        metavar="TIME",
        help="How long each call may take, as 2:00:00 or in seconds.",
    ),
)
"""As `held_options`, and for how long calls may take."""


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


def resources_of(
    *,
    cores: int | None,
    memory: str | None,
    gpus: int | None,
    token: str | None,
    walltime: str | None = None,
) -> Resource:
    """Return what these options say.

    Raises:
        click.BadParameter: a time, or an amount of memory, is none.
    """
    time: float | str | None = (
        walltime if walltime is None or ":" in walltime else _number("--time", walltime)
    )
    kinds: tuple[Callable[[Any], Resource], ...] = (Cores, Memory, WTime, GPUs, Token)
    gigabytes = None if memory is None else _gigabytes(memory)
    given = zip(kinds, (cores, gigabytes, time, gpus, token), strict=True)
    return functools.reduce(
        operator.and_, (kind(value) for kind, value in given if value is not None), ZERO
    )


def _gigabytes(text: str) -> float:
    with contextlib.suppress(ValueError):
        return float(text)
    try:
        return parse_gigabytes("memory", text)
    except ConfigurationError:
        raise click.BadParameter(
            f"{text!r} is no amount of memory; write GB, as 1.5, or a unit, as 512M",
            param_hint="--memory",
        ) from None


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no time; write 2:00:00, or seconds", param_hint=name
        ) from None
