"""What every scheduler is: settings that a user holds, and a launcher that starts, watches and
stops workers.
"""

from __future__ import annotations

import math
import socket
import subprocess
import threading
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, Self, TypeAlias

from gridengine.arguments import number, whole
from gridengine.display import html_table
from gridengine.errors import ConfigurationError, GridEngineError
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.demand import Demand
from gridengine.resources.kinds import Cores
from gridengine.schedulers.launcher import LaunchContext, Launcher, LaunchPlan

MOST_BY_HAND = 100
"""How many workers that no scheduler has started may be connected at a time, at the least."""


class Closeable(Protocol):
    """What is made once for a scheduler and shared by all its users."""

    def close(self, *, wait: bool = True) -> None: ...
    def status(self) -> Any: ...


class Scheduler:
    """What a user holds: settings, and with them the workers that all users of this instance share.

    Args of every scheduler:
        max_workers: the most workers at a time.
        min_workers: so many are asked for at the first use, and kept though they have nothing to do
            (default 0).
        start_timeout: for how many seconds calls may wait for their first worker, then they fail
            with `WorkerNotStarted` (default: the setting, which is for ever).

    Close it, leave its `with`, or let it be collected, and its workers end.
    """

    local = True
    """Whether workers run on this machine, as children of this process, or elsewhere, and call over
    TCP with CURVE.
    """
    starts_workers = True
    """Whether workers are started for calls; if not, people start all of them by hand."""
    slots = 1
    """How many calls one worker runs at a time."""
    _spare: int | None = None
    """How many processes with nothing to do a worker keeps at most; None is as many as it has
    slots.
    """
    idle_seconds = 5.0
    """How long a worker with nothing to do is kept."""
    _start_at_once = False
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

    _not_pickled = (
        "leave it out: calls that a call makes run where it does; or make one in the call",
        "return plain data",
    )
    """What to do instead of handing one over to a call, and of returning one."""

    def __init__(
        self, *, max_workers: int, min_workers: int = 0, start_timeout: float | None = None
    ) -> None:
        self.max_workers = whole("max_workers", max_workers)
        self.min_workers = whole(
            "min_workers",
            min_workers,
            least=0,
            most=self.max_workers,
            hint=f"max_workers is {self.max_workers:,}",
        )
        self.start_timeout = (
            start_timeout
            if start_timeout in (None, math.inf)
            else number("start_timeout", start_timeout)
        )
        self._lock = threading.Lock()
        self._shared: Closeable | None = None
        self._closed = False
        self._finalizer: weakref.finalize[..., Scheduler] | None = None

    @property
    def cores(self) -> int | None:
        """How many calls run at a time on what is this process's own: its machine, the job that it
        is in; None where a cluster is asked for more.
        """
        return self.slots if self.local else None

    def _hold(self, resources: Resource) -> None:
        """Have each worker hold this, for calls to share: it runs all that fits. Without `Cores` it
        has one.

        Raises:
            TypeError: it is no resource.
        """
        check_resources("worker_resources", resources)
        self.worker_resources = (
            resources if resources.get(Cores) is not None else Cores(1) & resources
        )
        self.slots = self.worker_resources.get(Cores).N  # type: ignore[union-attr]

    def launcher(self, run: LaunchContext) -> Launcher:
        """Return what starts this scheduler's workers for a dispatcher.

        Raises:
            NotImplementedError: it starts none.
        """
        raise NotImplementedError(f"{self!r} has no workers to launch")

    def dry_run(
        self, resources: Resource = ZERO, *, count: int = 1, connection: Path | None = None
    ) -> LaunchPlan:
        """Return what would be submitted to start `count` workers for calls that ask for these
        resources. Nothing is submitted or written.

        Workers that calls share (`worker_resources=`) are asked for with all that they hold.
        `connection` is the file that tells the workers whom to call. Without, it is one in a folder
        named `RUN`, in place of the name that a run's folder gets when it begins.

        Raises:
            TypeError, ConfigurationError: an argument is not what it must be, or the site has no
            words for what is asked.
        """
        check_resources("resources", resources)
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
            LaunchContext("RUN", directory, connection or directory / "connection.json", adopt_none)
        )
        try:
            return launcher.plan(whole("count", count), Demand(resources if held is None else held))
        finally:
            launcher.close()

    def _prepare(self) -> None:
        """Calls are about to be submitted: begin what takes long and needs no dispatcher."""

    def _share(self, make: Callable[[], Closeable]) -> Closeable:
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

    def status(self) -> Any:
        """Return what its dispatcher does at this moment, a `gridengine.Status`; None while nothing
        was submitted.

        Raises:
            ConfigurationError: it has been closed, or belongs to another process.
        """
        shared = self._shared
        return None if shared is None else shared.status()

    def _repr_html_(self) -> str:
        return html_table(repr(self), self._facts())

    def _facts(self) -> Iterable[tuple[str, object]]:
        """Return what notebooks show of it."""
        if self._closed:
            return [("state", "closed")]
        try:
            status = self.status()
        except GridEngineError as error:  # it has been closed meanwhile, say, or is another's
            return [("state", error)]
        facts: list[tuple[str, object]] = [("state", "not used yet")]
        return facts if status is None else status.facts()

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

    @property
    def is_unused(self) -> bool:
        """Whether no call was submitted to it yet."""
        return self._shared is None and not self._closed

    def __enter__(self) -> Self:
        ENTERED.add(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        ENTERED.discard(self)
        self.close()


ENTERED: weakref.WeakSet[Scheduler] = weakref.WeakSet()
"""The schedulers of this process that a `with` block closes at its end."""

SchedulerSpec: TypeAlias = Scheduler | Callable[[], Scheduler] | str | None
"""Where calls are to run: a scheduler, a class or callable that gives one; "processes",
"grid_engine", "slurm" or "inline" for this process's own of that name; None for what the settings
say, or for what is best here.
"""


def check_resources(name: str, value: object) -> None:
    """Raise a TypeError that names an argument unless it is resources."""
    if not isinstance(value, Resource):
        raise TypeError(f"{name} must be resources, as Cores(4) & Memory(8), not {value!r}")


def adopt_none(sock: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """Raise: workers elsewhere connect by themselves, so that there is nothing to adopt."""
    raise GridEngineError("workers of this scheduler connect by themselves")
