"""Workers of this machine that call their dispatcher by TCP, as a cluster's do: for one that runs
already, here or elsewhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.launcher import Handle, LaunchContext, Launcher, LaunchPlan, Report
from gridengine.schedulers.local import ended_by, not_started, report_of, worker_environment
from gridengine.schedulers.worker_command import worker_command

LEAVE_SECONDS = 10.0
"""How long workers have to end what they run, and to leave."""


class CallingLauncher(Launcher):
    """Starts workers as processes of this machine, in sessions of their own."""

    def __init__(self, run: LaunchContext) -> None:
        self._command = worker_command(sys.executable, run.connection)
        self._processes: dict[Handle, subprocess.Popen[bytes]] = {}

    def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
        """Start `count` workers. What calls ask for is not kept from others on this machine."""
        started: list[Handle] = []
        for _ in range(count):
            try:
                process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    env=worker_environment(os.environ),
                    start_new_session=True,
                )
            except OSError as error:
                if started:
                    break
                raise not_started(error) from error
            started.append(Handle(str(process.pid)))
            self._processes[started[-1]] = process
        return started

    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        """Return the workers' command line."""
        return LaunchPlan(count, {"argv": self._command})

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Report]:
        """Return the state of each worker that this launcher started."""
        reports = {
            handle: report_of(self._processes[handle])
            for handle in handles
            if handle in self._processes
        }
        return {handle: report for handle, report in reports.items() if report is not None}

    def cancel(self, handles: Sequence[Handle]) -> None:
        """Tell these workers to leave, and kill those that have not after 10 s."""
        processes = [self._processes.pop(handle) for handle in handles if handle in self._processes]
        for process in processes:
            process.terminate()
        deadline = time.monotonic() + LEAVE_SECONDS
        for process in [process for process in processes if not ended_by(process, deadline)]:
            process.kill()
            process.wait()

    def close(self) -> None:
        """Stop every worker that is left."""
        self.cancel(list(self._processes))
