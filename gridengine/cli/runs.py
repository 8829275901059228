"""`gridengine runs`, `retry` and `forget`: list named runs, run their calls again, delete them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from gridengine.arguments import seconds_in
from gridengine.cli.completion import dispatcher_names, run_names
from gridengine.cli.console import command, console, echo, json_option, print_json, table
from gridengine.cli.scheduler_options import arguments_of, entry_for, scheduler_options
from gridengine.display import plural, printable
from gridengine.errors import JournalError, short_repr
from gridengine.journal import run_reader
from gridengine.journal.run_reader import RunSummary
from gridengine.schedulers.base import Scheduler
from gridengine.watching.phrases import size

COLUMNS = ("name", "begun", ">done", ">failed", ">left", ">size", "script")


@command("runs", short_help="List the runs with a name.")
@json_option(": a list of name, path, size, when, script, host, pid, done, failed, left, error")
def runs_command(as_json: bool) -> None:
    """List the runs with a name in the run directory, the latest first: when each was last begun,
    by which script, and how many of its calls since then are done, have failed, and are left.

    The exit status is 0 also when there are none.

    Examples:
      gridengine runs
      gridengine runs --json | jq '.[] | select(.left > 0) | .name'
    """
    found = [run_reader.summary(path) for path in run_reader.paths()]
    found.sort(key=lambda one: one.when, reverse=True)
    if as_json:
        print_json(found)
    elif found:
        console().print(table(COLUMNS, [_row(one) for one in found]))
        for one in found:
            for words in _notes(one):
                echo(words, err=True)
    else:
        echo('no run has a name: gridengine.map(f, xs, name="sweep") gives it one')


def _notes(one: RunSummary) -> Iterator[str]:
    """Yield remarks: why a run cannot be read, and which dispatchers have calls of it."""
    if one.error:
        yield one.error
    elif one.left:
        from gridengine.client.outliving_calls import dispatchers_with

        for folder in dispatchers_with(one.name, Path(one.path)):
            yield (
                f"{one.name}: the dispatcher {folder.name} has calls of it; `gridengine results "
                f"{one.name}` takes the results that they have by now"
            )


def _row(one: RunSummary) -> tuple[object, ...]:
    if one.error:
        return one.name, "", "", "", "", size(one.size), "cannot be read"
    begun = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.when))
    counts = (f"{count:,}" for count in (one.done, one.failed, one.left))
    return one.name, begun, *counts, size(one.size), one.script


MOST_TOLD = 10


@command("retry", short_help="Run calls of a run with a name again.")
@click.argument("name", shell_complete=run_names)
@click.option("--failed", is_flag=True, help="Only calls that have failed.")
@click.option(
    "--dispatcher",
    metavar="NAME",
    shell_complete=dispatcher_names,
    help="Have a stand-alone dispatcher run them.",
)
@scheduler_options
@click.option("--journal", help="Where the run is, if not in the run directory.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def retry_command(
    name: str, failed: bool, dispatcher: str | None, journal: str | None, yes: bool, **given: Any
) -> None:
    """Run failed calls of the run NAME again, and without --failed also those that have no result.
    The run stores the new outcomes in the place of the old ones. Whatever the calls write elsewhere
    they write again, which cannot be undone; so you are asked first.

    NAME is whatever `gridengine runs` prints of it, or `gridengine ls` of the dispatcher that runs
    its calls. A script that waits for its calls has already seen their failures: it must end first,
    or retry by itself (retries=).

    The exit status is 1 when a call fails again, or when the run cannot be used.

    Examples:
      gridengine retry sweep --failed
      gridengine retry sweep --failed --scheduler slurm --max-workers 20 --yes
      gridengine retry sweep --dispatcher sweeps      calls without a result, too
    """
    from gridengine.api.named_runs import run_named  # imports whatever runs calls
    from gridengine.client.outliving_calls import dispatchers_with

    run = run_named(name, journal=journal)
    name = run.name
    count = run.failed if failed else run.failed + run.left
    if not count:
        echo(f"{name}: nothing has failed{'' if failed else ', and nothing is left'}")
        return
    for folder in [] if failed else dispatchers_with(name, run.path):
        if folder.name != dispatcher:
            words = "has calls of it without a result, and makes them too while it runs"
            echo(f"the dispatcher {folder.name} {words}", err=True)
    if dispatcher and any(given.values()):
        raise click.UsageError("either --dispatcher, or options of a scheduler")
    if not yes:
        click.confirm(printable(f"Run {plural(count, 'call')} of {name} again?"), abort=True)
    with _scheduler(dispatcher, given) as scheduler:
        results = run.resubmit(failed_only=failed, scheduler=scheduler)
    errors = [one for one in results if isinstance(one, BaseException)]
    echo(f"{name}: {plural(len(results) - len(errors), 'call')} done, {len(errors)} failed")
    for error in errors[:MOST_TOLD]:
        echo(f"  {short_repr(error)}", err=True)
    sys.exit(1 if errors else 0)


def _scheduler(dispatcher: str | None, given: dict[str, Any]) -> Scheduler:
    if dispatcher:
        from gridengine.api.client import Client  # imports ZeroMQ

        return Client(dispatcher)
    entry = entry_for(given.pop("scheduler"))
    return entry.make(**arguments_of(entry.name, given))


HOUR = 3600.0


def _seconds(context: click.Context, option: click.Parameter, given: str | None) -> float | None:
    seconds = None if given is None else seconds_in(given)
    if given is not None and (seconds is None or 0 < seconds < HOUR):  # 1m: a month?
        raise click.BadParameter(
            "a number with its unit, such as 12h, 30d or 4 weeks; an hour at least"
        )
    return seconds


@command("forget", short_help="Delete runs with a name.")
@click.argument("names", shell_complete=run_names, nargs=-1, metavar="[NAME]...")
@click.option(
    "--older",
    callback=_seconds,
    metavar="AGE",
    help="Only runs last written longer ago than this, such as 12h, 30d, 4w; of all, without NAME.",
)
@click.option("--journal", help="Where the runs NAME are, if not in the run directory.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def forget_command(
    names: tuple[str, ...], older: float | None, journal: str | None, yes: bool
) -> None:
    """Delete the runs of these names, or at these paths, with all their results.

    The exit status is 1 when a run does not exist, or is not deleted because a script uses it.

    Examples:
      gridengine forget sweep
      gridengine forget sweep night-3 --yes
      gridengine forget --older 30d
    """
    if not names and older is None:
        raise click.UsageError("give the names of runs, or --older")
    if journal is not None and not names:
        raise click.UsageError("give the names of the runs that are there")
    from gridengine.watching.run_lookup import own_run_file

    named = list(dict.fromkeys(own_run_file(name, journal) for name in names))
    paths = named or run_reader.paths()
    if older is not None:
        begun = time.time()
        paths = [path for path in paths if begun - run_reader.size_and_time(path)[1] > older]
    if not paths:
        echo("there is none to delete")
        return
    for path in paths:
        echo(f"{path}  {size(run_reader.size_and_time(path)[0])}")
    if not yes:
        click.confirm("Delete with all results?", abort=True)
    sys.exit(1 if [path for path in paths if not _forgotten(path)] else 0)


def _forgotten(path: Path) -> bool:
    try:
        run_reader.forget(path)
    except JournalError as error:
        echo(str(error), err=True)
        return False
    return True
