"""`gridengine forget`: delete named runs."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import click

from gridengine.cli.completion import run_names
from gridengine.errors import JournalError
from gridengine.journal import stored_runs
from gridengine.watching.formats import size
from gridengine.watching.run_lookup import own_run_file

UNITS = {"h": 3600, "d": 86400, "w": 7 * 86400}


def _seconds(context: click.Context, option: click.Parameter, given: str | None) -> float | None:
    if given is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([hdw])", given)
    if found is None:
        raise click.BadParameter("a number with h, d or w for hours, days or weeks, as 30d")
    return float(found[1]) * UNITS[found[2]]


@click.command(
    "forget",
    short_help="Delete runs with a name.",
    epilog="""\b
Examples:
  gridengine forget sweep
  gridengine forget sweep night-3 --yes
  gridengine forget --older 30d
""",
)
@click.argument("names", shell_complete=run_names, nargs=-1, metavar="[NAME]...")
@click.option(
    "--older",
    callback=_seconds,
    metavar="AGE",
    help="Runs last written longer ago, as 12h, 30d, 4w; without NAME, of all runs.",
)
@click.option("--journal", help="Where the runs NAME are, if not in the run directory.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(names: tuple[str, ...], older: float | None, journal: str | None, yes: bool) -> None:
    """Delete the runs of these names, or at these paths, with all their results.

    The exit status is 1 when a run does not exist, or is not deleted because a script uses it.
    """
    if not names and older is None:
        raise click.UsageError("give the names of runs, or --older")
    if journal is not None and not names:
        raise click.UsageError("give the names of the runs that are there")
    named = list(dict.fromkeys(own_run_file(name, journal) for name in names))
    paths = named or stored_runs.paths()
    if older is not None:
        begun = time.time()
        paths = [path for path in paths if begun - stored_runs.size_and_time(path)[1] > older]
    if not paths:
        click.echo("there is none to delete")
        return
    for path in paths:
        click.echo(f"{path}  {size(stored_runs.size_and_time(path)[0])}")
    if not yes:
        click.confirm("Delete with all results?", abort=True)
    sys.exit(1 if [path for path in paths if not _forgotten(path)] else 0)


def _forgotten(path: Path) -> bool:
    try:
        stored_runs.forget(path)
    except JournalError as error:
        click.echo(str(error), err=True)
        return False
    return True
