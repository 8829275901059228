"""`gridengine up`: more workers for a dispatcher that runs already."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gridengine.dispatcher.run_directory import CONNECTION, is_under_way, new_run_id, tidy
from gridengine.display import plural
from gridengine.errors import ConfigurationError
from gridengine.resources.base import Resource
from gridengine.resources.demand import Demand
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
from gridengine.schedulers.local_process import TcpProcessLauncher
from gridengine.schedulers.registry import STARTERS
from gridengine.settings.values import settings
from gridengine.watching.lookup import worker_file
from gridengine.wire.connection_file import Connection, make_private_folder

ENDED = (WorkerStatus.ENDED, WorkerStatus.FAILED)


def connection_files(names: Sequence[str], say: Callable[[str], None]) -> list[Path]:
    """Return the connection files of the named dispatchers. Of several, those that are not under
    way are reported by `say` and left out. Without a name, it is the dispatcher that began last
    among those in the run directory that can be reached from here.

    Raises:
        ConfigurationError: there is none, it has ended, or its file is not this user's alone.
    """
    if len(names) == 1:
        file = worker_file(names[0])
        Connection.load(file)
        return [file]
    if not names:
        return _last_under_way()
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


def _last_under_way() -> list[Path]:
    # Latest first; `next` stops at the first dispatcher that answers.
    files = [path / CONNECTION for path in settings().runs.glob("*/")]
    found = next(filter(is_under_way, sorted(filter(_written, files), key=_written)[::-1]), None)
    if found is None:
        raise _none(f"below {settings().runs}")
    return [found]


def _none(which: str) -> ConfigurationError:
    return ConfigurationError(
        f"no run {which} is under way, or none can be reached from here",
        hint="start a script whose calls run on a cluster first. One whose calls run on this "
        "machine alone takes no workers from elsewhere: ProcessScheduler(max_workers=8) gives "
        "it more of its own",
    )


def files_for_dry_run(say: Callable[[str], None]) -> list[Path]:
    """Return the connection files for the commands of a dry run: those of the runs under way, or a
    placeholder.
    """
    try:
        return connection_files((), say)
    except ConfigurationError:
        say("no run is under way; for one in a folder RUN:")
        return [settings().runs / "RUN" / CONNECTION]


def scheduler_of(file: Path) -> str | None:
    """Return what starts the workers that a dispatcher has; None where nothing does, or that is not
    known.
    """
    found = Connection.load(file).scheduler if file.exists() else ""
    return found if found in STARTERS else None


def _written(file: Path) -> float:
    """Return when a file was written; 0 if it cannot be looked at."""
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def default_count(scheduler: Scheduler, connection: Path) -> int:
    """Return a sensible number of workers: on this machine enough to use all processors, elsewhere
    one.
    """
    if not scheduler.local:
        return 1
    slots = Connection.load(connection).slots if connection.exists() else 1
    return max(1, usable_cores() // slots)


def plan(scheduler: Scheduler, connection: Path, count: int, resources: Resource) -> LaunchPlan:
    """Return what would be submitted for this many workers, without submitting it."""
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
    scheduler: Scheduler, connection: Path, resources: Resource, say: Callable[[str], None]
) -> Iterator[ExtraWorkers]:
    """Yield the workers that can be started for the dispatcher of this connection file. All are
    stopped at the end.

    Raises:
        ConfigurationError: no folder for their script and logs can be made.
    """
    workers: ExtraWorkers | None = None
    with ExitStack() as stack:
        if scheduler.local:
            launcher: Launcher = TcpProcessLauncher(connection)
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
