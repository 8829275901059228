"""Workers of this machine that connect to their dispatcher by TCP, as a cluster's do: for one that
runs already, here or elsewhere.
"""

from __future__ import annotations

import os
import subprocess
import sys

from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.launcher import LaunchContext, LaunchPlan
from gridengine.schedulers.local_process import LocalLauncher, start_error, worker_environment
from gridengine.schedulers.worker_command import worker_command


class TcpProcessLauncher(LocalLauncher):
    """Starts workers as processes of this machine, in sessions of their own."""

    def __init__(self, run: LaunchContext) -> None:
        super().__init__()
        self._command = worker_command(sys.executable, run.connection)

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                env=worker_environment(os.environ),
                start_new_session=True,
            )
        except OSError as error:
            raise start_error(error) from error

    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        """Return the workers' command line."""
        return LaunchPlan(count, {"argv": self._command})
