"""`gridengine runs`: list the named runs, and their progress."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import click

from gridengine.cli.console import console, print_json, table
from gridengine.journal import stored_runs
from gridengine.journal.stored_runs import RunSummary
from gridengine.watching.formats import size

COLUMNS = ("name", "begun", ">done", ">failed", ">left", ">size", "script")


@click.command(
    "runs",
    short_help="List the runs with a name.",
    epilog="""\b
Examples:
  gridengine runs
  gridengine runs --json | jq '.[] | select(.left > 0) | .name'
""",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="For scripts: a list of name, path, size, when, script, host, pid, done, failed, left, "
    "error.",
)
def command(as_json: bool) -> None:
    """List the runs with a name in the run directory, the latest first: when each was last begun,
    by which script, and how many of its calls since then are done, have failed, and are left.

    The exit status is 0 also when there are none.
    """
    found = [stored_runs.summary(path) for path in stored_runs.paths()]
    found.sort(key=lambda one: one.when, reverse=True)
    if as_json:
        print_json(found)
    elif found:
        console().print(table(COLUMNS, [_row(one) for one in found]))
        for one in found:
            for words in _notes(one):
                click.echo(words, err=True)
    else:
        click.echo('no run has a name: gridengine.map(f, xs, name="sweep") gives it one')


def _notes(one: RunSummary) -> Iterator[str]:
    """Yield what else there is to say of a run."""
    if one.error:
        yield one.error
    elif one.left:
        from gridengine.client.left_calls import dispatchers_with

        for folder in dispatchers_with(one.name, Path(one.path)):
            yield (
                f"{one.name}: the dispatcher {folder.name} has calls of it; `gridengine results "
                f"{one.name}` takes what has come of them"
            )


def _row(one: RunSummary) -> tuple[object, ...]:
    if one.error:
        return one.name, "", "", "", "", size(one.size), "cannot be read"
    begun = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.when))
    counts = (f"{count:,}" for count in (one.done, one.failed, one.left))
    return one.name, begun, *counts, size(one.size), one.script
