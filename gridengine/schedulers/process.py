"""Workers on this machine: one nursery, with as many runners as there are processors to use."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

import psutil

from gridengine.errors import WorkerNotStarted
from gridengine.schedulers.base import (
    ANY,
    Demand,
    Handle,
    Launcher,
    Plan,
    Report,
    Run,
    Scheduler,
    TaskState,
    TryAgain,
    positive,
    python_path,
)

logger = logging.getLogger("gridengine")

LEAVE_SECONDS = 2.0
"""How long a nursery has to end what is below it."""
REAP_SECONDS = 0.5


class ProcessScheduler(Scheduler):
    """Runs calls in processes of this machine.

    Args:
        max_workers: how many calls run at a time (default: the processors that this process may use).
    """

    idle_seconds = 60.0

    def __init__(self, max_workers: int | None = None) -> None:
        super().__init__(max_workers=1)
        self.slots = len(os.sched_getaffinity(0)) if max_workers is None else positive("max_workers", max_workers)

    def __repr__(self) -> str:
        return f"ProcessScheduler(max_workers={self.slots})"

    def launcher(self, run: Run) -> ProcessLauncher:
        """Return what starts the one worker of this scheduler."""
        return ProcessLauncher(run)


class ProcessLauncher(Launcher):
    """Starts nurseries as processes of this machine, and hands them over to the agents in this one."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._owner = os.getpid()
        self._processes: dict[Handle, subprocess.Popen[bytes]] = {}

    def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
        """Start `count` nurseries; they go into sessions of their own, so that a Ctrl-C at the terminal does not reach them."""
        started = []
        for _ in range(count):
            process = self._start()
            handle = Handle(str(process.pid))
            self._processes[handle] = process
            started.append(handle)
        return started

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            stdout, stderr = _inherited(1), _inherited(2)
            ours, theirs = _socket_pair()
        except OSError as error:
            raise not_started(error) from error
        try:
            process = subprocess.Popen(
                _command(str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=worker_environment(os.environ),
            )
        except OSError as error:
            ours.close()
            raise not_started(error) from error
        finally:
            theirs.close()
        self._run.adopt(ours, process)
        return process

    def plan(self, count: int, demand: Demand = ANY) -> Plan:
        """Return the command line of a nursery; SOCKET stands for the number of the descriptor that joins it to its agent."""
        return Plan(count, {"argv": _command("SOCKET")})

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Report]:
        """Return the state of each worker that this launcher started."""
        reports = {handle: report_of(self._processes[handle]) for handle in handles if handle in self._processes}
        return {handle: report for handle, report in reports.items() if report is not None}

    def cancel(self, handles: Sequence[Handle]) -> None:
        """Wait 2 s for what ends by itself, its agent being gone, and kill the rest."""
        if os.getpid() != self._owner:
            return
        processes = [self._processes.pop(handle) for handle in handles if handle in self._processes]
        for process in processes:
            process.send_signal(signal.SIGCONT)  # a stopped process does not see that its agent is gone
        deadline = time.monotonic() + LEAVE_SECONDS
        left = [process for process in processes if not ended_by(process, deadline)]
        for process in left:
            process.kill()
        deadline = time.monotonic() + REAP_SECONDS
        for process in left:
            if not ended_by(process, deadline):
                logger.warning("worker process %d does not end even when killed", process.pid)

    def close(self) -> None:
        """Stop every worker that is left."""
        self.cancel(list(self._processes))


def _command(descriptor: str) -> list[str]:
    return [sys.executable, "-P", "-m", "gridengine.cradle", descriptor]


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a local worker: this one, but nothing is imported from relative folders."""
    kept = {name: value for name, value in environment.items() if name not in ("PYTHONPATH", "PYTHONINSPECT")}
    path = python_path(environment.get("PYTHONPATH", ""))
    return kept | ({"PYTHONPATH": path} if path else {})


def not_started(error: OSError) -> Exception:
    """Return what to raise when a process could not be started."""
    if error.errno in (errno.EAGAIN, errno.ENOMEM):
        return TryAgain(f"cannot start a process: {error.strerror}")
    hint = "raise `ulimit -n`" if error.errno in (errno.EMFILE, errno.ENFILE) else None
    return WorkerNotStarted(f"cannot start {sys.executable}: {error.strerror}", host=socket.gethostname(), hint=hint)


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return two ends of which none has the number of a standard stream, should one of those be closed here."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        ours, theirs = (socket.socket(fileno=fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, 3)) for end in pair)
    finally:
        for end in pair:
            end.close()
    return ours, theirs


def _inherited(descriptor: int) -> int | None:
    """Return what gives a child this descriptor, or the null device when it is closed here."""
    try:
        os.fstat(descriptor)
    except OSError:
        return subprocess.DEVNULL
    return None


def report_of(process: subprocess.Popen[bytes]) -> Report | None:
    """Return the state of a process; None when it cannot be learned now (too many open files, say)."""
    status = process.poll()
    if status is None:
        try:
            stopped = psutil.Process(process.pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        except (psutil.Error, OSError):
            return None
        return Report(TaskState.SUSPENDED if stopped else TaskState.RUNNING)
    reason = exit_words(status)
    error = WorkerNotStarted(
        f"the worker process ended before it called home: {reason}",
        host=socket.gethostname(),
        hint="its own words, if any, are on standard error",
    )
    return Report(TaskState.FAILED if status else TaskState.ENDED, reason, error)


def exit_words(status: int) -> str:
    """Return an exit status as `subprocess` gives it, in words."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def ended_by(process: subprocess.Popen[bytes], deadline: float) -> bool:
    """Wait for a process until this monotonic time; return whether it has ended."""
    try:
        process.wait(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True
