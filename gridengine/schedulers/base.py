"""What every scheduler is: settings that a user holds, and a launcher that starts, watches and
stops workers.
"""

from __future__ import annotations

import copy
import enum
import math
import os
import shlex
import socket
import subprocess
import sys
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self, TypeAlias

from gridengine.errors import ConfigurationError, GridEngineError
from gridengine.resources.base import ZERO, Resource, Says, says
from gridengine.resources.estimates import scaled
from gridengine.resources.kinds import Cores, Memory
from gridengine.resources.units import number, to_bytes, whole


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

    `reason` is in the batch system's own words; `error` says what to raise when the worker never
    called home, and, of one that is queued, that it can never start; `deleted` whether somebody
    deleted it; `fault` which error the batch system's record makes of its end, if it says
    (`OutOfMemory`, `TimeoutError`); `blameless` whether neither the calls nor the worker had a part
    in its end: the batch system gave its place to another job, say.
    """

    state: TaskState
    reason: str = ""
    error: GridEngineError | None = None
    deleted: bool = False
    fault: type[GridEngineError] | None = None
    blameless: bool = False


@dataclass(frozen=True, slots=True)
class Handle:
    """One launched worker. `id` is the batch system's own (a process id for local ones); `log` the
    file its output goes to, or empty.
    """

    id: str
    log: str = ""


@dataclass(frozen=True, slots=True)
class Demand:
    """What calls ask for, and what workers are asked for: calls of equal demands share workers.

    `resources` is what one call asks for. `factor` is by how much the memory that was asked for,
    here or in the scheduler's own words, is to be multiplied: more than 1 when a call is run again
    after it ran out of memory.

    Demands are equal by what their resources say when the first of them is made (`key`): to compare
    them afterwards is no user's code.
    """

    resources: Resource = field(default=ZERO, compare=False)
    factor: float = 1.0
    key: Says = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", says(self.resources))

    def with_factor(self, factor: float) -> Demand:
        """Return the same with another factor."""
        other = copy.copy(self)
        object.__setattr__(other, "factor", factor)
        return other

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
    """The batch system does not take the request for now (a limit is reached, the master is away);
    nothing was submitted.
    """


@dataclass(frozen=True, slots=True)
class Run:
    """What a launcher needs to know of the dispatcher it works for.

    Elsewhere than on this machine a worker is started with the file `connection` in the run
    directory `directory` (0700). On this machine its nursery is handed over by `adopt(socket,
    process)`.
    """

    id: str
    directory: Path
    connection: Path
    adopt: Callable[[socket.socket, subprocess.Popen[bytes]], None]


ANY = Demand()
"""No demand."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be submitted: how many workers by one request, that request's fields, and the
    script that each of them runs.
    """

    count: int
    request: Mapping[str, object]
    script: str = ""

    def __str__(self) -> str:
        fields = {"count": self.count, **self.request}
        lines = [
            f"{name}: {shlex.join(value) if isinstance(value, list) else value}"
            for name, value in fields.items()
        ]
        return "\n".join([*lines, *(["", self.script.rstrip()] if self.script else [])])


MARGIN_SECONDS = 60.0
"""By how much longer a cluster task is asked for than a call may take: for the worker to start, and
to leave in order.
"""


class Launcher(ABC):
    """Starts, watches and stops workers; knows nothing of tasks. All its methods are called from
    one thread of its own.
    """

    @abstractmethod
    def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
        """Start `count` workers for calls of this demand, or fewer when the site takes no more at a
        time; return a handle for each.

        Raises:
            TryAgain: not now; the caller asks again later.
            GridEngineError: never; with the batch system's own words.
        """

    @abstractmethod
    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Report]:
        """Return what is known of these workers. A handle of which nothing can be learned now is
        left out: that is never a death.
        """

    @abstractmethod
    def cancel(self, handles: Sequence[Handle]) -> None:
        """Stop these workers, or withdraw them from the queue. Those that have ended are no
        error.
        """

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
        """Return, in the batch system's words, what these queued workers wait for; empty when it
        does not say.
        """
        return ""


class Closeable(Protocol):
    """What is made once for a scheduler and shared by all its users."""

    def close(self, *, wait: bool = True) -> None: ...


class Scheduler(ABC):
    """What a user holds: settings, and with them the workers that all users of this instance share.

    Args of every scheduler:
        max_workers: the most workers at a time.
        start_timeout: for how many seconds calls may wait for their first worker, then they fail
            with `WorkerNotStarted` (default: the setting, which is for ever).

    Close it, leave its `with`, or let it be collected, and its workers end.
    """

    local = True
    """Whether workers run on this machine, as children of this process, or elsewhere, and call over
    TCP with CURVE.
    """
    slots = 1
    """How many calls one worker runs at a time."""
    spare: int | None = None
    """How many processes with nothing to do a worker keeps at most; None is as many as it has
    slots.
    """
    idle_seconds = 5.0
    """How long a worker with nothing to do is kept."""
    start_at_once = False
    """Whether the first workers start at once where there is room: then they are asked for before
    it is known how many are wanted.
    """
    jobs_per_worker: int | None = None
    """After how many calls a worker is replaced; None is never."""
    worker_resources: Resource | None = None
    """What each worker holds, for calls to share; None has each worker hold what one call asks
    for.
    """
    walltime: float | None = None
    """For how many seconds a worker may be there, None where nobody says."""

    def __init__(self, *, max_workers: int, start_timeout: float | None = None) -> None:
        self.max_workers = whole("max_workers", max_workers)
        self.start_timeout = (
            start_timeout
            if start_timeout in (None, math.inf)
            else number("start_timeout", start_timeout)
        )
        self._lock = threading.Lock()
        self._shared: Closeable | None = None
        self._closed = False
        self._finalizer: weakref.finalize[..., Scheduler] | None = None

    def hold(self, resources: Resource) -> None:
        """Have each worker hold this, for calls to share: it runs all that fits. Without `Cores` it
        has one.

        Raises:
            TypeError: it is no resource.
        """
        if not isinstance(resources, Resource):
            raise TypeError(
                f"worker_resources must be resources, as Cores(4) & Memory(8), not {resources!r}"
            )
        self.worker_resources = (
            resources if resources.get(Cores) is not None else Cores(1) & resources
        )
        self.slots = self.worker_resources.get(Cores).N  # type: ignore[union-attr]

    @abstractmethod
    def launcher(self, run: Run) -> Launcher:
        """Return what starts this scheduler's workers for a dispatcher."""

    def dry_run(
        self, resources: Resource = ZERO, *, count: int = 1, connection: Path | None = None
    ) -> Plan:
        """Return what would be submitted to start `count` workers for calls that ask for these
        resources. Nothing is submitted or written.

        Workers that calls share (`worker_resources=`) are asked for with all that they hold.
        `connection` is the file that tells the workers whom to call. Without, it is one in a folder
        named `RUN`, in place of the name that a run's folder gets when it begins.

        Raises:
            TypeError, ConfigurationError: an argument is not what it must be, or the site has no
            words for what is asked.
        """
        if not isinstance(resources, Resource):
            raise TypeError(
                f"resources must be resources, as Cores(4) & Memory(8), not {resources!r}"
            )
        held = self.worker_resources
        if held is not None:
            from gridengine.resources.packing import Packer

            Packer[int, int]([held]).add(
                0, resources, 0.0
            )  # raises when no worker can ever hold it
        from gridengine.settings.values import (
            settings,
        )  # here, since few ask, and workers start the sooner

        directory = settings().runs / "RUN"
        launcher = self.launcher(
            Run("RUN", directory, connection or directory / "connection.json", adopt_none)
        )
        try:
            return launcher.plan(whole("count", count), Demand(resources if held is None else held))
        finally:
            launcher.close()

    def prepare(self) -> None:  # noqa: B027 - most have nothing to begin
        """Calls are about to be submitted: begin what takes long and needs no dispatcher."""

    def share(self, make: Callable[[], Closeable]) -> Closeable:
        """Return the one thing that all users of this instance share; `make` makes it the first
        time.

        Raises:
            ConfigurationError: the scheduler has been closed.
        """
        with self._lock:
            if self._closed:
                raise ConfigurationError(f"{self!r} has been closed", hint="make a new one")
            if self._shared is None:
                self._shared = make()
                # The collector may run in any thread, one that holds locks too: there nobody waits
                # for the end.
                self._finalizer = weakref.finalize(self, self._shared.close, wait=False)
                self._finalizer.atexit = False
            return self._shared

    def close(self) -> None:
        """End this scheduler's workers. Calls that have not ended are cancelled. May be called
        twice.
        """
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
"""Where calls are to run: a scheduler, a class or callable that gives one, or None for what is best
here.
"""


