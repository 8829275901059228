"""Where the calls of a chaos run are made: a scheduler, its workers' processes, and which faults
may befall them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from faults import Line, Worker, workers

import gridengine
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.launcher import (
    Handle,
    LaunchContext,
    Launcher,
    LaunchPlan,
    Report,
    WorkerStatus,
)
from gridengine.schedulers.local_process import worker_environment
from gridengine.schedulers.worker_command import worker_command
from gridengine.wire.connection import Connection

HERE = {"runner killed": 10, "nursery killed": 2, "stopped for a while": 3}
AGENTS = {
    **HERE,
    "agent killed": 2,
    "frozen for longer than the lease": 0.3,
    "connections cut": 4,
    "line down": 1,
}
TASKS = {**AGENTS, "task deleted": 2, "array deleted": 1, "DRMAA killed": 0.5}


@dataclass(frozen=True, slots=True)
class Place:
    """Attributes: `line`, by which workers call, or None; `connections`, their files; `weights`,
    how often each fault is done.
    """

    scheduler: Scheduler
    line: Line | None
    connections: list[Path]
    weights: Mapping[str, float]

    def workers(self) -> list[Worker]:
        """Return the workers that there are now."""
        if self.line is None:
            return workers("")
        return [worker for path in self.connections for worker in workers(str(path))]


class Led:
    """A scheduler whose workers call home by a line."""

    line: Line
    connections: list[Path]

    def launcher(self, run: LaunchContext) -> Any:
        connection = Connection.load(run.connection)
        port = self.line.open(int(connection.addresses[-1].rpartition(":")[2]))
        run.connection.unlink()
        replace(connection, addresses=(f"tcp://127.0.0.1:{port}",)).save(run.connection)
        self.connections.append(run.connection)
        return super().launcher(run)  # type: ignore[misc]


class Agents(Scheduler):
    """Agents of this machine, treated as a cluster's are."""

    local = False

    def launcher(self, run: LaunchContext) -> Launcher:
        return AgentLauncher(run)


class AgentLauncher(Launcher):
    """Starts workers as processes of this machine, and ends them as a batch system would."""

    def __init__(self, run: LaunchContext) -> None:
        self._run = run
        self._processes: dict[Handle, subprocess.Popen[bytes]] = {}

    def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
        started = [
            subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                env=worker_environment({}),
                start_new_session=True,
            )
            for _ in range(count)
        ]
        self._processes |= {Handle(str(process.pid)): process for process in started}
        return list(self._processes)[-count:]

    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        return LaunchPlan(count, {"argv": self._command()})

    def _command(self) -> list[str]:
        return worker_command(sys.executable, self._run.connection)

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Report]:
        statuses = {
            handle: self._processes[handle].poll()
            for handle in handles
            if handle in self._processes
        }
        return {
            handle: Report(WorkerStatus.RUNNING)
            if status is None
            else Report(WorkerStatus.ENDED if status == 0 else WorkerStatus.FAILED)
            for handle, status in statuses.items()
        }

    def cancel(self, handles: Sequence[Handle]) -> None:
        for process in [
            self._processes.pop(handle) for handle in handles if handle in self._processes
        ]:
            process.kill()
            process.wait()

    def close(self) -> None:
        self.cancel(list(self._processes))


class LedAgents(Led, Agents):
    """Agents that call home by a line."""

    slots = 2


class LedGridEngine(Led, gridengine.GridEngineScheduler):
    """Tasks of the Grid Engine that call home by a line."""


def _led(scheduler: Any, weights: Mapping[str, float]) -> Place:
    scheduler.line, scheduler.connections = Line(), []
    return Place(scheduler, scheduler.line, scheduler.connections, weights)


PLACES: dict[str, Callable[[], Place]] = {
    "here": lambda: Place(gridengine.ProcessScheduler(3), None, [], HERE),
    "agents": lambda: _led(LedAgents(max_workers=2), AGENTS),
    "cluster": lambda: _led(LedGridEngine(max_workers=4), TASKS),
}
