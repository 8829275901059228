"""Workers of this machine that are treated as a cluster's are: they connect over TCP, encrypted."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gridengine.schedulers import ProcessScheduler
from gridengine.schedulers.launcher import Handle, LaunchContext
from gridengine.schedulers.local import ProcessLauncher
from gridengine.schedulers.local_process import worker_environment
from gridengine.schedulers.worker_command import worker_command


class TcpScheduler(ProcessScheduler):
    """One such worker, with a runner for each core; `log` names a file in the run directory that
    its output goes to, which else goes where this process's does.
    """

    local = False
    log = ""

    def launcher(self, run: LaunchContext) -> ProcessLauncher:
        return TcpLauncher(run, run.directory / self.log if self.log else None)


class TcpLauncher(ProcessLauncher):
    """Starts workers as processes of this machine, and kills them as a batch system would."""

    def __init__(self, run: LaunchContext, log: Path | None = None) -> None:
        super().__init__(run)
        self._log = log

    def _start(self) -> subprocess.Popen[bytes]:
        with contextlib.ExitStack() as stack:
            output = None if self._log is None else stack.enter_context(self._log.open("ab"))
            return subprocess.Popen(
                worker_command(sys.executable, self._run.connection),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=worker_environment(os.environ),
                start_new_session=True,
            )

    def cancel(self, handles: Sequence[Handle]) -> None:
        for handle in handles:
            if handle in self._processes and os.getpid() == self._owner:
                self._processes[handle].kill()
        super().cancel(handles)
