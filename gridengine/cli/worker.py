"""`gridengine worker`: workers by hand, for a dispatcher that runs."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import click

from gridengine.cli.completion import dispatcher_names


@click.command(
    "worker",
    short_help="Start workers on this machine for a dispatcher.",
    epilog="""\b
Examples:
  gridengine worker sweeps
  gridengine worker -n 10 sweeps
  ssh node7 gridengine worker -n 10 /home/me/.gridengine/runs/dispatchers/sweeps/worker.json
""",
)
@click.argument("dispatcher", shell_complete=dispatcher_names, metavar="NAME_OR_FILE")
@click.option(
    "-n",
    "--workers",
    "count",
    type=click.IntRange(min=1),
    help="How many (default: for all processors).",
)
def command(dispatcher: str, count: int | None) -> None:
    """Start workers on this machine for the dispatcher NAME, or for that of a connection file for
    workers, until it ends or Ctrl-C stops them.

    The exit status is 1 when one of them has failed, 130 after Ctrl-C.
    """
    from gridengine.cli import up
    from gridengine.dispatcher.dispatcher_folder import DispatcherFolder
    from gridengine.errors import ConfigurationError
    from gridengine.resources.base import ZERO
    from gridengine.schedulers.local import ProcessScheduler

    path = Path(dispatcher)
    if os.sep not in dispatcher and not path.exists():
        folder = DispatcherFolder.of(dispatcher)
        path = folder.worker_file
        if not path.exists():
            raise folder.not_running()
    elif not path.exists():
        raise ConfigurationError(
            f"{path} does not exist: there is no such dispatcher, or it does not run",
            hint="gridengine dispatcher list, where its folder is, says how it is",
        )
    [file] = up.connection_files([path], lambda line: None)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    with (
        ProcessScheduler() as scheduler,
        up.extra_workers(scheduler, file, ZERO, click.echo) as workers,
    ):
        up.run_all([(workers, count or up.default_count(scheduler, file))])
        sys.exit(1 if workers.failed else 0)
