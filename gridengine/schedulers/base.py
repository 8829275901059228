"""`Scheduler`: the object that a user makes. It has settings, and makes the launcher that starts,
watches and stops workers.
"""

from __future__ import annotations

import importlib
import math
import socket
import subprocess
import threading
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, Protocol, Self, TypeAlias, get_args

from gridengine.arguments import SHOWN, Seconds, parse_seconds, whole
from gridengine.errors import ConfigurationError, GridEngineError, safe_repr
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.demand import Demand
from gridengine.resources.kinds import Cores
from gridengine.schedulers.launcher import LaunchContext, Launcher, LaunchPlan
from gridengine.threads import LiveObjects, raise_dropped_interrupts

Transport: TypeAlias = Literal["tcp", "files"]
TRANSPORTS: tuple[Transport, ...] = get_args(Transport)
MOST_BY_HAND = 100
"""At least this many workers that people started by hand may be connected at a time."""


class Closeable(Protocol):
    """The part of a scheduler that all its users share: its dispatcher, made once."""

    def close(self, *, wait: bool = True) -> None: ...
    def status(self) -> Any: ...


class Scheduler:
    """Settings for workers, and the workers themselves, which all users of this instance share.

    Args of every scheduler:
        max_workers: the most workers at a time.
        min_workers: this many are started at the first use, and stay while they have nothing to do
            (default 0).
        start_timeout: how long calls may wait for their first worker before they fail with
            `WorkerNotStarted` (default: the setting, which is for ever).

    The workers end when the scheduler is closed, at the end of its `with`, or when it is
    garbage-collected.
    """

    local = True
    """Whether workers are children of this process. If not, they are elsewhere."""
    transport: Transport = "tcp"
    """How messages travel between the dispatcher and workers elsewhere: "tcp" or "files"."""
    starts_workers = True
    """Whether it starts workers for calls; if not, people start them by hand."""
    slots = 1
    """How many calls one worker runs at a time."""
    _spare: int | None = None
    """The most idle runners of a worker; None is as many as it has slots."""
    idle_seconds = 5.0
    """How long a worker with nothing to do stays."""
    _start_at_once = False
    """Whether to launch the first workers at once, before the number of calls is known."""
    _starts_ahead = False
    """Whether the first worker may begin to start before the dispatcher is imported."""
    _first_workers = 0
    """If not 0, how many workers to request before it is known how long calls take."""
    jobs_per_worker: int | None = None
    """After how many calls a worker is replaced; None is never."""
    worker_resources: Resource | None = None
    """The resources of each worker, which calls share; None: those that one call requests."""

    walltime: float | None = None
    """For how many seconds a worker may run; None if the user gives no limit."""

    _not_pickled = (
        "leave it out: calls that a call makes run where it does; or make one in the call",
        "return plain data",
    )
    """The remedies for passing a scheduler to a call, and for returning one."""

    def __init__(
        self, *, max_workers: int, min_workers: int = 0, start_timeout: Seconds | None = None
    ) -> None:
        raise_dropped_interrupts()  # early: each import may drop one
        self.max_workers = whole("max_workers", max_workers)
        self.min_workers = whole(
            "min_workers",
            min_workers,
            least=0,
            most=self.max_workers,
            hint=f"max_workers is {self.max_workers:,}",
        )
        self.start_timeout: float | None = (
            start_timeout
            if start_timeout in (None, math.inf)
            else parse_seconds("start_timeout", start_timeout)
        )
        self._lock = threading.Lock()
        self._shared: Closeable | None = None
        self._closed = False
        self._finalizer: weakref.finalize[..., Scheduler] | None = None

    @property
    def cores(self) -> int | None:
        """How many calls run at a time on this process's own machine or job; None on a cluster."""
        return self.slots if self.local else None

    def _hold(self, resources: Resource) -> None:
        """Have each worker hold these resources, for calls to share; one core if they have none."""
        check_resources("worker_resources", resources)
        self.worker_resources = (
            resources if resources.get(Cores) is not None else Cores(1) & resources
        )
        self.slots = self.worker_resources.get(Cores).N  # type: ignore[union-attr]

    def launcher(self, run: LaunchContext) -> Launcher:
        """Return the launcher of this scheduler's workers for a dispatcher.

        Raises:
            NotImplementedError: this scheduler starts no workers.
        """
        raise NotImplementedError(f"{self!r} has no workers to launch")

    def dry_run(
        self, resources: Resource = ZERO, *, count: int = 1, connection: Path | None = None
    ) -> LaunchPlan:
        """Return the submission that would start `count` workers for calls that request these
        resources. Nothing is submitted or written.

        Workers that calls share (`worker_resources=`) are requested with everything that they hold.

        connection: the file by which the workers connect (default: one in a folder named `RUN`,
            which stands for the name that a run's folder gets when it begins).

        Raises:
            TypeError, ConfigurationError: an argument has a wrong type or value, or the site has no
                words for a request.
        """
        check_resources("resources", resources)
        held = self.worker_resources
        if held is not None:
            from gridengine.resources.packing import Packer

            # Raises if no worker can ever hold the resources.
            Packer[int, int]([held]).add(0, resources, 0.0)
        # Imported here, since few need it, and workers start sooner without.
        from gridengine.settings.values import settings

        directory = settings().runs / "RUN"
        launcher = self.launcher(
            LaunchContext("RUN", directory, connection or directory / "connection.json", adopt_none)
        )
        try:
            return launcher.plan(whole("count", count), Demand(resources if held is None else held))
        finally:
            launcher.close()

    def _prepare(self) -> None:
        """Begin slow work that needs no dispatcher: calls are about to be submitted."""

    def _share(self, make: Callable[[], Closeable]) -> Closeable:
        """Return the object that all users of this instance share; `make` makes it at the first
        call.

        Raises:
            ConfigurationError: the scheduler has been closed.
        """
        with self._lock:
            if self._closed:
                raise ConfigurationError(f"{self!r} has been closed", hint="make a new one")
            if self._shared is None:
                self._shared = make()
                # The collector may run in any thread, even one that holds locks: do not wait there.
                self._finalizer = weakref.finalize(self, self._shared.close, wait=False)
                self._finalizer.atexit = False
            return self._shared

    def status(self) -> Any:
        """Return its dispatcher's present state, a `gridengine.Status`; None before the first call.

        Raises:
            ConfigurationError: it has been closed, or belongs to another process.
        """
        shared = self._shared
        return None if shared is None else shared.status()

    def actor(
        self,
        make: Callable[..., Any],
        /,
        *args: Any,
        resources: Resource | None = None,
        **kwargs: Any,
    ) -> Any:
        """Make an object that lives in a worker, `make(*args, **kwargs)`, and return its handle, a
        `gridengine.Actor`, at once: see `docs/actors.md`. The object has a process of its own until
        the handle is shut down or nobody has it any more.

        Args:
            make: a class, or a function that returns the object.
            args, kwargs: taken as they are now; a future stands for its result.
            resources: what the object's process needs, for as long as it lives.

        Raises:
            TypeError, ConfigurationError: an argument is not what it must be, or no worker can hold
                the resources, or the class has a method with a name of the handle's own.
            PicklingError: the class or an argument cannot be pickled.
        """
        # By its name: this import goes up, and only those who make an actor follow it.
        module = importlib.import_module("gridengine.api.actor")
        return module.Actor(self, make, args, kwargs, resources)

    def _repr_html_(self) -> str:
        from gridengine.display import html_table  # notebooks alone

        return html_table(repr(self), self._facts())

    def _facts(self) -> Iterable[tuple[str, object]]:
        """Return the rows that notebooks show."""
        if self._closed:
            return [("state", "closed")]
        try:
            status = self.status()
        except GridEngineError as error:  # closed meanwhile, or another process's
            return [("state", error)]
        facts: list[tuple[str, object]] = [("state", "not used yet")]
        return facts if status is None else status.facts()

    def close(self) -> None:
        """End the workers. Calls that have not ended are cancelled. May be called twice."""
        with self._lock:
            self._closed = True
            shared, finalizer = self._shared, self._finalizer
        if shared is not None and finalizer is not None:
            finalizer.detach()
            shared.close()

    @property
    def is_unused(self) -> bool:
        """Whether no call was submitted yet."""
        return self._shared is None and not self._closed

    def __enter__(self) -> Self:
        ENTERED.add(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        ENTERED.discard(self)
        self.close()


ENTERED = LiveObjects[Scheduler]()
"""The schedulers of this process whose `with` block is open."""

SchedulerSpec: TypeAlias = Scheduler | Callable[[], Scheduler] | str | None
"""Where calls are to run: a scheduler; a class or callable that returns one; a name, as
"processes", "grid_engine", "slurm" or "inline", for this process's own; None for the settings'
choice, or the best that is here.
"""


def chosen_transport(given: object) -> Transport:
    """Return the transport that an argument names; without one, the setting's.

    Raises:
        ConfigurationError: there is no such transport.
    """
    from gridengine.settings.values import settings  # here, since local workers have no transport

    if given is None:
        return settings().transport
    for name in TRANSPORTS:
        if given == name:
            return name
    raise ConfigurationError(
        f"transport must be 'tcp' or 'files', not {safe_repr(given, most=SHOWN)}",
        hint="'files' is for nodes that cannot reach this machine",
    )


def check_resources(name: str, value: object) -> None:
    """Raise a TypeError that names the argument, unless its value is resources."""
    if not isinstance(value, Resource):
        alone = ", which map and its kin alone take" if value == "as measured" else ""
        text = f"{name} must be resources, such as Cores(4) & Memory(8), not {value!r}{alone}"
        raise TypeError(text)


def adopt_none(sock: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """Raise: workers elsewhere connect by themselves, and have no socket to adopt."""
    raise GridEngineError("workers of this scheduler connect by themselves")
