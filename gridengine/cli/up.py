"""More workers for a dispatcher that runs already, known by its connection file: `gridengine
up`.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gridengine.errors import ConfigurationError
from gridengine.resources.base import Resource
from gridengine.resources.demand import Demand
from gridengine.resources.units import counted
from gridengine.schedulers.base import Scheduler, adopt_none
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
from gridengine.settings.values import settings
from gridengine.wire.connection_file import Connection, make_private_folder
from gridengine.worker.main import is_listening

NAME = "connection.json"
ENDED = (WorkerStatus.ENDED, WorkerStatus.FAILED)


def connection_file(paths: Sequence[Path]) -> Path:
    """Return the connection file of the run that is meant: by it or by its folder; of several
    folders, or of all in the run directory when none is named, that which began last of the runs
    whose dispatcher can be reached from here.

    Raises:
        ConfigurationError: there is none, it has ended, or is not this user's alone.
    """
    if len(paths) == 1:
        [path] = paths
        file = (path / NAME if path.is_dir() else path).absolute()
        if path.is_dir() and not file.exists():
            raise ConfigurationError(
                f"{path} has no {NAME}: that run has ended",
                hint="name the folder of a run that is under way, or none for the last",
            )
        Connection.load(file)
        return file
    runs = paths or list(settings().runs.glob("*/"))
    files = [path / NAME if path.is_dir() else path for path in runs]
    for file in sorted(filter(Path.exists, files), key=_written, reverse=True):
        if _is_under_way(file):
            return file.absolute()
    raise ConfigurationError(
        f"none of {len(runs)} runs is under way, or its dispatcher cannot be reached from here",
        hint=f"start your script first; its connection file is below {settings().runs}",
    )


def _written(file: Path) -> float:
    return file.stat().st_mtime


def _is_under_way(file: Path) -> bool:
    try:
        return any(map(is_listening, Connection.load(file).addresses))
    except ConfigurationError:  # left by another version, say
        return False


def default_count(scheduler: Scheduler, connection: Path) -> int:
    """Return how many workers are sensible: on this machine as many as use all processors,
    elsewhere one.
    """
    if not scheduler.local:
        return 1
    return max(1, len(os.sched_getaffinity(0)) // Connection.load(connection).slots)


def plan(scheduler: Scheduler, connection: Path, count: int, resources: Resource) -> LaunchPlan:
    """Return what would be submitted for so many workers; nothing is."""
    if scheduler.local:
        return TcpProcessLauncher(connection).plan(count, Demand(resources))
    return scheduler.dry_run(resources, count=count, connection=connection)


class ExtraWorkers:
    """Workers that a dispatcher did not ask for itself.

    Args:
        launcher: starts and stops them.
        demand: what each is asked for with.
        say: prints a line.
    """

    def __init__(self, launcher: Launcher, demand: Demand, say: Callable[[str], None]) -> None:
        self._launcher = launcher
        self._demand = demand
        self._say = say
        self._states: dict[Handle, WorkerStatus | None] = {}
        self.failed = 0
        """How many ended otherwise than in order."""

    def run(self, count: int) -> None:
        """Start so many workers, as soon as the batch system takes them, and wait until the last
        has ended.

        Raises:
            GridEngineError: none can be started, in the batch system's own words.
        """
        pause = threading.Event()
        unended: set[Handle] = set()
        while True:
            if len(self._states) < count:
                unended.update(self._launch(count - len(self._states)))
            for handle, report in self._launcher.poll(list(unended)).items():
                self._show(handle, report)
                if report.state in ENDED:
                    unended.remove(handle)
            if len(self._states) >= count and not unended:
                return
            pause.wait(settings().poll_seconds)

    def _launch(self, count: int) -> list[Handle]:
        try:
            handles = self._launcher.launch(count, self._demand)
        except TryAgain as error:
            self._say(f"no workers for now: {error}")
            return []
        self._states.update(dict.fromkeys(handles))
        ids = ", ".join(handle.id for handle in handles)
        self._say(f"{counted(len(handles), 'worker')} asked for: {ids}")
        return handles

    def _show(self, handle: Handle, report: Report) -> None:
        """Say how a worker is, when that has changed."""
        if self._states[handle] is report.state:
            return
        self._states[handle] = report.state
        words = f": {report.reason}" if report.reason else ""
        self._say(f"worker {handle.id} {report.state.value}{words}")
        if report.state is WorkerStatus.FAILED:
            self.failed += 1
            if handle.log:
                self._say(f"  its log: {handle.log}")


@contextmanager
def extra_workers(
    scheduler: Scheduler, connection: Path, resources: Resource, say: Callable[[str], None]
) -> Iterator[ExtraWorkers]:
    """Yield what starts workers for the dispatcher of this connection file; all are stopped in the
    end.

    Raises:
        ConfigurationError: no folder for their script and logs can be made.
    """
    from gridengine.dispatcher.run_directory import tidy

    with ExitStack() as stack:
        if scheduler.local:
            launcher: Launcher = TcpProcessLauncher(connection)
        else:
            # Its folder is beside the dispatcher's, which is removed when that one ends.
            id = f"{time.strftime('%Y%m%d-%H%M%S')}-up-{os.getpid()}-{secrets.token_hex(3)}"
            folder = make_private_folder(settings().runs / id)
            run = LaunchContext(id, folder, connection, adopt_none)
            stack.callback(tidy, run)
            launcher = scheduler.launcher(run)
        stack.callback(launcher.close)
        yield ExtraWorkers(launcher, Demand(resources), say)
