"""`gridengine up`, `worker` and `drain`: more workers for a dispatcher that runs, and fewer."""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from gridengine.cli.completion import dispatcher_names, watched_names
from gridengine.cli.console import command, echo, json_option, print_json
from gridengine.cli.scheduler_options import (
    SchedulerChoice,
    entry_for,
    held_options,
    resource_options,
    resources_of,
)
from gridengine.dispatcher.run_directory import CONNECTION, is_under_way, new_run_id, tidy
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder
from gridengine.dispatcher.watch_messages import DRAIN
from gridengine.display import plural
from gridengine.errors import ConfigurationError
from gridengine.resources.base import Resource, is_nothing
from gridengine.resources.demand import Demand
from gridengine.resources.kinds import Cores, GPUs
from gridengine.schedulers.base import Scheduler, adopt_none
from gridengine.schedulers.detect import usable_cores
from gridengine.schedulers.launcher import (
    Handle,
    LaunchContext,
    Launcher,
    LaunchPlan,
    Report,
    TryAgain,
    WorkerStatus,
)
from gridengine.schedulers.local import ProcessScheduler, TcpProcessLauncher
from gridengine.schedulers.registry import BATCH_SYSTEMS, STARTERS
from gridengine.settings.values import settings
from gridengine.watching.connections import ask_all
from gridengine.watching.dispatcher_lookup import worker_file
from gridengine.watching.runs_on_disk import run_folders
from gridengine.wire.connection_file import Connection, make_private_folder

ENDED = (WorkerStatus.ENDED, WorkerStatus.FAILED)


def connection_files(
    names: Sequence[str], say: Callable[[str], None], *, dry: bool = False
) -> list[Path]:
    """Return the connection files of the named dispatchers. Of several, those that are not under
    way are reported by `say` and left out. Without a name, it is the dispatcher that began last
    among those in the run directory that can be reached from here; for a dry run a placeholder if
    there is none.

    Raises:
        ConfigurationError: there is none, it has ended, or its file is not this user's alone.
    """
    if len(names) == 1:
        file = worker_file(names[0])
        Connection.load(file)
        return [file]
    if not names:
        # Latest first; `next` stops at the first dispatcher that answers.
        last = next(filter(is_under_way, (one / CONNECTION for one in run_folders())), None)
        if last is None and not dry:
            raise _none(f"below {settings().runs}")
        if last is None:
            say("no run is under way; for one in a folder RUN:")
        return [last or settings().runs / "RUN" / CONNECTION]
    found = []
    for name in names:
        try:
            file = worker_file(name)
        except ConfigurationError as error:
            say(f"left out: {error.message}")
            continue
        if is_under_way(file):
            found.append(file)
        else:
            say(f"{name} is left out: its dispatcher cannot be reached from here")
    if not found:
        raise _none("of those named")
    return found


def _none(which: str) -> ConfigurationError:
    return ConfigurationError(
        f"no run {which} is under way, or none can be reached from here",
        hint="start a script whose calls run on a cluster first. One whose calls run on this "
        "machine alone takes no workers from elsewhere: ProcessScheduler(max_workers=8) gives "
        "it more of its own",
    )


def scheduler_of(file: Path) -> str | None:
    """Return the name of the scheduler that starts a dispatcher's workers; None if there is none,
    or it is unknown.
    """
    found = Connection.load(file).scheduler if file.exists() else ""
    return found if found in STARTERS else None