def adopt_none(sock: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """Stand where nothing is to be adopted: workers elsewhere call by themselves."""
    raise GridEngineError("workers of this scheduler call by themselves")


_HIDING = frozenset({"-I", "-E", "-S", "-s"})
"""The flags that keep an interpreter from importing what the environment, or the user's own folder,
offers.
"""
_HERE_ONLY = frozenset({"-B", "-d", "-q", "-v"})
"""Those that change nothing of what calls do."""


def interpreter_flags() -> list[str]:
    """Return the options by which this interpreter was started, as `multiprocessing` passes them on
    (`-O`, `-W`, `-X`, ...).
    """
    return subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined, no-any-return]


def hiding_flags() -> list[str]:
    """Return those of them that keep an interpreter from importing what the environment offers."""
    return [flag for flag in interpreter_flags() if flag in _HIDING]


def python_command(python: str, flags: Sequence[str], module: str, *arguments: str) -> list[str]:
    """Return what runs a module of this package; `-P`: it imports nothing from the working
    directory.

    Where the flags keep PYTHONPATH from being read, or site-packages from being found, the
    package's own folder is named.
    """
    if not {"-I", "-E", "-S"}.intersection(flags):
        return [python, *flags, "-P", "-m", module, *arguments]
    path = (
        os.pathsep.join(entry for entry in sys.path if Path(entry).is_absolute())
        if "-S" in flags
        else python_path("")
    )
    run = f"runpy.run_module({module!r}, None, '__main__', True)"
    code = (
        f"import runpy, sys; sys.path += filter(None, sys.argv.pop(1).split({os.pathsep!r})); {run}"
    )
    return [python, *flags, "-P", "-c", code, path, *arguments]


def worker_command(python: str, connection: Path) -> list[str]:
    """Return the argument list that starts a worker elsewhere, with those of this interpreter's
    flags that change what calls do.
    """
    flags = [flag for flag in interpreter_flags() if flag[:2] not in _HERE_ONLY]
    return python_command(python, flags, "gridengine.worker", str(connection))


def python_path(inherited: str) -> str:
    """Return the PYTHONPATH for a worker, given the caller's own; empty when it needs none.

    Relative entries are dropped: they would mean another folder there. When this package is not
    installed but lies in a checkout, say, that folder comes last.
    """
    entries = [entry for entry in inherited.split(os.pathsep) if Path(entry).is_absolute()]
    home = Path(__file__).resolve().parents[2]
    if home.name not in ("site-packages", "dist-packages"):
        entries.append(str(home))
    return os.pathsep.join(dict.fromkeys(entries))
