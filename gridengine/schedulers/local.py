"""Workers on this machine. Usually one fork server has as many runners as there are cores to use,
and its agent is in the dispatcher's own thread. Or processes connect by TCP, as a cluster's workers
do.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import fcntl
import functools
import math
import operator
import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from abc import abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Never

from gridengine.arguments import Seconds, to_gigabytes, whole
from gridengine.call_context import EXPORTED, KEPT, SCRATCH
from gridengine.errors import ConfigurationError, GridEngineError, WorkerNotStarted, exit_words
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.demand import ANY, Demand, encode_demand
from gridengine.resources.kinds import Cores, GPUs, Memory
from gridengine.schedulers.base import Scheduler, check_resources
from gridengine.schedulers.detect import this_allocation, usable_cores
from gridengine.schedulers.launcher import (
    Handle,
    LaunchContext,
    Launcher,
    LaunchPlan,
    Report,
    TryAgain,
    WorkerStatus,
)
from gridengine.schedulers.worker_command import (
    code_command,
    environment_variables,
    interpreter_flags,
    python_path,
    worker_command,
)
from gridengine.system import nvidia_gpus, usable_memory

KILL_SECONDS = 0.5
"""How long a killed process may take to end."""


class LocalLauncher(Launcher):
    """Starts processes of this machine. Resources that calls request are not reserved."""

    leave_signal = signal.SIGTERM
    """The signal that tells a process to leave."""
    leave_seconds = 10.0
    """How long a process may take to leave."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._processes: dict[Handle, subprocess.Popen[bytes]] = {}

    @abstractmethod
    def _start(self, demand: Demand) -> subprocess.Popen[bytes]:
        """Start one worker for calls of this demand, in a session of its own, which a Ctrl-C at the
        terminal does not reach.

        Raises:
            TryAgain, GridEngineError: the system refuses.
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
        """Tell these workers to leave, and kill those that do not in time."""
        if os.getpid() != self._owner:
            return
        processes = [self._processes.pop(handle) for handle in handles if handle in self._processes]
        for process in processes:
            process.send_signal(self.leave_signal)
        remaining = _still_running(processes, self.leave_seconds)
        for process in remaining:
            process.kill()
        for process in _still_running(remaining, KILL_SECONDS):
            import logging  # here: a first fork server starts before it is imported

            logging.getLogger("gridengine").warning(
                "worker process %d does not end even when killed", process.pid
            )

    def close(self) -> None:
        self.cancel(list(self._processes))


class TcpProcessLauncher(LocalLauncher):
    """Starts workers that connect to a running dispatcher by TCP, as a cluster's workers do. They
    hold the resources of the demand; if the demand has none, the same as the dispatcher's other
    workers. Where they share no files with the callers, their calls run in the folder `scratch`.
    """

    def __init__(self, connection: Path, scratch: str = "") -> None:
        super().__init__()
        self._connection = connection
        self._scratch = scratch

    def _start(self, demand: Demand) -> subprocess.Popen[bytes]:
        names = names_of_variables(os.environ, self._scratch)
        try:
            return subprocess.Popen(
                self._command(demand),
                stdin=subprocess.DEVNULL,
                env={**worker_environment(os.environ), **names},
                start_new_session=True,
            )
        except OSError as error:
            raise start_error(error) from error

    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        """Return the workers' command line."""
        return LaunchPlan(count, {"argv": self._command(demand)})

    def _command(self, demand: Demand) -> list[str]:
        import msgspec  # here: a first fork server starts before this is imported

        parts, _ = encode_demand(demand)
        held = [msgspec.json.encode(parts).decode()] if parts else []
        return worker_command(sys.executable, self._connection, *held)


def names_of_variables(environment: Mapping[str, str], scratch: str = "") -> dict[str, str]:
    """Return the variables by which a worker tells the variables of its own machine from those of a
    caller: calls have their caller's, except the variables of a batch job that set the number of
    threads. `scratch` is the worker's folder, where it shares no files with its callers.
    """
    from gridengine.wire.processes import fork_hooks

    with fork_hooks().importing:
        from gridengine.call_context.process_resources import THREADS

    own = {name for name in THREADS if name in environment} if this_allocation() else set()
    return {EXPORTED: "=".join(environment), KEPT: "=".join(own), SCRATCH: scratch}


