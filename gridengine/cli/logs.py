"""`gridengine logs`: show the output of workers and of their calls."""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import click

from gridengine.cli.completion import seen_names
from gridengine.cli.console import command, echo
from gridengine.errors import GridEngineError
from gridengine.schedulers.logs import tail
from gridengine.watching.dispatcher_lookup import or_as_call
from gridengine.watching.worker_logs import FoundLogs, find_logs

TAIL_BYTES = 64 * 1024
LOOK_SECONDS, LOOKS = 0.5, 4
"""How often followed logs are checked, and after how many checks new logs are looked for."""


@command("logs", short_help="Show the logs of workers.")
@click.argument("name", default="", shell_complete=seen_names)
@click.argument("which", metavar="[CALL or WORKER]", default="")
@click.option("--failed", is_flag=True, help="Only logs of workers where calls have failed lately.")
@click.option(
    "--follow", is_flag=True, help="Print new output as it comes, of new logs too, until Ctrl-C."
)
@click.option(
    "--lines",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="How many last lines of each.",
)
def logs_command(name: str, which: str, failed: bool, follow: bool, lines: int) -> None:
    """Show the output of calls and the logs of workers. On a cluster each worker has a log; the
    workers on a dispatcher's own machine share one. Calls in a script's own processes print to the
    script's output; the beginning and the end of that are shown here.

    NAME is whatever `gridengine ls` prints of a dispatcher, or the name of a run whose calls it
    runs; also of one that has ended, or its folder below the run directory.

    The exit status is 1 when there is no log.

    Examples:
      gridengine logs sweep                   the dispatcher's last lines, and each worker's log
      gridengine logs 190                     of call 190 of the only run there is
      gridengine logs sweep 190               the log of the worker that has, or had, call 190
      gridengine logs sweep node7 --follow
      gridengine logs 20261123-0930           those of a run that has ended
      gridengine logs 20261123-0930 --failed  of the workers where its calls have failed
    """
    find = functools.partial(or_as_call, functools.partial(find_logs, failed=failed), name, which)
    told, paths, may_come, printed, why, heading = find()
    if heading:
        echo(heading, err=True)
    for line in told:
        click.echo(line)
    if printed:
        _show("output of calls", printed, lines)
    for path in paths:
        _show(path, tail(path, TAIL_BYTES), lines)
    if follow and not paths:
        later = "; waiting for the first" if may_come else ""
        echo(f"no worker has a log to follow{later}", err=True)
    if follow and (paths or may_come):
        _follow(paths, find)
    if not (told or paths or printed):
        echo(why or "there is no such log", err=True)
        sys.exit(1)


def _show(where: object, written: str, most: int) -> None:
    """Show the last lines of a text, below a line that names its source."""
    echo(f"==> {where} <==")
    lines = written.splitlines()
    for line in lines[max(0, len(lines) - most) :]:
        click.echo(line)


def _follow(paths: Iterable[Path], find: Callable[[], FoundLogs]) -> None:
    """Print text that is appended to these files, and to files that appear later. A line names the
    file whenever it changes.
    """
    sizes = {path: path.stat().st_size for path in paths if path.exists()}
    last = None
    for look in itertools.count(1):
        time.sleep(LOOK_SECONDS)
        if look % LOOKS == 0:
            with contextlib.suppress(GridEngineError):  # the run has ended
                sizes = dict.fromkeys(find().paths, 0) | sizes
        for path, before in sizes.items():
            size = path.stat().st_size if path.exists() else before
            if size <= before:
                sizes[path] = size  # the middle of the log was cut out
                continue
            if path != last:
                echo(f"==> {path} <==")
            last, sizes[path] = path, size
            click.echo(tail(path, size - before), nl=False)
