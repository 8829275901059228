"""This package's workers as a cluster has them, on this machine: they call by TCP, encrypted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from benchmarks.peers.ours import Ours
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers import Scheduler
from gridengine.schedulers.launcher import LaunchContext, Launcher, LaunchPlan
from gridengine.schedulers.local import LocalLauncher, worker_environment
from gridengine.schedulers.worker_command import worker_command


class TcpScheduler(Scheduler):
    """Workers of this machine, treated as a cluster's are."""

    local = False

    def launcher(self, run: LaunchContext) -> Launcher:
        return TcpLauncher(run)


class TcpLauncher(LocalLauncher):
    """Starts workers as processes of this machine, and kills them as a batch system would."""

    leave_signal = signal.SIGKILL

    def __init__(self, run: LaunchContext) -> None:
        super().__init__()
        self._command = worker_command(sys.executable, run.connection)

    def _start(self, demand: Demand) -> subprocess.Popen[bytes]:
        environment = worker_environment(os.environ)
        return subprocess.Popen(self._command, stdin=subprocess.DEVNULL, env=environment)

    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        return LaunchPlan(count, {"argv": self._command})


class OverTCP(Ours):
    """`gridengine.map` on such workers."""

    def make_scheduler(self) -> Scheduler:
        return TcpScheduler(max_workers=self.workers)
