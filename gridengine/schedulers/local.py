"""Workers on this machine: one nursery, with as many runners as there are processors to use."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import logging
import operator
import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gridengine.errors import ConfigurationError, GridEngineError, WorkerNotStarted
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.demand import ANY, Demand
from gridengine.resources.kinds import Cores, GPUs, Memory
from gridengine.resources.units import to_gigabytes, whole
from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.launcher import (
    Handle,
    LaunchContext,
    Launcher,
    LaunchPlan,
    Report,
    TryAgain,
    WorkerStatus,
)
from gridengine.schedulers.worker_command import interpreter_flags, python_command, python_path
from gridengine.wire.socket_pairs import socket_pair

logger = logging.getLogger("gridengine")

LEAVE_SECONDS = 2.0
"""How long a nursery has to end what is below it."""
REAP_SECONDS = 0.5
MOST_PROCESSES = 1 << 22
"""More than any system lets there be (proc(5): /proc/sys/kernel/pid_max)."""


class ProcessScheduler(Scheduler):
    """Runs calls in processes of this machine: they share its cores, memory and GPUs.

    Args:
        max_workers: how many cores there are to give; a call that does not say how many it wants
            has one (default: as many as this process may use).
        start_timeout: for how many seconds calls may wait for their first process, as with a
            cluster's scheduler (default: the setting).
        worker_resources: what there is besides, as `Token("licence") & Capacity(3)`; or less
            memory, say, than the machine has.

    Raises:
        TypeError, ConfigurationError: an argument is not what it must be; the text names it and its
        value.
    """

    idle_seconds = 60.0

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        start_timeout: float | None = None,
        worker_resources: Resource = ZERO,
    ) -> None:
        super().__init__(max_workers=1, start_timeout=start_timeout)
        cores = (
            len(os.sched_getaffinity(0))
            if max_workers is None
            else whole("max_workers", max_workers)
        )
        self._besides = worker_resources
        self.hold(_with_default(worker_resources, cores, asked=max_workers is not None))
        self._ahead: deque[SpawnedForkServer] = deque()
        weakref.finalize(self, _end_all, self._ahead)  # one that no call came to

    def __repr__(self) -> str:
        besides = "" if self._besides == ZERO else f", worker_resources={self._besides!r}"
        return f"ProcessScheduler(max_workers={self.slots}{besides})"

    def launcher(self, run: LaunchContext) -> ProcessLauncher:
        """Return what starts the one worker of this scheduler."""
        return ProcessLauncher(run, self._ahead)

    def prepare(self) -> None:
        """Start the nursery, which takes as long to import what it needs as this process does."""
        # What keeps it from starting now is found again, and told, by the launcher.
        with self._lock, contextlib.suppress(GridEngineError, TryAgain):
            if self._shared is None and not self._closed and not self._ahead:
                self._ahead.append(SpawnedForkServer.start())

    def close(self) -> None:
        """End the workers. Calls that have not ended are cancelled. May be called twice."""
        super().close()
        with self._lock:
            _end_all(self._ahead)


class UnboundedProcessScheduler(ProcessScheduler):
    """Starts each call at once, in a process of this machine, as `multiprocessing.Process` does:
    the system alone bounds how many run.
    """

    def __init__(self) -> None:
        super().__init__()
        self.spare = self.slots
        self.slots, self.worker_resources = MOST_PROCESSES, None

    def __repr__(self) -> str:
        return "UnboundedProcessScheduler()"


@dataclass(frozen=True, slots=True)
class SpawnedForkServer:
    """A nursery that nobody has taken over: our end of its socket, its process, and with what
    environment and by whom it was started.
    """

    sock: socket.socket
    process: subprocess.Popen[bytes]
    environment: dict[str, str]
    owner: int

    @classmethod
    def start(cls) -> SpawnedForkServer:
        """Start a nursery.

        Raises:
            TryAgain: there are too many processes now, or too little memory.
            WorkerNotStarted: the system says no.
        """
        try:
            stdout, stderr = _inherited(1), _inherited(2)
            ours, theirs = _socket_pair()
        except OSError as error:
            raise not_started(error) from error
        environment = worker_environment(os.environ)
        try:
            process = subprocess.Popen(
                _command(str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=environment,
            )
        except OSError as error:
            ours.close()
            raise not_started(error) from error
        finally:
            theirs.close()
        return cls(ours, process, environment, os.getpid())

    def end(self) -> None:
        """End it, if it is ours to end: it has not begun anything."""
        self.sock.close()
        if self.owner == os.getpid():
            self.process.kill()
            self.process.wait()


def _with_default(resources: Resource, cores: int, *, asked: bool) -> Resource:
    """Return resources with what this machine has of the kinds that they do not say."""
    if not isinstance(resources, Resource):
        raise TypeError(
            f"worker_resources must be resources, as Memory(8) & Token('a'), not {resources!r}"
        )
    said = resources.get(Cores)
    if said is not None and asked and cores != said.N:
        raise ConfigurationError(
            f"max_workers={cores}, and worker_resources={resources!r}: which is it?",
            hint="say it once",
        )
    have = [Cores(cores), Memory(to_gigabytes(memory_of_machine())), *gpus_of_machine()]
    return functools.reduce(
        operator.and_, (one for one in have if resources.get(type(one)) is None), resources
    )


def memory_of_machine() -> int:
    """Return the bytes of memory that this process may have: the machine's, or its control group's
    (cgroups(7)) if that is less.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # there is none, or it is "max"
            limits.append(int(Path(path).read_text()))
    return min(limits)