def default_count(scheduler: Scheduler, connection: Path) -> int:
    """Return a sensible number of workers: on this machine enough to use all processors, elsewhere
    one.
    """
    if not scheduler.local:
        return 1
    slots = Connection.load(connection).slots if connection.exists() else 1
    return max(1, usable_cores() // slots)


def plan(scheduler: Scheduler, connection: Path, count: int, resources: Resource) -> LaunchPlan:
    """Return the submission of this many workers, without submitting it."""
    if scheduler.local:
        return TcpProcessLauncher(connection).plan(count, Demand(resources))
    return scheduler.dry_run(resources, count=count, connection=connection)


class ExtraWorkers:
    """Workers that a dispatcher did not request itself.

    Args:
        launcher: starts and stops them.
        demand: the demand that each is launched with.
        say: prints a line.
    """

    def __init__(self, launcher: Launcher, demand: Demand, say: Callable[[str], None]) -> None:
        self._launcher = launcher
        self._demand = demand
        self._say = say
        self._states: dict[Handle, WorkerStatus | None] = {}
        self.failed = 0
        """How many workers did not end in order."""

    def advance(self, count: int) -> bool:
        """Launch workers until there are `count`, as far as the batch system takes them, and print
        changes. Return whether all have ended.
        """
        if len(self._states) < count:
            self._launch(count - len(self._states))
        unended = [handle for handle, state in self._states.items() if state not in ENDED]
        for handle, report in self._launcher.poll(unended).items():
            self._show(handle, report)
        return len(self._states) >= count and all(state in ENDED for state in self._states.values())

    def _launch(self, count: int) -> None:
        try:
            handles = self._launcher.launch(count, self._demand)
        except TryAgain as error:
            self._say(f"no workers for now: {error}")
            return
        self._states.update(dict.fromkeys(handles))
        ids = ", ".join(handle.id for handle in handles)
        self._say(f"{plural(len(handles), 'worker')} asked for: {ids}")

    def _show(self, handle: Handle, report: Report) -> None:
        """Print the state of a worker if it has changed."""
        if self._states[handle] is report.state:
            return
        self._states[handle] = report.state
        words = f": {report.reason}" if report.reason else ""
        self._say(f"worker {handle.id} {report.state.value}{words}")
        if report.state is WorkerStatus.FAILED:
            self.failed += 1
            if handle.log:
                self._say(f"  its log: {handle.log}")


def run_all(groups: Sequence[tuple[ExtraWorkers, int]]) -> None:
    """Start this many workers of each group, as soon as the batch system takes them, and wait until
    the last has ended.

    Raises:
        GridEngineError: none can be started, in the batch system's own words.
    """
    pause = threading.Event()
    while groups := [(workers, count) for workers, count in groups if not workers.advance(count)]:
        pause.wait(settings().poll_seconds)


@contextmanager
def extra_workers(
    scheduler: Scheduler,
    connection: Path,
    resources: Resource,
    say: Callable[[str], None],
    *,
    scratch: str = "",
) -> Iterator[ExtraWorkers]:
    """Yield the workers that can be started for the dispatcher of this connection file. All are
    stopped at the end. `scratch` is as for `TcpProcessLauncher`.

    Raises:
        ConfigurationError: no folder for their script and logs can be made.
    """
    workers: ExtraWorkers | None = None
    with ExitStack() as stack:
        if scheduler.local:
            launcher: Launcher = TcpProcessLauncher(connection, scratch)
        else:
            # Its folder is beside the dispatcher's, not in it: the dispatcher removes its own.
            id = new_run_id("up-")
            folder = make_private_folder(settings().runs / id)
            run = LaunchContext(id, folder, connection, adopt_none)
            stack.callback(lambda: tidy(run, failed=workers is None or workers.failed > 0))
            launcher = scheduler.launcher(run)
        stack.callback(launcher.close)
        workers = ExtraWorkers(launcher, Demand(resources), say)
        yield workers


@command("up", short_help="Start more workers for a script.")
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
@json_option(", with --dry: count, request and script of each run")
def up_command(
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

    Examples:
      gridengine up --scheduler processes
      gridengine up ~/.gridengine/runs/20261121-*/ --scheduler processes
      gridengine up sweep.py -n 10 --scheduler slurm --cores 4 --memory 8 --time 2:00:00
      gridengine up 4242 -n 10 --scheduler grid_engine --cores 4 --dry
    """
    say = functools.partial(echo, err=True)
    files = connection_files(names, say, dry=dry)
    resources = resources_of(asked)
    with contextlib.ExitStack() as stack:
        said = [scheduler or scheduler_of(file) for file in files]
        made = {one: stack.enter_context(_scheduler(one, count)) for one in set(said)}
        chosen = [made[one] for one in said]
        counts = [count or default_count(*each) for each in zip(chosen, files, strict=True)]
        if dry:
            for one, file, number in zip(chosen, files, counts, strict=True):
                planned = plan(one, file, number, resources)
                if as_json:
                    print_json(planned._asdict())
                else:
                    echo(planned)
            return
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
        groups = [
            stack.enter_context(extra_workers(one, file, resources, _say_of(file, files)))
            for one, file in zip(chosen, files, strict=True)
        ]
        run_all(list(zip(groups, counts, strict=True)))
        sys.exit(1 if any(workers.failed for workers in groups) else 0)


def _say_of(file: Path, files: Sequence[Path]) -> Callable[[str], None]:
    """Return a function that prints a line about the workers of one of these runs."""
    run = f"{file.parent.name}: " if len(files) > 1 else ""
    return lambda line: echo(f"{run}{line}")


def _scheduler(name: str | None, count: int | None) -> Scheduler:
    entry = entry_for(name)
    if not entry.scheduler_class().starts_workers:
        raise click.UsageError(f"{entry.name} starts no workers; say --scheduler")
    return entry.make(max_workers=count)


@command("worker", short_help="Start workers on this machine for a dispatcher.")
@click.argument("dispatcher", shell_complete=dispatcher_names, metavar="NAME")
@click.option(
    "-n",
    "--workers",
    "count",
    type=click.IntRange(min=1),
    help="How many (default: one if its resources are given, else enough for all processors).",
)
@held_options
@click.option(
    "--no-shared-files",
    is_flag=True,
    help="The scripts' folders are not on this machine: calls run in the present folder, and "
    "import the modules that are in it.",
)
def worker_command(
    dispatcher: str, count: int | None, *, no_shared_files: bool, **held: Any
) -> None:
    """Start workers on this machine for the dispatcher NAME. They stay until it ends or Ctrl-C
    stops them.

    NAME is any name of the dispatcher that a command prints, such as its process id or folder; or
    the path of a copy of its connection file for workers. The dispatcher must take workers from
    elsewhere.

    Calls go to the workers that have what they ask for. With --cores, --memory, --gpus or --token
    each worker has only that, and one core if you do not say how many; without any of them it has
    what the dispatcher's own workers have.

    The exit status is 1 when one of them has failed, 130 after Ctrl-C.

    Examples:
      gridengine worker sweeps
      gridengine worker -n 10 sweeps
      gridengine worker --cores 8 --memory 32 --gpus 2 sweeps
      gridengine worker --token licence sweeps
      gridengine worker --no-shared-files worker.json    with a copy of the dispatcher's worker.json
      ssh node7 gridengine worker -n 10 /home/me/.gridengine/runs/dispatchers/sweeps
    """
    resources = _held(count, **held)
    file = worker_file(dispatcher)
    if not is_nothing(resources):
        _check_shared(DispatcherFolder(file.parent))
    scratch = str(Path.cwd()) if no_shared_files else ""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    with (
        ProcessScheduler() as scheduler,
        extra_workers(scheduler, file, resources, echo, scratch=scratch) as workers,
    ):
        default = default_count(scheduler, file) if is_nothing(resources) else 1
        run_all([(workers, count or default)])
        sys.exit(1 if workers.failed else 0)


def _check_shared(folder: DispatcherFolder) -> None:
    """Check that the calls of a stand-alone dispatcher share its workers, as far as its files tell.

    Raises:
        ConfigurationError: they do not: each worker has the resources that its calls request.
    """
    if not folder.options_file.exists():
        return
    options = folder.options()
    if options.scheduler in {one.name for one in BATCH_SYSTEMS} and not options.resources:
        raise ConfigurationError(
            f"the dispatcher {folder.name} takes no workers with resources of their own: each of "
            "its cluster jobs has the resources that its calls request",
            hint="leave out --cores and similar options; or start the dispatcher with the "
            "resources of its workers, so that calls share them: gridengine dispatcher start "
            f"{folder.name} --cores 4",
        )


def _held(count: int | None, **given: Any) -> Resource:
    """Return the resources of each worker, `ZERO` if the options name none.

    Raises:
        click.UsageError: several workers would use the same GPUs.
    """
    resources = resources_of(given)
    if (count or 1) > 1 and resources.get(GPUs) is not None:
        raise click.UsageError(
            "--gpus is for one worker: several would use the same GPUs. Start one that holds all of"
            " them; or one for each GPU, with CUDA_VISIBLE_DEVICES set to that GPU"
        )
    if is_nothing(resources) or resources.get(Cores) is not None:
        return resources
    return Cores(1) & resources


@command("drain", short_help="Have workers leave a machine.")
@click.argument("hosts", metavar="HOST...", nargs=-1, required=True)
def drain_command(hosts: tuple[str, ...]) -> None:
    """Have the workers of all your dispatchers on this machine leave these machines: the workers
    are assigned nothing more, and end when their running calls have ended. Other workers are
    requested if calls wait; the batch system may start them on the same machine, unless it is told
    not to.

    The exit status is 1 when there was none.

    Examples:
      gridengine drain node7
    """
    found, silent = ask_all(lambda one: one.ask(DRAIN, words=hosts))
    for _, error in silent:
        echo(str(error), err=True)
    count = sum(answer.count for _, answer in found)
    nowhere = f"no worker is on {', '.join(hosts)}; `gridengine top` shows where they are"
    echo(f"{plural(count, 'worker')} will leave" if count else nowhere)
    sys.exit(0 if count and not silent else 1)
