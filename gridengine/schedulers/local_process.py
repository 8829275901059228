"""Processes of this machine as workers: how they are started, what state they are in, how they
end.
"""

from __future__ import annotations

import copy
import errno
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from gridengine.errors import GridEngineError, WorkerNotStarted, exit_words
from gridengine.resources.demand import ANY, Demand, encode_demand
from gridengine.schedulers.detect import this_allocation
from gridengine.schedulers.launcher import (
    Handle,
    Launcher,
    LaunchPlan,
    Report,
    TryAgain,
    WorkerStatus,
)
from gridengine.schedulers.worker_command import python_path, worker_command

logger = logging.getLogger("gridengine")

KILL_SECONDS = 0.5
"""How long a process that was killed may take to end."""


class LocalLauncher(Launcher):
    """Starts processes of this machine. What calls ask for is not kept from others on it."""

    leave_signal = signal.SIGTERM
    """What a process is sent first when it is to leave."""
    leave_seconds = 10.0
    """How long it has to do so."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._processes: dict[Handle, subprocess.Popen[bytes]] = {}

    @abstractmethod
    def _start(self, demand: Demand) -> subprocess.Popen[bytes]:
        """Start one worker for calls of this demand, in a session of its own, so that a
        Ctrl-C at the terminal does not reach it.

        Raises:
            TryAgain, GridEngineError: the system says no.
        """

    def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
        started: list[Handle] = []
        for _ in range(count):
            try:
                process = self._start(demand)
            except (TryAgain, GridEngineError):
                if not started:
                    raise
                break
            started.append(Handle(str(process.pid)))
            self._processes[started[-1]] = process
        return started

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Report]:
        return {
            handle: report
            for handle in handles
            if handle in self._processes
            and (report := report_of(self._processes[handle])) is not None
        }

    def cancel(self, handles: Sequence[Handle]) -> None:
        """Have these workers leave, and kill those that have not in time."""
        if os.getpid() != self._owner:
            return
        processes = [self._processes.pop(handle) for handle in handles if handle in self._processes]
        for process in processes:
            process.send_signal(self.leave_signal)
        remaining = _still_running(processes, self.leave_seconds)
        for process in remaining:
            process.kill()
        for process in _still_running(remaining, KILL_SECONDS):
            logger.warning("worker process %d does not end even when killed", process.pid)

    def close(self) -> None:
        self.cancel(list(self._processes))


class TcpProcessLauncher(LocalLauncher):
    """Starts workers that connect to their dispatcher by TCP, as a cluster's do: for one that runs
    already, here or elsewhere. They hold what they are asked for with; where that is nothing, what
    the dispatcher's other workers do.
    """

    def __init__(self, connection: Path) -> None:
        super().__init__()
        self._connection = connection

    def _start(self, demand: Demand) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._command(demand),
                stdin=subprocess.DEVNULL,
                env={**worker_environment(os.environ), **names_of_variables(os.environ)},
                start_new_session=True,
            )
        except OSError as error:
            raise start_error(error) from error

    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        """Return the workers' command line."""
        return LaunchPlan(count, {"argv": self._command(demand)})

    def _command(self, demand: Demand) -> list[str]:
        parts, _ = encode_demand(demand)
        import msgspec  # here: a first fork server starts before this is imported

        held = [msgspec.json.encode(parts).decode()] if parts else []
        return worker_command(sys.executable, self._connection, *held)


def names_of_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return which variables of this environment say what a login, and not what this machine, is:
    calls have their caller's in the place of those. How many threads a batch job has is the job's.
    """
    from gridengine.worker.environment import EXPORTED, KEPT
    from gridengine.worker.process_resources import THREADS

    own = {name for name in THREADS if name in environment} if this_allocation() else set()
    return {EXPORTED: "=".join(environment), KEPT: "=".join(own)}


def _still_running(
    processes: Sequence[subprocess.Popen[bytes]], seconds: float
) -> list[subprocess.Popen[bytes]]:
    """Wait so long for processes to end; return those that have not."""
    deadline = time.monotonic() + seconds
    remaining = []
    for process in processes:
        try:
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            remaining.append(process)
    return remaining


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a local worker: this one, but nothing is imported from relative
    folders. When coverage.py measures this process, and is configured to measure processes of
    `multiprocessing` or such as end by `os._exit`, it measures the worker.
    """
    kept = {
        name: value
        for name, value in environment.items()
        if name not in ("PYTHONPATH", "PYTHONINSPECT")
    }
    path = python_path(environment.get("PYTHONPATH", ""))
    return kept | ({"PYTHONPATH": path} if path else {}) | _coverage_variables()


def _coverage_variables() -> dict[str, str]:
    """Return the variable by which coverage.py starts in a new Python with the configuration that
    it has here (`coverage.patch`). It sets the variable itself for `patch = subprocess`; its
    settings for forked processes find none here.
    """
    coverage = sys.modules.get("coverage")
    measuring = None if coverage is None else coverage.Coverage.current()
    if measuring is None or not hasattr(measuring.config, "serialize"):  # older than 7.10
        return {}
    config = copy.copy(measuring.config)
    forked = "_exit" in config.patch or "multiprocessing" in config.concurrency
    if not forked or "subprocess" in config.patch:
        return {}
    config.parallel = True  # each process has a data file of its own
    return {"COVERAGE_PROCESS_CONFIG": config.serialize()}


def start_error(error: OSError) -> Exception:
    """Return what to raise when a process could not be started."""
    if error.errno in (errno.EAGAIN, errno.ENOMEM):
        return TryAgain(f"cannot start a process: {error.strerror}")
    hint = "raise `ulimit -n`" if error.errno in (errno.EMFILE, errno.ENFILE) else None
    return WorkerNotStarted(
        f"cannot start {sys.executable}: {error.strerror}", host=socket.gethostname(), hint=hint
    )


def report_of(process: subprocess.Popen[bytes]) -> Report | None:
    """Return the state of a process; None when it cannot be learned now (too many open files,
    say).
    """
    status = process.poll()
    if status is None:
        import psutil

        try:
            stopped = psutil.Process(process.pid).status() in (
                psutil.STATUS_STOPPED,
                psutil.STATUS_TRACING_STOP,
            )
        except (psutil.Error, OSError):
            return None
        return Report(WorkerStatus.SUSPENDED if stopped else WorkerStatus.RUNNING)
    reason = exit_words(status)
    error = WorkerNotStarted(
        f"the worker process ended before it connected: {reason}",
        host=socket.gethostname(),
        hint="its own words, if any, are on standard error",
    )
    return Report(WorkerStatus.FAILED if status else WorkerStatus.ENDED, reason, error)
