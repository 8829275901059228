"""`Launcher`: the interface by which the dispatcher uses a scheduler. It starts, watches and stops
workers, and reports on them.
"""

from __future__ import annotations

import enum
import functools
import math
import re
import shlex
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, TypeAlias

from gridengine.errors import GridEngineError
from gridengine.resources.demand import ANY, Demand


class WorkerStatus(enum.Enum):
    """The state of a launched worker, as the batch system or the operating system reports it."""

    QUEUED = "queued"
    RUNNING = "running"
    SUSPENDED = "suspended"
    ENDED = "ended"
    FAILED = "failed"


class Report(NamedTuple):
    """The scheduler's report on one worker.

    Attributes:
        reason: why it waits or how it ended, in the batch system's own words.
        error: the error to raise if the worker never connected; for a waiting worker, the error
            that says that it can never start.
        deleted: whether somebody deleted it.
        fault: the error that caused its end, if the batch system says (`OutOfMemory`,
            `TimeoutError`).
        blameless: whether neither the calls nor the worker caused its end: its place went to
            another job.
        uncertain: whether the batch system only lost sight of it, so that it may live on.
        remaining_seconds: how long it may still run, by a limit of the script, a variable or the
            site.
        lasts_seconds: if only that is known, how long it may run from its start.
        limited_by: that limit in the batch system's words, if it has some.
        host: its node, by the name with which the launcher can leave it out of later launches
            (`Launcher.left_out`); empty if it is unknown or cannot be left out.
    """

    state: WorkerStatus
    reason: str = ""
    error: GridEngineError | None = None
    deleted: bool = False
    fault: type[GridEngineError] | None = None
    blameless: bool = False
    uncertain: bool = False
    remaining_seconds: float = math.inf
    lasts_seconds: float = math.inf
    limited_by: str = ""
    host: str = ""


failed = functools.partial(Report, WorkerStatus.FAILED)
"""Makes the report on a worker that did not end in order."""


class Handle(NamedTuple):
    """One launched worker: its id in the batch system, or its process id, and its log, if any."""

    id: str
    log: str = ""


def compress(ids: Iterable[str]) -> list[str]:
    """Return the ids of tasks as ranges that the batch system's commands take: Slurm's "12_1",
    "12_2", "12_4" become "12_[1-2,4]", Grid Engine's "12.1", "12.2" become "12.1-2".
    """
    arrays: dict[str, set[int]] = {}
    single = []
    for id in ids:
        array = re.fullmatch(r"(\d+[._])(\d+)", id)
        if array is None:
            single.append(id)
        else:
            arrays.setdefault(array[1], set()).add(int(array[2]))
    return single + [
        f"{job}[{_ranges(tasks)}]" if job.endswith("_") else f"{job}{_ranges(tasks)}"
        for job, tasks in arrays.items()
    ]


def _ranges(numbers: Iterable[int]) -> str:
    parts = []
    for _, group in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        span = [number for _, number in group]
        parts.append(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}")
    return ",".join(parts)


class TryAgain(Exception):
    """The batch system takes no jobs now: a limit is reached, or it is away."""


class BatchSystemError(Exception):
    """A batch system gave no answer, or refused; the text has its own words."""


class Unreachable(BatchSystemError):
    """The system cannot be reached now, or does not answer: nothing is known."""


class Unavailable(BatchSystemError):
    """A command or library that is needed is not here, or does not work."""


class BatchSystemRefusal(BatchSystemError):
    """The answer is no. `output` is the command's standard output."""

    def __init__(self, words: str, output: str = "") -> None:
        super().__init__(words)
        self.output = output


class LaunchContext(NamedTuple):
    """The launcher's view of its dispatcher.

    A worker elsewhere is started with the file `connection` in the run directory `directory`
    (0700), and connects to one of `addresses`. A worker on this machine is passed to the dispatcher
    by `adopt(socket, process)`, with its fork server. With an `epoch` above 0 the workers are to
    outlive this process.
    """

    id: str
    directory: Path
    connection: Path
    adopt: Callable[[socket.socket, subprocess.Popen[bytes]], None]
    addresses: tuple[str, ...] = ()
    epoch: int = 0


class LaunchPlan(NamedTuple):
    """The submission that `launch` would make: the number of workers, the request, the script."""

    count: int  # type: ignore[assignment]
    request: Mapping[str, object]
    script: str = ""

    def __str__(self) -> str:
        fields = {"count": self.count, **self.request}
        lines = [
            f"{name}: {shlex.join(value) if isinstance(value, list) else value}"
            for name, value in fields.items()
        ]
        return "\n".join([*lines, *(["", self.script.rstrip()] if self.script else [])])


LaunchesAhead: TypeAlias = Callable[[], list[Handle]]
"""Returns the handles of workers that began to start ahead of calls, if any do."""
MARGIN_SECONDS = 60.0
"""A cluster task is requested for this much longer than a call may take: for the worker to start,
and to leave in order.
"""


class Launcher(ABC):
    """Starts, watches and stops workers; knows nothing of calls. Used by one thread."""

    label = ""
    """The name of the calls that the next launch is for."""
    left_out: tuple[str, ...] = ()
    """The hosts that the next launch may not use, because workers could not be started there."""
    request_words = ""
    """The request of the last launch, in the batch system's words."""

    @abstractmethod
    def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
        """Start `count` workers for calls of this demand, or fewer if the site takes no more at a
        time; return a handle for each.

        Raises:
            TryAgain: not now; the caller repeats this later.
            GridEngineError: the request is refused for ever; with the batch system's own words.
        """

    def launch_ahead(self, demand: Demand) -> LaunchesAhead:
        """Begin to start one worker for calls of this demand, which are about to be submitted.
        Return the function that waits until the batch system has answered.

        Raises:
            GridEngineError: as `launch`, which will raise it again.
        """
        return list

    @abstractmethod
    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Report]:
        """Return reports on these workers. A worker without a report need not be dead."""

    @abstractmethod
    def cancel(self, handles: Sequence[Handle]) -> None:
        """Stop these workers, or withdraw them from the queue; some may have ended."""

    def facts(self) -> Mapping[str, str]:
        """Return the facts that `adopt` needs besides the handles."""
        return {}

    def adopt(  # noqa: B027 - most launchers' workers end with them
        self, handles: Mapping[Handle, Demand], facts: Mapping[str, str]
    ) -> None:
        """Take over an earlier epoch's workers, with its `facts`. Must be called first of all."""

    def keep(self, handles: Collection[Handle]) -> None:  # noqa: B027 - as above
        """Have exactly these workers stay, for the next epoch, if this process is killed."""

    @abstractmethod
    def close(self) -> None:
        """Stop all remaining workers, and release everything. May be called twice."""

    @abstractmethod
    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        """Return the submission that `launch` would make, and change nothing.

        Raises:
            GridEngineError: it could not be submitted.
        """

    def explain(self, handles: Sequence[Handle]) -> str:
        """Return why these queued workers wait, in the batch system's words; empty if unknown."""
        return ""
