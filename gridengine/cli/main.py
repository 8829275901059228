"""The command line, with the commands `settings`, `up` and `doctor`. Other commands have modules of
their own names. Nothing is decided here.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import logging
import math
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gridengine._version import __version__
from gridengine.cli.completion import watched_names
from gridengine.cli.console import console, folded, shown, text
from gridengine.cli.scheduler_options import SchedulerChoice, resource_options, resources_of
from gridengine.errors import GridEngineError
from gridengine.schedulers.registry import BY_NAME, STARTERS, entry_of
from gridengine.settings.files import nearest

if TYPE_CHECKING:
    from rich.console import Console

    from gridengine.schedulers.base import Scheduler
    from gridengine.schedulers.checks import Finding


WATCHING = ("calls", "cancel", "drain", "explain", "logs", "ls", "page", "report", "top")
RUNS = ("forget", "results", "retry", "runs")
DISPATCHERS = ("dispatcher", "scale", "worker")
"""The commands in modules of their own, which are imported on demand."""


class _Commands(click.Group):
    """Turns errors of this package and of files into a line on standard error and exit status 1, as
    click does with its own errors; a Ctrl-C becomes 130, as in shells.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *WATCHING, *RUNS, *DISPATCHERS])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in (*WATCHING, *RUNS, *DISPATCHERS):
            return super().get_command(ctx, cmd_name)
        found: click.Command = importlib.import_module(f"gridengine.cli.{cmd_name}").command
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = nearest(args[0], self.list_commands(ctx))
            if near is None:
                raise
            raise click.UsageError(f"{error.message} {near!r} is one.", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo(err=True)
            sys.exit(130)
        except GridEngineError as error:
            raise click.ClickException(folded(str(error), sys.stderr)) from error
        except OSError as error:
            if error.filename is None:  # a closed pipe, which click handles; or a fault of ours
                raise
            raise click.ClickException(f"{error.filename}: {error.strerror}") from error


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  gridengine doctor                       what is this machine, and does it work?
  gridengine doctor --scheduler slurm     is Slurm here, and does it take my jobs?
  gridengine settings                     each setting, and where it comes from
  gridengine up sweep -n 4                four more workers for a script that runs
  gridengine ls                           which of my scripts run, and how far are they?
  gridengine explain                      why does nothing start?
  gridengine runs                         which runs have a name, and what is left of them?
""",
)
@click.version_option(__version__, prog_name="gridengine")
def main() -> None:
    """Run Python functions on this machine's processes or on a batch cluster.

    The exit status is 0 when a command has done its work; 1 when it could not, with a line on
    standard error; 2 when its arguments are wrong; 130 after Ctrl-C. The --help of each command
    lists other exit statuses.
    """
    logging.basicConfig(format="gridengine: %(message)s", level=logging.WARNING)


@main.command(
    short_help="Show each setting, and where it comes from.",
    epilog="""\b
Examples:
  gridengine settings
  gridengine settings --json | jq .max_workers.value
""",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="For scripts: an object of names, each with value and by.",
)
def settings(as_json: bool) -> None:
    """Show each setting, and where it comes from: a file and its line, an environment variable, or
    the default.

    Files are read in this order, the later over the earlier: ~/.config/gridengine/settings.toml;
    gridengine.toml in this folder, or the nearest above it.

    The exit status is 1 when a file or a variable has an unknown setting, or a wrong value.
    """
    from gridengine.settings.files import describe
    from gridengine.settings.locations import projects_file, users_file
    from gridengine.settings.values import sources

    said = sources()
    if as_json:
        click.echo(
            json.dumps(
                # JSON has no infinity.
                {
                    name: {"value": None if one.value == math.inf else one.value, "by": one.by}
                    for name, one in said.items()
                },
                indent=1,
                default=str,
            )
        )
        return
    from rich.table import Table

    table = Table("setting", "value", "said by", box=None, pad_edge=False, header_style="bold")
    for name, one in said.items():
        style = "dim" if one.by == "default" else ""
        table.add_row(text(name), text(shown(one.value)), text(one.by, style))
    terminal = console()
    terminal.print(table)
    for whose, path in (
        ("yours", users_file(os.environ)),
        ("the project's", projects_file(os.environ)),
    ):
        terminal.print(text(f"settings file, {whose}: {describe(path)}", "dim"))


@main.command(
    short_help="Start more workers for a script.",
    epilog="""\b
Examples:
  gridengine up --scheduler processes
  gridengine up ~/.gridengine/runs/20261121-*/ --scheduler processes
  gridengine up sweep.py -n 10 --scheduler slurm --cores 4 --memory 8 --time 2:00:00
  gridengine up 4242 -n 10 --scheduler grid_engine --cores 4 --dry
""",
)
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=watched_names)
@click.option(
    "-n",
    "--workers",
    "count",
    type=click.IntRange(min=1),
    help="How many for each run (default: one; processes: for all processors).",
)
@click.option(
    "--scheduler",
    type=SchedulerChoice(STARTERS),
    help="The scheduler that starts them (default: the one that starts its other workers).",
)
@resource_options
@click.option(
    "--dry", is_flag=True, help="Show what would be submitted, script included, and do nothing."
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="With --dry, for scripts: count, request and script of each run.",
)
def up(
    names: tuple[str, ...],
    count: int | None,
    scheduler: str | None,
    *,
    dry: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Start workers for the dispatcher NAME. They stay until the dispatcher ends or Ctrl-C stops
    them.

    NAME names a script that runs on a cluster, or a stand-alone dispatcher: by its name, process
    id, run's folder or connection file. Several may be named; those that do not run are left out.
    Without NAME it is the running script that began last. With --dry none need run.

    The exit status is 1 when a worker has failed, or could not be started.
    """
    from gridengine.cli import up

    say = functools.partial(click.echo, err=True)
    no_run = dry and not names
    files = up.files_for_dry_run(say) if no_run else up.connection_files(names, say)
    resources = resources_of(**asked)
    with contextlib.ExitStack() as stack:
        said = [scheduler or up.scheduler_of(file) for file in files]
        made = {one: stack.enter_context(_scheduler(one, count)) for one in set(said)}
        chosen = [made[one] for one in said]
        counts = [count or up.default_count(*each) for each in zip(chosen, files, strict=True)]
        if dry:
            for one, file, number in zip(chosen, files, counts, strict=True):
                plan = up.plan(one, file, number, resources)
                click.echo(json.dumps(plan._asdict(), indent=1) if as_json else str(plan))
            return
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
        groups = [
            stack.enter_context(up.extra_workers(one, file, resources, _say_of(file, files)))
            for one, file in zip(chosen, files, strict=True)
        ]
        up.run_all(list(zip(groups, counts, strict=True)))
        sys.exit(1 if any(workers.failed for workers in groups) else 0)


def _say_of(file: Path, files: Sequence[Path]) -> Callable[[str], None]:
    """Return a function that prints a line about the workers of one of these runs."""
    run = f"{file.parent.name}: " if len(files) > 1 else ""
    return lambda line: click.echo(f"{run}{line}")


def _scheduler(name: str | None, count: int | None) -> Scheduler:
    from gridengine.schedulers.default import default_entry

    entry = default_entry()[0] if name is None else entry_of(name)
    if not entry.starts_workers:
        raise click.UsageError(f"{entry.name} starts no workers; say --scheduler")
    return entry.make(max_workers=count)


@main.command(
    short_help="Check which schedulers work here.",
    epilog="""\b
Examples:
  gridengine doctor
  gridengine doctor --scheduler grid_engine --wait 600
  gridengine doctor --json
""",
)
@click.option(
    "--scheduler",
    type=SchedulerChoice(tuple(BY_NAME)),
    help="Look at this one alone, and fail when it is not here (default: the setting, else all).",
)
@click.option(
    "--wait",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds for each trivial job.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="For scripts: ok, and a list of findings with of, check, state, text, remedy.",
)
def doctor(scheduler: str | None, wait: float, as_json: bool) -> None:
    """Check this machine: which schedulers answer, what they have, and whether a trivial job
    returns.

    The exit status is 1 when something that is here is broken, or when the scheduler that
    --scheduler or the setting `scheduler` names is not here.
    """
    from gridengine.cli import doctor as looks

    found: list[Finding] = []
    terminal = console()
    for finding in looks.examine(scheduler, os.environ, wait=wait):
        found.append(finding)
        if not as_json:
            _show(terminal, finding)
    broken = looks.is_broken(found)
    if as_json:
        click.echo(looks.as_json(found, broken))
    sys.exit(1 if broken else 0)


def _show(terminal: Console, finding: Finding) -> None:
    style = {"ok": "green", "absent": "dim", "broken": "bold red", "slow": "yellow"}[
        finding.state.value
    ]
    line = text(f"{finding.state.value:7}", style)
    line.append(
        f"{finding.of}: {finding.check}: {finding.text}", style="dim" if style == "dim" else ""
    )
    terminal.print(line, soft_wrap=True)
    if finding.remedy:
        terminal.print(text(f"        try: {finding.remedy}"), soft_wrap=True)
