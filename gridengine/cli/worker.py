"""`gridengine worker`: workers by hand, for a dispatcher that runs."""

from __future__ import annotations

import signal
import sys

import click

from gridengine.cli.completion import dispatcher_names


@click.command(
    "worker",
    short_help="Start workers on this machine for a dispatcher.",
    epilog="""\b
Examples:
  gridengine worker sweeps
  gridengine worker -n 10 sweeps
  ssh node7 gridengine worker -n 10 /home/me/.gridengine/runs/dispatchers/sweeps
""",
)
@click.argument("dispatcher", shell_complete=dispatcher_names, metavar="NAME")
@click.option(
    "-n",
    "--workers",
    "count",
    type=click.IntRange(min=1),
    help="How many (default: for all processors).",
)
def command(dispatcher: str, count: int | None) -> None:
    """Start workers on this machine for the dispatcher NAME, until it ends or Ctrl-C stops them.

    NAME is whatever is printed of a dispatcher that takes workers from elsewhere: its name, process
    id, folder; or a copy of its connection file for workers.

    The exit status is 1 when one of them has failed, 130 after Ctrl-C.
    """
    from gridengine.cli import up
    from gridengine.resources.base import ZERO
    from gridengine.schedulers.local import ProcessScheduler
    from gridengine.watching.lookup import worker_file

    file = worker_file(dispatcher)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    with (
        ProcessScheduler() as scheduler,
        up.extra_workers(scheduler, file, ZERO, click.echo) as workers,
    ):
        up.run_all([(workers, count or up.default_count(scheduler, file))])
        sys.exit(1 if workers.failed else 0)
