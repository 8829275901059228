"""What every scheduler is: settings that a user holds, and a launcher that starts, watches and stops workers."""

from __future__ import annotations

import enum
import os
import shlex
import socket
import subprocess
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, TypeAlias

from gridengine.adjust import scaled
from gridengine.errors import ConfigurationError, GridEngineError
from gridengine.resources import ZERO, Cores, Memory, Resource
from gridengine.units import to_bytes


class TaskState(enum.Enum):
    """What the batch system, or the operating system, says of a worker that was launched."""

    QUEUED = "queued"
    RUNNING = "running"
    SUSPENDED = "suspended"
    ENDED = "ended"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Report:
    """The scheduler's word on one worker.

    `reason` is in the batch system's own words; `error` says what to raise when the worker never called home, and, of one that is queued,
    that it can never start; `deleted` whether somebody deleted it; `fault` which error the batch system's record makes of its end, if it
    says (`OutOfMemory`, `TimeoutError`); `blameless` whether neither the calls nor the worker had a part in its end: the batch system gave
    its place to another job, say.
    """

    state: TaskState
    reason: str = ""
    error: GridEngineError | None = None
    deleted: bool = False
    fault: type[GridEngineError] | None = None
    blameless: bool = False


@dataclass(frozen=True, slots=True)
class Handle:
    """One launched worker. `id` is the batch system's own (a process id for local ones); `log` the file its output goes to, or empty."""

    id: str
    log: str = ""


@dataclass(frozen=True, slots=True)
class Demand:
    """What calls ask for, and what workers are asked for: calls of equal demands share workers.

    `resources` is what one call asks for. `factor` is by how much the memory that was asked for, here or in the scheduler's own words, is
    to be multiplied: more than 1 when a call is run again after it ran out of memory.
    """

    resources: Resource = ZERO
    factor: float = 1.0

    @property
    def request(self) -> Resource:
        """What one call asks for by now."""
        return scaled(self.resources, memory=self.factor)

    @property
    def memory_limit(self) -> int:
        """The limit of one call in bytes, 0 when there is none."""
        memory = self.resources.get(Memory)
        return 0 if memory is None else int(to_bytes(memory.M) * self.factor)


class TryAgain(Exception):
    """The batch system does not take the request for now (a limit is reached, the master is away); nothing was submitted."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a launcher needs to know of the dispatcher it works for.

    Elsewhere than on this machine a worker is started with the file `connection` in the run directory `directory` (0700). On this
    machine its nursery is handed over by `adopt(socket, process)`.
    """

    id: str
    directory: Path
    connection: Path
    adopt: Callable[[socket.socket, subprocess.Popen[bytes]], None]


ANY = Demand()
"""No demand."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be submitted: how many workers by one request, that request's fields, and the script that each of them runs."""

    count: int
    request: Mapping[str, object]
    script: str = ""

    def __str__(self) -> str:
        fields = {"count": self.count, **self.request}
        lines = [f"{name}: {shlex.join(value) if isinstance(value, list) else value}" for name, value in fields.items()]
        return "\n".join([*lines, *(["", self.script.rstrip()] if self.script else [])])


MARGIN_SECONDS = 60.0
"""By how much longer a cluster task is asked for than a call may take: for the worker to start, and to leave in order."""


class Launcher(ABC):
    """Starts, watches and stops workers; knows nothing of tasks. All its methods are called from one thread of its own."""

    @abstractmethod
    def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
        """Start `count` workers for calls of this demand, or fewer when the site takes no more at a time; return a handle for each.

        Raises:
            TryAgain: not now; the caller asks again later.
            GridEngineError: never; with the batch system's own words.
        """

    @abstractmethod
    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Report]:
        """Return what is known of these workers. A handle of which nothing can be learned now is left out: that is never a death."""

    @abstractmethod
    def cancel(self, handles: Sequence[Handle]) -> None:
        """Stop these workers, or withdraw them from the queue. Those that have ended are no error."""

    @abstractmethod
    def close(self) -> None:
        """Stop every worker that is left and give back what is held. May be called twice."""

    @abstractmethod
    def plan(self, count: int, demand: Demand = ANY) -> Plan:
        """Return what `launch` would submit, and change nothing.

        Raises:
            GridEngineError: it could not be submitted.
        """

    def explain(self, handles: Sequence[Handle]) -> str:
        """Return, in the batch system's words, what these queued workers wait for; empty when it does not say."""
        return ""


class Closeable(Protocol):
    """What is made once for a scheduler and shared by all its users."""

    def close(self, *, wait: bool = True) -> None: ...


