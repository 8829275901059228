"""What the core keeps of calls and workers: plain data."""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING

from msgspec import Struct, field

from gridengine.dispatcher.core.provisioner import LaunchedWorker
from gridengine.dispatcher.core.tasks import Attempt, Function, Task
from gridengine.resources.demand import Demand
from gridengine.wire.messages import Hello

if TYPE_CHECKING:
    from gridengine.dispatcher.core.task_queue import TaskQueue


class Pace(Struct, eq=False):
    """How long calls take now: their mean duration in seconds; None while it is not known."""

    seconds: float | None = None

    def measured(self, calls: int, seconds: float) -> None:
        """Learn from an answer; a longer duration counts at once, a shorter one bit by bit."""
        mean = max(seconds, 0.0) / calls
        self.seconds = (
            mean if self.seconds is None or mean > self.seconds else 0.5 * (self.seconds + mean)
        )

    def exceeded(self, seconds: float) -> None:
        """Learn that a call has taken so long already."""
        self.seconds = max(seconds, self.seconds or 0.0)


class RemoteObject(Struct):
    """A function in use, or kept for a while after: its open tasks, its workers, and how long its
    calls take, whoever submits them.

    Or, `shared`, an object that such refer to, which is kept for as long as handles for it are
    `held`.
    """

    function: Function
    open: int = 0
    shared: bool = False
    held: bool = False
    workers: set[bytes] = field(default_factory=set)
    pace: Pace = field(default_factory=Pace)


class Submitter(Struct, eq=False):
    """Who has calls here: how many tasks are open, and how many batches of them workers have, which
    with their loads are its share.

    `served` is the number of the run that was handed out last; `last` the function that was
    submitted last, and how long its calls take.
    """

    number: int
    open: int = 0
    batches: int = 0
    load: int = 0
    served: int = 0
    last: tuple[RemoteObject, Pace] | None = None

    def pace(self, function: RemoteObject) -> Pace:
        """Return how long calls of a function take, now that it is submitted: at first as long as
        those of others.
        """
        if self.last is None or self.last[0] is not function:
            self.last = function, Pace(function.pace.seconds)
        return self.last[1]


class Open(Struct, gc=False):
    """A task not all of whose calls are settled.

    `needs` are the shared objects that it or its function refers to; `order` is its place among all
    tasks, and `since` when it was submitted; `cancelled` is the signal that it was ended with, 0
    while nobody ended it; `recalled`: the calls, from one to before another, that are not to begin
    any more.
    """

    task: Task
    function: RemoteObject
    unsettled: int
    submitter: Submitter
    pace: Pace
    needs: tuple[RemoteObject, ...] = ()
    order: int = 0
    since: float = 0.0
    cancelled: int = 0
    recalled: tuple[tuple[int, int], ...] = ()
    runs: dict[int, None] = field(default_factory=dict)
    attempts: dict[int, list[Attempt]] = field(default_factory=dict)

    def measured(self, calls: int, seconds: float) -> None:
        """Learn from an answer how long calls take."""
        self.pace.measured(calls, seconds)
        self.function.pace.measured(calls, seconds)


class Span(Struct, frozen=True, gc=False):
    """Calls `start` to `stop` of a task, waiting for their attempt number `attempt` by a worker of
    this demand.
    """

    open: Open
    start: int
    stop: int
    demand: Demand
    attempt: int = 1

    @property
    def calls(self) -> int:
        """How many calls there are."""
        return self.stop - self.start


class Batch(Struct, gc=False):
    """What one runner was given at a time: how many of its runs have not ended, and its part in the
    share of its submitter.

    That of quick calls is half as large: half of their batches wait behind others at their workers.
    `heard`: when its last answer came, or when it began; None while it waits at the worker.
    """

    left: int = 0
    load: int = 2
    heard: float | None = None


class SlotGroup(Struct, eq=False):
    """What a pool has of a worker: room for `slots` batches at a time.

    `allocation` is the number of the allocation that the worker knows, 0 for calls that ask for
    nothing; `lent` are the packer's numbers of what was given for these slots, where workers are
    shared.
    """

    worker: Worker
    pool: TaskQueue
    slots: int
    allocation: int = 0
    batches: int = 0
    lent: list[int] = field(default_factory=list)


class Run(Struct):
    """A span that a worker was given; the calls before `done` are settled.

    `since`: when it was given, or began; `touched`: when it was last answered or called back;
        `recalled`: whether it was called back;
    `limit`: the seconds that each of its calls may take, None when nothing limits them.
    """

    number: int
    span: Span
    seat: SlotGroup
    batch: Batch
    done: int
    since: float
    touched: float
    limit: float | None = None
    recalled: bool = False

    @property
    def worker(self) -> Worker:
        """Who was given it."""
        return self.seat.worker


class Phase(enum.Enum):
    """Where a worker stands."""

    READY = "ready"
    SILENT = "silent"
    STOPPING = "stopping"
    GONE = "gone"


NEXT_PHASES = {
    Phase.READY: {Phase.SILENT, Phase.STOPPING, Phase.GONE},
    Phase.SILENT: {Phase.READY, Phase.STOPPING, Phase.GONE},
    Phase.STOPPING: {Phase.GONE},
    Phase.GONE: set(),
}


class Worker(Struct):
    """A worker that called home.

    `fruitless`: how often in a row it gave work back and did none. `since`: when it called home.
    `leave_at`: when it is to leave, before its walltime is over. `suspects`: of one that said
    goodbye, the runs that may be to blame. `farewell`: what it said, while it is waited for what
    the batch system says of its end. `generation`: of the caller's modules, the last that it was
    told of.
    """

    id: bytes
    hello: Hello
    heard_at: float
    idle_since: float
    pool: TaskQueue
    phase: Phase = Phase.READY
    started: LaunchedWorker | None = None
    seats: list[SlotGroup] = field(default_factory=list)
    runs: dict[int, Run] = field(default_factory=dict)
    functions: set[bytes] = field(default_factory=set)
    since: float = 0.0
    leave_at: float = math.inf
    batches: int = 0
    taken: int = 0
    fruitless: int = 0
    stopping_since: float = 0.0
    suspects: set[int] | None = None
    farewell: str = ""
    generation: int = 0

    @property
    def job(self) -> str:
        """The batch system's id, when it is known; empty for a process of this machine, which has
        no log of its own.
        """
        return (
            self.started.handle.id if self.started is not None and self.started.handle.log else ""
        )

    def enter(self, phase: Phase) -> None:
        """Change the phase; an illegal change is a fault of this package."""
        if phase not in NEXT_PHASES[self.phase]:
            raise AssertionError(f"a worker cannot go from {self.phase} to {phase}")
        self.phase = phase

    def spare(self) -> list[Run]:
        """Return the runs not all of whose calls have begun, as far as is known here."""
        begun = self.under_way()
        return [
            run
            for run in self.runs.values()
            if run.number not in begun or run.span.stop - run.done > 1
        ]

    def under_way(self) -> set[int]:
        """Return the runs that its runners are in: they take batches, and the runs of a batch, in
        order.
        """
        first: dict[int, int] = {}
        taken: dict[int, int] = {}
        for number, run in self.runs.items():
            seat = id(run.seat)
            if id(run.batch) not in first and taken.get(seat, 0) < run.seat.slots:
                first[id(run.batch)] = number
                taken[seat] = taken.get(seat, 0) + 1
        return set(first.values())
