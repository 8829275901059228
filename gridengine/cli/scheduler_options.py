"""The options that choose and configure a scheduler, and those for its workers' resources."""

from __future__ import annotations

import contextlib
import functools
import operator
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gridengine.arguments import parse_gigabytes
from gridengine.cli.console import time_of
from gridengine.errors import ConfigurationError
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.kinds import Cores, GPUs, Memory, Token, WTime
from gridengine.schedulers.base import TRANSPORTS
from gridengine.schedulers.default import default_entry
from gridengine.schedulers.registry import (
    HAND_STARTED,
    OF_DISPATCHERS,
    STARTERS,
    SchedulerEntry,
    entry_of,
)
from gridengine.schedulers.worker_command import container_words
from gridengine.settings.schema import TABLES, is_of_site

if TYPE_CHECKING:
    _Choice = click.Choice[str]
else:
    _Choice = click.Choice  # of click 8.1 no generic one
F = TypeVar("F", bound=Callable[..., Any])


def _options(*those: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds these options to a command, in this order."""
    return lambda command: functools.reduce(lambda it, one: one(it), reversed(those), command)


_BATCH = tuple(TABLES)
_OF_SITES = ("partition", "account", "qos", "queue", "parallel_environment", "exclude_hosts")
"""Options that are also settings of some batch systems."""
_TAKEN_BY: Mapping[str, tuple[str, ...]] = {
    **{
        option: tuple(name for name, site in TABLES.items() if option in site.__struct_fields__)
        for option in _OF_SITES
    },
    "transport": (*_BATCH, HAND_STARTED.name),
    "max_workers": STARTERS,
    "start_timeout": STARTERS,
}
"""The schedulers that take an option. Any other option is for all batch systems alone."""
_NAMES = {"job_name": "name"}
"""Arguments whose name differs from their option's."""


class SchedulerChoice(_Choice):
    """One of the schedulers of this package, or one of a site's own."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        of_site = value not in self.choices and is_of_site(value)
        return value if of_site else super().convert(value, param, ctx)


def _command(text: str) -> str | list[str]:
    """Return a path, or the words of a command as a shell reads them: a list if several."""
    if Path(text).exists():
        return text
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not a command: {error}") from None
    return words if len(words) > 1 else text


def _container(text: str) -> list[str]:
    """Return the words of a command that ends with an image, whose path is absolute."""
    try:
        return list(container_words("--container", _command(text)))
    except ConfigurationError as error:
        raise click.BadParameter(str(error)) from None


_HELP = "The scheduler that starts the workers (default: the setting, else the best that is here"
_which_scheduler = click.option("--scheduler", type=SchedulerChoice(STARTERS), help=f"{_HELP}).")
_which_of_dispatcher = click.option(
    "--scheduler",
    type=SchedulerChoice(OF_DISPATCHERS),
    help=f"{_HELP}; none: you start them by hand).",
)
_NODES = (
    click.option(
        "--prologue",
        multiple=True,
        metavar="LINE",
        help="A shell line that runs before each worker; may be given more than once.",
    ),
    click.option(
        "--python",
        type=_command,
        metavar="COMMAND",
        help="The Python on the nodes, or a command that acts as one, such as 'uv run python' "
        "(default: this one).",
    ),
    click.option(
        "--container",
        type=_container,
        metavar="IMAGE",
        help="An image of apptainer that workers run in, or the words of its command, such as "
        "'apptainer exec --nv image.sif'.",
    ),
)
node_options = _options(*_NODES)
"""Adds the options for the environment that workers have on the nodes."""
_how_it_starts = (
    click.option(
        "--max-workers",
        type=click.IntRange(min=1),
        help="The most workers at a time (processes: the most calls).",
    ),
    click.option(
        "--min-workers",
        type=click.IntRange(min=0),
        help="How many workers stay even when they are idle (default: none).",
    ),
    click.option("--partition", help="Slurm's --partition."),
    click.option("--account", help="The account to which the jobs are charged."),
    click.option("--qos", help="Slurm's --qos."),
    click.option("--queue", help="The queue that workers wait in."),
    click.option(
        "--parallel-environment", metavar="PE", help="Grid Engine's -pe, such as 'smp 4'."
    ),
    click.option(
        "--exclude-hosts", metavar="HOSTS", help="Hosts that workers may not run on, as n1,n2."
    ),
    click.option("--native", help="More options of the batch system, passed on unchanged."),
    *_NODES,
    click.option(
        "--transport",
        type=click.Choice(TRANSPORTS),
        help="How messages travel between dispatcher and workers (default: the setting, tcp); "
        "files: in the run directory, where nodes cannot reach this machine.",
    ),
    click.option(
        "--shared-files/--no-shared-files",
        default=None,
        help="Whether nodes see this machine's files (default: the setting, else yes); if not, "
        "HTCondor and PBS bring what workers need.",
    ),
    click.option("--job-name", help="The name of the jobs in the batch system."),
    click.option(
        "--jobs-per-worker",
        type=click.IntRange(min=1),
        metavar="N",
        help="After how many calls a worker is replaced (default: never).",
    ),
    click.option(
        "--start-timeout",
        type=time_of(),
        help="How long calls may wait for their first worker before they fail (default: for ever).",
    ),
)
scheduler_options = _options(_which_scheduler, *_how_it_starts)
"""Adds the options for the scheduler and its workers."""
dispatcher_options = _options(_which_of_dispatcher, *_how_it_starts)
"""Adds the same options for a dispatcher, which need not start any workers."""
_KINDS: Mapping[str, Callable[[Any], Resource]] = {
    "cores": Cores,
    "memory": Memory,
    "walltime": WTime,
    "gpus": GPUs,
    "token": Token,
}


def _gigabytes(text: str) -> float:
    with contextlib.suppress(ValueError):
        return float(text)
    try:
        return parse_gigabytes("memory", text)
    except ConfigurationError:
        words = (
            f"{text!r} is not an amount of memory; write GB, such as 1.5, or a unit, such as 512M"
        )
        raise click.BadParameter(words) from None


_held = (
    click.option("--cores", type=click.IntRange(min=1), help="Cores of each worker."),
    click.option(
        "--memory",
        type=_gigabytes,
        metavar="GB",
        help="Memory of each worker, such as 1.5 or 512M.",
    ),
    click.option("--gpus", type=click.IntRange(min=1), help="GPUs of each worker."),
    click.option("--token", help="A label of each worker; on a cluster, its name in the settings."),
)
held_options = _options(*_held)
"""Adds the options for the resources that workers have as long as they stay."""
resource_options = _options(
    *_held,
    click.option(
        "--time",
        "walltime",
        type=time_of(),
        help="How long each call may take: 2h or 2:00:00, for example, or seconds.",
    ),
)
"""Adds the same options, and the walltime of calls."""


def arguments_of(scheduler: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given arguments for the scheduler of this name.

    Raises:
        click.UsageError: the scheduler does not take one of them.
    """
    found = {name: value for name, value in given.items() if value not in (None, ())}
    for name in found:
        takers = _TAKEN_BY.get(name, _BATCH)
        if scheduler not in takers and scheduler in OF_DISPATCHERS:
            raise click.UsageError(
                f"--{name.replace('_', '-')} is for {', '.join(takers)}, not for {scheduler}"
            )
    return {_NAMES.get(name, name): value for name, value in found.items()}


def resources_of(given: dict[str, Any]) -> Resource:
    """Take the options of `resource_options` out of `given`, and return the resources they name."""
    said = [(kind, given.pop(name, None)) for name, kind in _KINDS.items()]
    resources = (kind(value) for kind, value in said if value is not None)
    return functools.reduce(operator.and_, resources, ZERO)


def entry_for(name: str | None) -> SchedulerEntry:
    """Return the scheduler of this name, by default that of the settings, else the best here."""
    return default_entry()[0] if name is None else entry_of(name)