class Scheduler(ABC):
    """What a user holds: settings, and with them the workers that all users of this instance share.

    Args of every scheduler:
        max_workers: the most workers at a time.
        start_timeout: for how many seconds calls may wait for their first worker, then they fail with `WorkerNotStarted` (default: the
            setting, which is for ever).

    Close it, leave its `with`, or let it be collected, and its workers end.
    """

    local = True
    """Whether workers run on this machine, as children of this process, or elsewhere, and call over TCP with CURVE."""
    slots = 1
    """How many calls one worker runs at a time."""
    idle_seconds = 5.0
    """How long a worker with nothing to do is kept."""
    start_at_once = False
    """Whether the first workers start at once where there is room: then they are asked for before it is known how many are wanted."""
    jobs_per_worker: int | None = None
    """After how many calls a worker is replaced; None is never."""
    worker_resources: Resource | None = None
    """What each worker holds, for calls to share; None has each worker hold what one call asks for."""
    walltime: float | None = None
    """For how many seconds a worker may be there, None where nobody says."""

    def __init__(self, *, max_workers: int, start_timeout: float | None = None) -> None:
        self.max_workers = positive("max_workers", max_workers)
        self.start_timeout = None if start_timeout is None else positive_seconds("start_timeout", start_timeout)
        self._lock = threading.Lock()
        self._shared: Closeable | None = None
        self._closed = False
        self._finalizer: weakref.finalize[..., Scheduler] | None = None

    def hold(self, resources: Resource) -> None:
        """Have each worker hold this, for calls to share: it runs all that fits. Without `Cores` it has one.

        Raises:
            TypeError: it is no resource.
        """
        if not isinstance(resources, Resource):
            raise TypeError(f"worker_resources must be resources, as Cores(4) & Memory(8), not {resources!r}")
        self.worker_resources = resources if resources.get(Cores) is not None else Cores(1) & resources
        self.slots = self.worker_resources.get(Cores).N  # type: ignore[union-attr]

    @abstractmethod
    def launcher(self, run: Run) -> Launcher:
        """Return what starts this scheduler's workers for a dispatcher."""

    def dry_run(self, resources: Resource = ZERO, *, count: int = 1, connection: Path | None = None) -> Plan:
        """Return what would be submitted to start `count` workers for calls that ask for these resources. Nothing is submitted or written.

        Workers that calls share (`worker_resources=`) are asked for with all that they hold.
        `connection` is the file that tells the workers whom to call. Without, it is one in a folder named `RUN`, in place of the name that
        a run's folder gets when it begins.

        Raises:
            TypeError, ConfigurationError: an argument is not what it must be, or the site has no words for what is asked.
        """
        if not isinstance(resources, Resource):
            raise TypeError(f"resources must be resources, as Cores(4) & Memory(8), not {resources!r}")
        held = self.worker_resources
        if held is not None:
            from gridengine.packing import Packer

            Packer[int, int]([held]).add(0, resources, 0.0)  # raises when no worker can ever hold it
        from gridengine.config import settings  # here, since few ask, and workers start the sooner

        directory = settings().runs / "RUN"
        launcher = self.launcher(Run("RUN", directory, connection or directory / "connection.json", adopt_none))
        try:
            return launcher.plan(positive("count", count), Demand(resources if held is None else held))
        finally:
            launcher.close()

    def prepare(self) -> None:  # noqa: B027 - most have nothing to begin
        """Calls are about to be submitted: begin what takes long and needs no dispatcher."""

    def share(self, make: Callable[[], Closeable]) -> Closeable:
        """Return the one thing that all users of this instance share; `make` makes it the first time.

        Raises:
            ConfigurationError: the scheduler has been closed.
        """
        with self._lock:
            if self._closed:
                raise ConfigurationError(f"{self!r} has been closed", hint="make a new one")
            if self._shared is None:
                self._shared = make()
                # The collector may run in any thread, one that holds locks too: there nobody waits for the end.
                self._finalizer = weakref.finalize(self, self._shared.close, wait=False)
                self._finalizer.atexit = False
            return self._shared

    def close(self) -> None:
        """End this scheduler's workers. Calls that have not ended are cancelled. May be called twice."""
        with self._lock:
            self._closed = True
            shared, finalizer = self._shared, self._finalizer
        if shared is not None and finalizer is not None:
            finalizer.detach()
            shared.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


Place: TypeAlias = Scheduler | Callable[[], Scheduler] | None
"""Where calls are to run: a scheduler, a class or callable that gives one, or None for what is best here."""


def adopt_none(sock: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """Stand where nothing is to be adopted: workers elsewhere call by themselves."""
    raise GridEngineError("workers of this scheduler call by themselves")


def positive(name: str, value: object) -> int:
    """Return `value` when it is a positive whole number.

    Raises:
        TypeError, ConfigurationError: it is not; the text names the argument and the value.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if value < 1:
        raise ConfigurationError(f"{name} must be at least 1, not {value}")
    return value


def positive_seconds(name: str, value: object) -> float:
    """Return `value` when it is a positive number of seconds; infinite is one.

    Raises:
        TypeError, ConfigurationError: it is not; the text names the argument and the value.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, not {value!r}")
    if not value > 0:
        raise ConfigurationError(f"{name} must be more than 0 seconds, not {value!r}")
    return float(value)


def worker_command(python: str, connection: Path) -> list[str]:
    """Return the argument list that starts a worker. `-P`: it imports nothing from the working directory."""
    return [python, "-P", "-m", "gridengine.worker", str(connection)]


def python_path(inherited: str) -> str:
    """Return the PYTHONPATH for a worker, given the caller's own; empty when it needs none.

    Relative entries are dropped: they would mean another folder there. When this package is not installed but lies in a
    checkout, say, that folder comes last.
    """
    entries = [entry for entry in inherited.split(os.pathsep) if Path(entry).is_absolute()]
    home = Path(__file__).resolve().parents[2]
    if home.name not in ("site-packages", "dist-packages"):
        entries.append(str(home))
    return os.pathsep.join(dict.fromkeys(entries))