def _still_running(
    processes: Sequence[subprocess.Popen[bytes]], seconds: float
) -> list[subprocess.Popen[bytes]]:
    """Wait this long for processes to end; return those that have not."""
    deadline = time.monotonic() + seconds
    remaining = []
    for process in processes:
        try:
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            remaining.append(process)
    return remaining


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return this environment for a local worker, without relative folders to import from. If
    coverage.py measures this process, it also measures the worker, provided that it is configured
    for processes of `multiprocessing` or for processes that end by `os._exit`.
    """
    kept = {
        name: value
        for name, value in environment.items()
        if name not in ("PYTHONPATH", "PYTHONINSPECT")
    }
    path = python_path(environment.get("PYTHONPATH", ""))
    return kept | ({"PYTHONPATH": path} if path else {}) | _coverage_variables()


def _coverage_variables() -> dict[str, str]:
    """Return the variable by which coverage.py starts in a new Python with the same configuration
    as here (`coverage.patch`). With `patch = subprocess`, coverage.py sets the variable itself. Its
    settings for forked processes do not apply, since the fork server is not forked from this
    process.
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
    """Return the error to raise if a process could not be started."""
    if error.errno in (errno.EAGAIN, errno.ENOMEM):
        return TryAgain(f"cannot start a process: {error.strerror}")
    hint = "raise `ulimit -n`" if error.errno in (errno.EMFILE, errno.ENFILE) else None
    return WorkerNotStarted(
        f"cannot start {sys.executable}: {error.strerror}", host=socket.gethostname(), hint=hint
    )


def report_of(process: subprocess.Popen[bytes]) -> Report | None:
    """Return the state of a process; None if it cannot be learned now (too many open files)."""
    status = process.poll()
    if status is None:
        from gridengine.wire.processes import fork_hooks  # there is a dispatcher by now

        with fork_hooks().importing:
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


FORK_SERVER = (
    "import gc, sys; gc.disable(); there = sys.modules.setdefault('typing_extensions'); "
    "from gridengine.worker.runner import fork_server; "
    "there or sys.modules.pop('typing_extensions'); fork_server()"
)
"""Garbage is not looked for while modules are imported: they make none. msgspec does without
typing_extensions, whose import would be a third of all: what it takes from there is `typing`'s own
from Python 3.11 on.
"""
OTHER_WORDS = ("max_threads", "workers", "n_workers", "max_worker", "processes", "n_jobs")
"""What other libraries, and earlier versions of this one, call `max_workers`."""
MOST_PROCESSES = 1 << 22
"""More than any system allows."""


class ProcessScheduler(Scheduler):
    """Runs calls in processes of this machine, which share its cores, memory and GPUs.

    Args:
        max_workers: how many cores to use; a call that requests no cores takes one (default: as
            many as this process may use; in a batch job no more than the job has).
        min_workers: above 0 the processes stay while they have nothing to do (default 0).
        start_timeout: for how many seconds calls may wait for their first process, as with a
            cluster's scheduler (default: the setting).
        worker_resources: further resources, such as `Token("licence") & Capacity(3)`; or less of a
            resource, memory for example, than the machine has.
        environment: variables for the calls, besides those of their caller.

    Raises:
        TypeError, ConfigurationError: an argument has a wrong type or value; the text names it and
            its value.
    """

    idle_seconds = 60.0

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        min_workers: int = 0,
        start_timeout: Seconds | None = None,
        worker_resources: Resource = ZERO,
        environment: Mapping[str, str] = MappingProxyType({}),
        **unknown: Never,
    ) -> None:
        for name in unknown:
            instead = "; say max_workers" if name in OTHER_WORDS else ""
            raise TypeError(
                f"{type(self).__name__}() got an unexpected keyword argument {name!r}{instead}"
            )
        self._environment: dict[str, str] = {}
        if environment:
            self._environment = environment_variables("environment", environment)
        cores = usable_cores() if max_workers is None else whole("max_workers", max_workers)
        kept = whole("min_workers", min_workers, least=0, most=cores)
        super().__init__(max_workers=1, min_workers=min(kept, 1), start_timeout=start_timeout)
        self._extra = worker_resources
        self._hold(held_resources(worker_resources, cores, asked=max_workers is not None))
        self._ahead: deque[SpawnedForkServer] = deque()
        weakref.finalize(self, _end_spawned, self._ahead)  # if no call came

    def __repr__(self) -> str:
        extra = "" if self._extra == ZERO else f", worker_resources={self._extra!r}"
        return f"ProcessScheduler(max_workers={self.slots}{extra})"

    def launcher(self, run: LaunchContext) -> ProcessLauncher:
        return ProcessLauncher(run, self._ahead, self._environment)

    def _prepare(self) -> None:
        """Start the fork server, whose imports take as long as this process's next ones."""
        with self._lock:
            if self._shared is None and not self._closed and not self._ahead:
                # If it fails to start, the launcher fails again, and tells the reason.
                with contextlib.suppress(GridEngineError, TryAgain):
                    self._ahead.append(SpawnedForkServer.start(self._environment))

    def close(self) -> None:
        super().close()
        with self._lock:
            _end_spawned(self._ahead)


class UnboundedProcessScheduler(ProcessScheduler):
    """Starts each call at once, as `multiprocessing.Process` does: only the system limits them."""

    def __init__(self) -> None:
        super().__init__()
        self._spare = self.slots
        self.slots, self.worker_resources = MOST_PROCESSES, None

    def __repr__(self) -> str:
        return "UnboundedProcessScheduler()"