def gpus_of_machine() -> list[Resource]:
    """Return the GPUs that this process may use: those of CUDA_VISIBLE_DEVICES, else those that
    NVIDIA's driver lists.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        folder = Path("/proc/driver/nvidia/gpus")
        count = len(list(folder.iterdir())) if folder.is_dir() else 0
    else:
        count = len(
            [word for word in visible.split(",") if word.strip() not in ("", "-1", "NoDevFiles")]
        )
    return [GPUs(count)] if count else []


def _end_all(newborns: deque[SpawnedForkServer]) -> None:
    with contextlib.suppress(IndexError):
        while True:
            newborns.popleft().end()


class ProcessLauncher(Launcher):
    """Starts nurseries as processes of this machine, and hands them over to the agents in this
    one.
    """

    def __init__(self, run: LaunchContext, ahead: deque[SpawnedForkServer] | None = None) -> None:
        self._run = run
        self._ahead = deque() if ahead is None else ahead
        self._owner = os.getpid()
        self._processes: dict[Handle, subprocess.Popen[bytes]] = {}

    def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
        """Start `count` nurseries; they go into sessions of their own, so that a Ctrl-C at the
        terminal does not reach them.
        """
        started = []
        for _ in range(count):
            process = self._start()
            handle = Handle(str(process.pid))
            self._processes[handle] = process
            started.append(handle)
        return started

    def _start(self) -> subprocess.Popen[bytes]:
        newborn = self._started_ahead() or SpawnedForkServer.start()
        self._run.adopt(newborn.sock, newborn.process)
        return newborn.process

    def _started_ahead(self) -> SpawnedForkServer | None:
        """Return a nursery that was started ahead, unless the environment has changed, or this
        process is a fork of who did.
        """
        with contextlib.suppress(IndexError):
            newborn = self._ahead.popleft()
            if newborn.owner == os.getpid() and newborn.environment == worker_environment(
                os.environ
            ):
                return newborn
            newborn.end()
        return None

    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        """Return the command line of a nursery; SOCKET stands for the number of the descriptor that
        joins it to its agent.
        """
        return LaunchPlan(count, {"argv": _command("SOCKET")})

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Report]:
        """Return the state of each worker that this launcher started."""
        reports = {
            handle: report_of(self._processes[handle])
            for handle in handles
            if handle in self._processes
        }
        return {handle: report for handle, report in reports.items() if report is not None}

    def cancel(self, handles: Sequence[Handle]) -> None:
        """Wait 2 s for what ends by itself, its agent being gone, and kill the rest."""
        if os.getpid() != self._owner:
            return
        processes = [self._processes.pop(handle) for handle in handles if handle in self._processes]
        for process in processes:
            process.send_signal(
                signal.SIGCONT
            )  # a stopped process does not see that its agent is gone
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
    return python_command(
        sys.executable, interpreter_flags(), "gridengine.worker.forkserver_main", descriptor
    )


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a local worker: this one, but nothing is imported from relative
    folders.
    """
    kept = {
        name: value
        for name, value in environment.items()
        if name not in ("PYTHONPATH", "PYTHONINSPECT")
    }
    path = python_path(environment.get("PYTHONPATH", ""))
    return kept | ({"PYTHONPATH": path} if path else {})


def not_started(error: OSError) -> Exception:
    """Return what to raise when a process could not be started."""
    if error.errno in (errno.EAGAIN, errno.ENOMEM):
        return TryAgain(f"cannot start a process: {error.strerror}")
    hint = "raise `ulimit -n`" if error.errno in (errno.EMFILE, errno.ENFILE) else None
    return WorkerNotStarted(
        f"cannot start {sys.executable}: {error.strerror}", host=socket.gethostname(), hint=hint
    )


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return two ends of which none has the number of a standard stream, should one of those be
    closed here.
    """
    pair = socket_pair(socket.SOCK_SEQPACKET)
    try:
        ours, theirs = (
            socket.socket(fileno=fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, 3))
            for end in pair
        )
        ours.setblocking(True)
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
        f"the worker process ended before it called home: {reason}",
        host=socket.gethostname(),
        hint="its own words, if any, are on standard error",
    )
    return Report(WorkerStatus.FAILED if status else WorkerStatus.ENDED, reason, error)


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
