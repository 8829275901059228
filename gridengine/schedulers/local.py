"""Workers on this machine: one fork server, with as many runners as there are processors to
use.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import math
import operator
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Never

from gridengine.arguments import whole
from gridengine.errors import ConfigurationError, GridEngineError
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.demand import ANY, Demand
from gridengine.resources.kinds import Cores, GPUs, Memory
from gridengine.resources.units import to_gigabytes
from gridengine.schedulers.base import Scheduler, check_resources
from gridengine.schedulers.detect import this_allocation, usable_cores
from gridengine.schedulers.launcher import LaunchContext, LaunchPlan, TryAgain
from gridengine.schedulers.local_process import LocalLauncher, start_error, worker_environment
from gridengine.schedulers.worker_command import code_command, interpreter_flags

FORK_SERVER = (
    "import gc; gc.disable(); from gridengine.worker.runner import fork_server; fork_server()"
)
"""Garbage is not looked for while modules are imported: they make none."""
MOST_PROCESSES = 1 << 22
"""More than any system lets there be (proc(5): /proc/sys/kernel/pid_max)."""


class ProcessScheduler(Scheduler):
    """Runs calls in processes of this machine: they share its cores, memory and GPUs.

    Args:
        max_workers: how many cores there are to give; a call that does not say how many it wants
            has one (default: as many as this process may use; in a batch job no more than the
            job has).
        min_workers: above 0 its processes are kept though they have nothing to do (default 0).
        start_timeout: for how many seconds calls may wait for their first process, as with a
            cluster's scheduler (default: the setting).
        worker_resources: what there is besides, as `Token("licence") & Capacity(3)`; or less
            memory, say, than the machine has.
        environment: variables for the calls, besides those of their caller.

    Raises:
        TypeError, ConfigurationError: an argument is not what it must be; the text names it and its
        value.
    """

    idle_seconds = 60.0

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        min_workers: int = 0,
        start_timeout: float | None = None,
        worker_resources: Resource = ZERO,
        environment: Mapping[str, str] = MappingProxyType({}),
        **unknown: Never,
    ) -> None:
        for name in unknown:
            instead = "; say max_workers" if name == "max_threads" else ""
            raise TypeError(
                f"{type(self).__name__}() got an unexpected keyword argument {name!r}{instead}"
            )
        self._environment: dict[str, str] = {}
        if environment:
            from gridengine.schedulers.script import variables  # here: most have none

            self._environment = variables("environment", environment)
        cores = usable_cores() if max_workers is None else whole("max_workers", max_workers)
        kept = whole("min_workers", min_workers, least=0, most=cores)
        super().__init__(max_workers=1, min_workers=min(kept, 1), start_timeout=start_timeout)
        self._extra = worker_resources
        self._hold(held_resources(worker_resources, cores, asked=max_workers is not None))
        self._ahead: deque[SpawnedForkServer] = deque()
        weakref.finalize(self, _end_spawned, self._ahead)  # one that no call came to

    def __repr__(self) -> str:
        extra = "" if self._extra == ZERO else f", worker_resources={self._extra!r}"
        return f"ProcessScheduler(max_workers={self.slots}{extra})"

    def launcher(self, run: LaunchContext) -> ProcessLauncher:
        return ProcessLauncher(run, self._ahead, self._environment)

    def _prepare(self) -> None:
        """Start the fork server: to import what it needs takes it as long as this process."""
        with self._lock:
            if self._shared is None and not self._closed and not self._ahead:
                # What keeps it from starting now is found again, and told, by the launcher.
                with contextlib.suppress(GridEngineError, TryAgain):
                    self._ahead.append(SpawnedForkServer.start(self._environment))

    def close(self) -> None:
        super().close()
        with self._lock:
            _end_spawned(self._ahead)


class UnboundedProcessScheduler(ProcessScheduler):
    """Starts each call at once, in a process of this machine, as `multiprocessing.Process` does:
    the system alone bounds how many run.
    """

    def __init__(self) -> None:
        super().__init__()
        self._spare = self.slots
        self.slots, self.worker_resources = MOST_PROCESSES, None

    def __repr__(self) -> str:
        return "UnboundedProcessScheduler()"


class SpawnedForkServer(NamedTuple):
    """A fork server that no agent has taken over: our end of its socket, its process, and with what
    environment and by whom it was started.
    """

    sock: socket.socket
    process: subprocess.Popen[bytes]
    environment: dict[str, str]
    owner: int

    @classmethod
    def start(cls, added: Mapping[str, str]) -> SpawnedForkServer:
        """Start one whose calls find these variables besides their caller's.

        Raises:
            TryAgain: there are too many processes now, or too little memory.
            WorkerNotStarted: the system says no.
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
            )
        except OSError as error:
            ours.close()
            raise start_error(error) from error
        finally:
            theirs.close()
        return cls(ours, process, environment, os.getpid())

    def end(self) -> None:
        """Kill it, unless this process is a fork of the one that started it."""
        self.sock.close()
        if self.owner == os.getpid():
            self.process.kill()
            self.process.wait()


def _environment(added: Mapping[str, str]) -> dict[str, str]:
    own = worker_environment(os.environ)
    if not added:
        return own
    from gridengine.worker.environment import KEPT  # here: it takes milliseconds, and few need it

    return {**own, **added, KEPT: "=".join(added)}


def held_resources(resources: Resource, cores: int, *, asked: bool) -> Resource:
    """Return resources with what this machine has of the kinds that they do not say."""
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
    """Return how much memory this process may use: all of this machine's, or less that the batch
    job which it runs in has on a node with so many cores (default: its own node's).
    """
    allocation = this_allocation()
    granted = (
        math.inf if allocation is None else allocation.memory_beside(cores or allocation.cores)
    )
    limit = int(min(memory_of_machine(), granted))
    return Memory(int(100 * to_gigabytes(limit)) / 100)  # short enough to be read


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


def _end_spawned(servers: deque[SpawnedForkServer]) -> None:
    with contextlib.suppress(IndexError):
        while True:
            servers.popleft().end()


class ProcessLauncher(LocalLauncher):
    """Starts fork servers as processes of this machine, and hands them over to the agents in this
    one.
    """

    leave_signal = signal.SIGCONT
    """It leaves by itself, its agent being gone; a stopped process does not see that."""
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
        """Return a fork server that was started ahead, unless the environment has changed since, or
        this process is a fork of the one that started it.
        """
        with contextlib.suppress(IndexError):
            server = self._ahead.popleft()
            if server.owner == os.getpid() and server.environment == _environment(
                self._environment
            ):
                return server
            server.end()
        return None

    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        """Return the command line of a fork server; SOCKET stands for the number of the descriptor
        that joins it to its agent.
        """
        return LaunchPlan(count, {"argv": _command("SOCKET")})


def _command(descriptor: str) -> list[str]:
    return code_command(sys.executable, interpreter_flags(), FORK_SERVER, descriptor)


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return two ends of which none has the number of a standard stream, should one of those be
    closed here.
    """
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
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
    """Return what gives a child this descriptor, or the null device when it is closed here."""
    try:
        os.fstat(descriptor)
    except OSError:
        return subprocess.DEVNULL
    return None
