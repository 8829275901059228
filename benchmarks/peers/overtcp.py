"""This package's workers as a cluster has them, on this machine: they call by TCP, encrypted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.peers.ours import Ours
from gridengine.schedulers import Scheduler
from gridengine.schedulers.launcher import Handle, LaunchContext, Launcher
from gridengine.schedulers.local import ProcessLauncher
from gridengine.schedulers.local_process import worker_environment
from gridengine.schedulers.worker_command import worker_command


class TcpScheduler(Scheduler):
    """Workers of this machine, treated as a cluster's are."""

    local = False

    def launcher(self, run: LaunchContext) -> Launcher:
        return TcpLauncher(run)


class TcpLauncher(ProcessLauncher):
    """Starts workers as processes of this machine, and kills them as a batch system would."""

    def _start(self) -> subprocess.Popen[bytes]:
        command = worker_command(sys.executable, self._run.connection)
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, env=worker_environment(os.environ)
        )

    def cancel(self, handles: Sequence[Handle]) -> None:
        for process in [self._processes[handle] for handle in handles if handle in self._processes]:
            process.kill()
        super().cancel(handles)


class OverTCP(Ours):
    """`gridengine.map` on such workers."""

    def make_scheduler(self) -> Scheduler:
        return TcpScheduler(max_workers=self.workers)
