"""Where the calls of a chaos run are made: a scheduler, its workers' processes, and which faults
may befall them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults import Proxy, Worker, workers
from msgspec.structs import replace
from tcp_scheduler import TcpLauncher

import gridengine
from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.launcher import LaunchContext, Launcher
from gridengine.wire.connection_file import Connection

HERE = {"runner killed": 10, "fork server killed": 2, "stopped for a while": 3}
AGENTS = {
    **HERE,
    "agent killed": 2,
    "frozen for longer than the lease": 0.3,
    "connections cut": 4,
    "network down": 1,
}
TASKS = {**AGENTS, "task deleted": 2, "array deleted": 1}


@dataclass(frozen=True, slots=True)
class Place:
    """Attributes: `proxy`, through which workers connect, or None; `connections`, their files;
    `weights`, how often each fault is done.
    """

    scheduler: Scheduler
    proxy: Proxy | None
    connections: list[Path]
    weights: Mapping[str, float]

    def workers(self) -> list[Worker]:
        """Return the workers that there are now."""
        if self.proxy is None:
            return workers("")
        return [worker for path in self.connections for worker in workers(str(path))]


class Proxied:
    """A scheduler whose workers connect through a proxy."""

    proxy: Proxy
    connections: list[Path]

    def launcher(self, run: LaunchContext) -> Any:
        connection = Connection.load(run.connection)
        port = self.proxy.open(int(connection.addresses[-1].rpartition(":")[2]))
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


class ProxiedAgents(Proxied, Agents):
    """Agents that connect through a proxy."""


class ProxiedGridEngine(Proxied, gridengine.GridEngineScheduler):
    """Tasks of the Grid Engine that connect through a proxy."""


class ProxiedSlurm(Proxied, gridengine.SlurmScheduler):
    """Tasks of the Slurm that connect through a proxy."""


def _proxied(scheduler: Any, weights: Mapping[str, float]) -> Place:
    scheduler.proxy, scheduler.connections = Proxy(), []
    return Place(scheduler, scheduler.proxy, scheduler.connections, weights)


PLACES: dict[str, Callable[[], Place]] = {
    "here": lambda: Place(gridengine.ProcessScheduler(3), None, [], HERE),
    "agents": lambda: _proxied(ProxiedAgents(max_workers=2), AGENTS),
    "grid_engine": lambda: _proxied(
        ProxiedGridEngine(max_workers=4), {**TASKS, "DRMAA killed": 0.5}
    ),
    "slurm": lambda: _proxied(ProxiedSlurm(max_workers=4), TASKS),
}
