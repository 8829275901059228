"""What the dispatcher needs of a scheduler: a launcher that starts, watches and stops workers,
and what it reports.
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
from typing import NamedTuple

from gridengine.errors import GridEngineError
from gridengine.resources.demand import ANY, Demand


class WorkerStatus(enum.Enum):
    """What the batch system, or the operating system, says of a worker that was launched."""

    QUEUED = "queued"
    RUNNING = "running"
    SUSPENDED = "suspended"
    ENDED = "ended"
    FAILED = "failed"


class Report(NamedTuple):
    """The scheduler's word on one worker.

    `reason` is in the batch system's own words; `error` says what to raise when the worker never
    connected, and, of one that is queued, that it can never start; `deleted` whether somebody
    deleted it; `fault` which error the batch system's record makes of its end, if it says
    (`OutOfMemory`, `TimeoutError`); `blameless` whether neither the calls nor the worker had a
    part in its end: the batch system gave its place to another job, say; `uncertain` that the
    batch system has only lost sight of it: it may live on; `remaining_seconds` how long one that
    runs may run on, by a limit that the script, a variable or the site has set; or, where only that
    is known, `lasts_seconds` how long it may from its start. `limited_by` is that limit in the
    batch system's words, where it has some.
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


failed = functools.partial(Report, WorkerStatus.FAILED)
"""The report on a worker that did not end in order."""


class Handle(NamedTuple):
    """One launched worker. `id` is the batch system's own (a process id for local ones); `log` the
    file its output goes to, or empty.
    """

    id: str
    log: str = ""


def compress(ids: Iterable[str]) -> list[str]:
    """Return ids of single tasks as the batch system's own commands take them, few for many:
    Slurm's "12_1", "12_2", "12_4" as "12_[1-2,4]", Grid Engine's "12.1", "12.2" as "12.1-2".
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
    """The batch system does not take the request for now (a limit is reached, the master is away);
    nothing was submitted.
    """


class BatchSystemError(Exception):
    """A batch system gave no answer, or another than was hoped for; the text holds its own
    words.
    """


class Unreachable(BatchSystemError):
    """It cannot be reached now, or does not answer: nothing is known."""


class Unavailable(BatchSystemError):
    """What speaks to it is not here, or does not work: a command, a library."""


class Refused(BatchSystemError):
    """Its answer is no. `output` is what it said besides."""

    def __init__(self, words: str, output: str = "") -> None:
        super().__init__(words)
        self.output = output


class LaunchContext(NamedTuple):
    """What a launcher needs to know of the dispatcher it works for.

    Elsewhere than on this machine a worker is started with the file `connection` in the run
    directory `directory` (0700), and connects to one of `addresses`. On this machine its fork
    server is handed over by `adopt(socket, process)`. `epoch` is the number of this process among
    those that are one dispatcher, started again, where there may be others: what it has launched is
    to outlive it.
    """

    id: str
    directory: Path
    connection: Path
    adopt: Callable[[socket.socket, subprocess.Popen[bytes]], None]
    addresses: tuple[str, ...] = ()
    epoch: int = 0


class LaunchPlan(NamedTuple):
    """What would be submitted: how many workers by one request, that request's fields, and the
    script that each of them runs.
    """

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


MARGIN_SECONDS = 60.0
"""By how much longer a cluster task is asked for than a call may take: for the worker to start, and
to leave in order.
"""


class Launcher(ABC):
    """Starts, watches and stops workers; knows nothing of tasks. All its methods are called from
    one thread of its own.
    """

    label = ""
    """What the calls are called that the next launch is for."""
    request_words = ""
    """What the last launch asked for, in the batch system's words."""

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

    def facts(self) -> Mapping[str, str]:
        """Return what `adopt` has to know, besides the handles."""
        return {}

    def adopt(  # noqa: B027 - most launchers' workers end with them
        self, handles: Mapping[Handle, Demand], facts: Mapping[str, str]
    ) -> None:
        """Go on with these workers, which a launcher of an earlier process has launched for calls
        of these demands; it had these `facts`. Called before all else.
        """

    def keep(self, handles: Collection[Handle]) -> None:  # noqa: B027 - as above
        """Have these workers, and no others, stay when this process is gone and has not closed
        this: it is on record where another finds them.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop every worker that is left and give back what is held. May be called twice."""

    @abstractmethod
    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        """Return what `launch` would submit, and change nothing.

        Raises:
            GridEngineError: it could not be submitted.
        """

    def explain(self, handles: Sequence[Handle]) -> str:
        """Return, in the batch system's words, what these queued workers wait for; empty when it
        does not say.
        """
        return ""
