"""Workers of this machine that are treated as a cluster's are: they connect over TCP, encrypted."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from gridengine.call_context import EXPORTED, KEPT
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers import ProcessScheduler
from gridengine.schedulers.launcher import LaunchContext, Launcher, LaunchPlan
from gridengine.schedulers.local import LocalLauncher, start_error, worker_environment
from gridengine.schedulers.worker_command import worker_command


class TcpScheduler(ProcessScheduler):
    """One such worker, with a runner for each core; `log` names a file in the run directory that
    its output goes to, which else goes where this process's does.
    """

    local = False
    log = ""

    def launcher(self, run: LaunchContext) -> Launcher:
        log = run.directory / self.log if self.log else None
        return TcpLauncher(run, log, self._environment)


class TcpLauncher(LocalLauncher):
    """Starts workers as processes of this machine, and kills them as a batch system would."""

    leave_signal = signal.SIGKILL

    def __init__(
        self,
        run: LaunchContext,
        log: Path | None = None,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        own = {**environment, KEPT: "=".join(environment)} if environment else {}
        self._added = {**own, EXPORTED: "=".join(os.environ)}
        self._command = worker_command(sys.executable, run.connection)
        self._log = log

    def _start(self, demand: Demand) -> subprocess.Popen[bytes]:
        with contextlib.ExitStack() as stack:
            output = None if self._log is None else stack.enter_context(self._log.open("ab"))
            try:
                return subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={**worker_environment(os.environ), **self._added},
                    start_new_session=True,
                )
            except OSError as error:
                raise start_error(error) from error

    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        return LaunchPlan(count, {"argv": self._command})


class FilesScheduler(TcpScheduler):
    """The same, but for the transport: its workers and the dispatcher exchange files."""

    transport = "files"
