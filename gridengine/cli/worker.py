"""`gridengine worker`: start workers on this machine, by hand."""

from __future__ import annotations

import signal
import sys
from typing import Any

import click

from gridengine.cli.completion import dispatcher_names
from gridengine.cli.scheduler_options import held_options, resources_of
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder
from gridengine.errors import ConfigurationError
from gridengine.resources.base import Resource, is_nothing
from gridengine.resources.kinds import Cores, GPUs
from gridengine.schedulers.registry import BATCH_SYSTEMS


@click.command(
    "worker",
    short_help="Start workers on this machine for a dispatcher.",
    epilog="""\b
Examples:
  gridengine worker sweeps
  gridengine worker -n 10 sweeps
  gridengine worker --cores 8 --memory 32 --gpus 2 sweeps
  gridengine worker --token licence sweeps
  ssh node7 gridengine worker -n 10 /home/me/.gridengine/runs/dispatchers/sweeps
""",
)
@click.argument("dispatcher", shell_complete=dispatcher_names, metavar="NAME")
@click.option(
    "-n",
    "--workers",
    "count",
    type=click.IntRange(min=1),
    help="How many (default: one if its resources are given, else enough for all processors).",
)
@held_options
def command(dispatcher: str, count: int | None, **held: Any) -> None:
    """Start workers on this machine for the dispatcher NAME. They stay until it ends or Ctrl-C
    stops them.

    NAME is whatever is printed of a dispatcher that takes workers from elsewhere: its name, process
    id, folder; or a copy of its connection file for workers.

    Calls go to the workers that have what they ask for. With --cores, --memory, --gpus or --token
    each worker has only that, and one core if you do not say how many; without any of them it has
    what the dispatcher's own workers have.

    The exit status is 1 when one of them has failed, 130 after Ctrl-C.
    """
    from gridengine.cli import up
    from gridengine.schedulers.local import ProcessScheduler
    from gridengine.watching.lookup import worker_file

    resources = _held(count, **held)
    file = worker_file(dispatcher)
    if not is_nothing(resources):
        _check_shared(DispatcherFolder(file.parent))
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    with (
        ProcessScheduler() as scheduler,
        up.extra_workers(scheduler, file, resources, click.echo) as workers,
    ):
        default = up.default_count(scheduler, file) if is_nothing(resources) else 1
        up.run_all([(workers, count or default)])
        sys.exit(1 if workers.failed else 0)


def _check_shared(folder: DispatcherFolder) -> None:
    """Check that the calls of a stand-alone dispatcher share workers, as far as its files tell.

    Raises:
        ConfigurationError: each worker has what the calls ask for that it was started for.
    """
    if not folder.options_file.exists():
        return
    options = folder.options()
    if options.scheduler in {one.name for one in BATCH_SYSTEMS} and not options.resources:
        raise ConfigurationError(
            f"the dispatcher {folder.name} takes no workers that say what they hold: its calls "
            "have cluster jobs of their own, each with what its calls ask for",
            hint="leave out --cores and its like; or start the dispatcher with what its workers "
            "hold, for calls to share them: gridengine dispatcher start "
            f"{folder.name} --cores 4",
        )


def _held(count: int | None, **given: Any) -> Resource:
    """Return the resources of each worker, `ZERO` if the options name none.

    Raises:
        click.UsageError: several workers would use the same GPUs.
    """
    resources = resources_of(**given)
    if (count or 1) > 1 and resources.get(GPUs) is not None:
        raise click.UsageError(
            "--gpus is for one worker: several would use the same GPUs. Start one that holds all of"
            " them; or one for each GPU, with CUDA_VISIBLE_DEVICES set to that GPU"
        )
    if is_nothing(resources) or resources.get(Cores) is not None:
        return resources
    return Cores(1) & resources
