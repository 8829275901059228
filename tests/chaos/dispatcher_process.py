"""A stand-alone dispatcher as chaos runs have it: python dispatcher_process.py NAME PLACE PORT

Workers elsewhere connect to the port, which somebody leads to the dispatcher's own. It ends, for
good, when its standard input does, and so when whoever started it is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psutil
from msgspec.structs import replace
from tcp_scheduler import TcpLauncher, TcpScheduler

import gridengine
from gridengine.dispatcher.run_directory import folder_of
from gridengine.dispatcher.standalone.serve import serve
from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.launcher import Handle, LaunchContext, Launcher, Report, WorkerStatus
from gridengine.settings.values import settings
from gridengine.wire.connection_file import Connection, replace_private, to_json


class Led:
    """A scheduler whose workers connect to another port than the dispatcher's."""

    port: int

    def launcher(self, run: LaunchContext) -> Any:
        connection = Connection.load(run.connection)
        led = replace(connection, addresses=(f"tcp://127.0.0.1:{self.port}",))
        replace_private(run.connection, to_json(led))
        return super().launcher(run)  # type: ignore[misc]


class AgentLauncher(TcpLauncher):
    """Knows, as a batch system does, of workers that a dispatcher before this one has started."""

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Report]:
        earlier = {one: _state(one) for one in handles if one not in self._processes}
        return {**earlier, **super().poll(handles)}

    def cancel(self, handles: Sequence[Handle]) -> None:
        for one in handles:
            if one not in self._processes and _state(one).state is WorkerStatus.RUNNING:
                os.kill(int(one.id), signal.SIGKILL)
        super().cancel(handles)


def _state(handle: Handle) -> Report:
    with contextlib.suppress(psutil.NoSuchProcess):
        if psutil.Process(int(handle.id)).status() != psutil.STATUS_ZOMBIE:
            return Report(WorkerStatus.RUNNING)
    return Report(WorkerStatus.FAILED, "its process is gone")


class AgentScheduler(TcpScheduler):
    """Workers of this machine, treated as a cluster's are, which outlive the dispatcher."""

    slots = 2

    def launcher(self, run: LaunchContext) -> Launcher:
        return AgentLauncher(run, run.directory / "workers.log")


class Agents(Led, AgentScheduler):
    """Agents that connect elsewhere."""


class LedGridEngine(Led, gridengine.GridEngineScheduler):
    """Tasks of the Grid Engine."""


class LedSlurm(Led, gridengine.SlurmScheduler):
    """Tasks of the Slurm."""


SCHEDULERS: dict[str, Callable[[], Scheduler]] = {
    "here": lambda: gridengine.ProcessScheduler(3),
    "agents": lambda: Agents(max_workers=2),
    "grid_engine": lambda: LedGridEngine(max_workers=4),
    "slurm": lambda: LedSlurm(max_workers=4),
}


def main() -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())

    def watch() -> None:
        os.read(0, 1)
        stopped.set()

    threading.Thread(target=watch, daemon=True).start()
    name, place, port = sys.argv[1:]
    with SCHEDULERS[place]() as scheduler:
        if isinstance(scheduler, Led):
            scheduler.port = int(port)
        serve(folder_of(name, settings()), scheduler, settings(), stopped=stopped)


if __name__ == "__main__":
    main()