class SpawnedForkServer(NamedTuple):
    """A fork server that this process has started and that no agent has taken over yet.

    sock: our end of its socket. process: its process. environment: the variables that it was
    started with. owner: the id of the process that started it; a fork of that must leave it alone.
    """

    sock: socket.socket
    process: subprocess.Popen[bytes]
    environment: dict[str, str]
    owner: int

    @classmethod
    def start(cls, added: Mapping[str, str]) -> SpawnedForkServer:
        """Start a fork server; `added` are variables for its calls, besides their caller's.

        Raises:
            TryAgain: there are too many processes now, or too little memory.
            WorkerNotStarted: the system refuses.
        """
        try:
            stdout, stderr = _inherited(1), _inherited(2)
            ours, theirs = _socket_pair()
        except OSError as error:
            raise start_error(error) from error
        environment = _environment(added)
        try:
            process = subprocess.Popen(
                _command(str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=environment,
                start_new_session=True,  # a Ctrl-C at the terminal while it imports its modules
            )
        except OSError as error:
            ours.close()
            raise start_error(error) from error
        finally:
            theirs.close()
        return cls(ours, process, environment, os.getpid())

    def end(self) -> None:
        """Kill the fork server, unless this process is a fork of the one that started it."""
        self.sock.close()
        if self.owner == os.getpid():
            self.process.kill()
            self.process.wait()


def _environment(added: Mapping[str, str]) -> dict[str, str]:
    own = worker_environment(os.environ)
    return {**own, **added, KEPT: "=".join(added)} if added else own


def held_resources(resources: Resource, cores: int, *, asked: bool) -> Resource:
    """Return resources, with this machine's own for the kinds that they lack."""
    check_resources("worker_resources", resources)
    given = resources.get(Cores)
    if given is not None and asked and cores != given.N:
        raise ConfigurationError(
            f"max_workers={cores}, and worker_resources={resources!r}: which is it?",
            hint="say it once",
        )
    have = [Cores(cores), memory_here(), *gpus_of_machine()]
    return functools.reduce(
        operator.and_, (one for one in have if resources.get(type(one)) is None), resources
    )


def memory_here(cores: int = 0) -> Memory:
    """Return the memory of this machine, or of its batch job on a node with this many cores."""
    allocation = this_allocation()
    granted = (
        math.inf if allocation is None else allocation.memory_beside(cores or allocation.cores)
    )
    limit = int(min(usable_memory(), granted))
    return Memory(int(100 * to_gigabytes(limit)) / 100)  # short enough to be read


def gpus_of_machine() -> list[Resource]:
    """Return the GPUs for this process: those in CUDA_VISIBLE_DEVICES, else the driver's."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    named = [] if visible is None else [word.strip() for word in visible.split(",")]
    usable = [word for word in named if word not in ("", "-1", "NoDevFiles")]
    count = nvidia_gpus() if visible is None else len(usable)
    return [GPUs(count)] if count else []


def _end_spawned(servers: deque[SpawnedForkServer]) -> None:
    with contextlib.suppress(IndexError):
        while True:
            servers.popleft().end()


class ProcessLauncher(LocalLauncher):
    """Starts fork servers on this machine, and passes them to the agents in this process."""

    leave_signal = signal.SIGCONT
    """It leaves by itself when its agent is gone, but not while it is stopped."""
    leave_seconds = 2.0

    def __init__(
        self,
        run: LaunchContext,
        ahead: deque[SpawnedForkServer] | None = None,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        self._run = run
        self._environment = environment
        self._ahead = deque() if ahead is None else ahead

    def _start(self, demand: Demand) -> subprocess.Popen[bytes]:
        server = self._started_ahead() or SpawnedForkServer.start(self._environment)
        self._run.adopt(server.sock, server.process)
        return server.process

    def _started_ahead(self) -> SpawnedForkServer | None:
        """Return a fork server that this process started ahead in this environment, if any."""
        with contextlib.suppress(IndexError):
            server = self._ahead.popleft()
            if server.owner == os.getpid() and server.environment == _environment(
                self._environment
            ):
                return server
            server.end()
        return None

    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        """Return the command line of a fork server; SOCKET stands for a descriptor's number."""
        return LaunchPlan(count, {"argv": _command("SOCKET")})


def _command(descriptor: str) -> list[str]:
    return code_command(sys.executable, interpreter_flags(), FORK_SERVER, descriptor)


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return a socket pair without the numbers of standard streams that are closed here."""
    pair = socket.socketpair()
    try:
        ours, theirs = (
            socket.socket(fileno=fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, 3))
            for end in pair
        )
        for end in (ours, theirs):
            end.setblocking(True)  # whatever a user's `socket.setdefaulttimeout`
    finally:
        for end in pair:
            end.close()
    return ours, theirs


def _inherited(descriptor: int) -> int | None:
    """Return `Popen`'s argument for a child's stream: ours, or the null device if closed."""
    try:
        os.fstat(descriptor)
    except OSError:
        return subprocess.DEVNULL
    return None
