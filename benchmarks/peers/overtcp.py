"""This package's workers as a cluster has them, on this machine: they call by TCP, encrypted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence

from benchmarks.peers.ours import Ours
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers import Scheduler
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


class Agents(Scheduler):
    """Workers of this machine, treated as a cluster's are."""

    local = False

    def launcher(self, run: LaunchContext) -> Launcher:
        return AgentLauncher(run)


class AgentLauncher(Launcher):
    """Starts workers as processes of this machine."""

    def __init__(self, run: LaunchContext) -> None:
        self._command = worker_command(sys.executable, run.connection)
        self._processes: dict[Handle, subprocess.Popen[bytes]] = {}

    def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
        environment = worker_environment({})
        started = [
            subprocess.Popen(self._command, stdin=subprocess.DEVNULL, env=environment)
            for _ in range(count)
        ]
        self._processes |= {Handle(str(process.pid)): process for process in started}
        return [Handle(str(process.pid)) for process in started]

    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        return LaunchPlan(count, {"argv": self._command})

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Report]:
        ended = {
            handle: self._processes[handle].poll() is not None
            for handle in handles
            if handle in self._processes
        }
        return {
            handle: Report(WorkerStatus.ENDED if over else WorkerStatus.RUNNING)
            for handle, over in ended.items()
        }

    def cancel(self, handles: Sequence[Handle]) -> None:
        for process in [
            self._processes.pop(handle) for handle in handles if handle in self._processes
        ]:
            process.kill()
            process.wait()

    def close(self) -> None:
        self.cancel(list(self._processes))


class OverTCP(Ours):
    """`gridengine.map` on such workers."""

    def make_scheduler(self) -> Scheduler:
        return Agents(max_workers=self.workers)
