"""Where the calls of a chaos run are made: a scheduler, its workers' processes, and which faults
may befall them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from faults import Line, Worker, workers
from tcp_scheduler import TcpLauncher

import gridengine
from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.launcher import LaunchContext, Launcher
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
    """Workers of this machine, treated as a cluster's are."""

    local = False
    slots = 2

    def launcher(self, run: LaunchContext) -> Launcher:
        return TcpLauncher(run)


class LedAgents(Led, Agents):
    """Agents that call home by a line."""


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
