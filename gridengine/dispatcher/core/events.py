"""What goes into the core (events) and comes out of it (effects): plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from gridengine.errors import GridEngineError
from gridengine.resources.base import Resource
from gridengine.schedulers.base import ANY, Demand, Handle, Report
from gridengine.serialize.shared_objects import Lent
from gridengine.wire.messages import SINGLE, Message, Payload


class Function(Struct, frozen=True):
    """A pickled callable, named by its digest, with the caller's `sys.path` and working directory;
    `name` is for people.

    `needs` are the shared objects that it refers to.
    """

    digest: bytes
    payload: Payload
    path: tuple[str, ...]
    directory: str
    name: str
    needs: tuple[Lent, ...] = ()


class Task(Struct, frozen=True, gc=False):
    """What travels: `count` calls of a function, pickled as one list.

    `form` says what the list holds (`protocol.SINGLE`, `STAR`, `FULL`). `retries` is how often a
    call that its surroundings killed is run again, `timeout` the seconds each call may take. A
    `watched` task has its output kept, its start told and its pushed values passed on, and a `name`
    for people; a `controlled` one is given a controller. `first` is the index of its first call
    among all that the user asked for. `escalate_memory` is by how much a call's memory is
    multiplied when it is run again because it ran out of it. `needs` are the shared objects that
    the calls refer to. `submitter` is whose it is: calls of several submitters take turns, and jobs
    have one together.
    """

    id: int
    payload: Payload
    count: int = 1
    form: int = SINGLE
    retries: int = 2
    timeout: float | None = None
    watched: bool = False
    controlled: bool = False
    name: str = ""
    first: int = 0
    demand: Demand = ANY
    escalate_memory: float = 1.0
    needs: tuple[Lent, ...] = ()
    submitter: int = 0


class Attempt(Struct, frozen=True):
    """One run of a call, and how it ended.

    host: the machine. job: the batch system's id of the cluster task, empty where there is none.
    started, ended: seconds of a clock of the dispatcher's process that never jumps and whose zero
        means nothing: only differences do (`time.monotonic`). `started` is when the call was handed
        out, or, for a job, when it began.
    outcome: in words. log: the path of the worker's log, or empty.
    exitcode: as that of a `multiprocessing.Process`; None when there is none to know (the worker is
        lost).
    peak_memory: the most that its process had in bytes; 0 when not known.
    """

    host: str
    job: str
    started: float
    ended: float
    outcome: str
    log: str = ""
    exitcode: int | None = None
    peak_memory: int = 0

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.started

    def __str__(self) -> str:
        where = f"{self.host} (cluster job {self.job})" if self.job else self.host
        return f"on {where}, after {self.seconds:.1f} s: {self.outcome}"


# ------------------------------------------------------------------ events


class Submitted(Struct, frozen=True):
    """Tasks of one function, to be run in order, by runners that have loaded no modules of an
    earlier `generation` than this.
    """

    function: Function
    tasks: Sequence[Task]
    generation: int = 0


class CancelAsked(Struct, frozen=True):
    """End these tasks: what has not started never runs, what runs is sent `signal`."""

    tasks: Sequence[int]
    signal: int


class RecallAsked(Struct, frozen=True):
    """Take back what has not begun of these calls: the number of each task, the first call and the
    one after the last.

    They are settled, as `recalled`: those that wait at once, those that workers have when these
    have given them back.
    """

    calls: Sequence[tuple[int, int, int]]


class Released(Struct, frozen=True):
    """Nobody can hand in this shared object any more."""

    name: bytes


class Received(Struct, frozen=True, gc=False):
    """A message of a worker."""

    worker: bytes
    message: Message
    buffers: Sequence[bytes | bytearray | memoryview] = ()


class Launched(Struct, frozen=True):
    """The scheduler has started these workers."""

    handles: Sequence[Handle]
    demand: Demand = ANY


class LaunchFailed(Struct, frozen=True):
    """The scheduler has started none; `for_now`: it may later."""

    error: GridEngineError
    for_now: bool = False
    demand: Demand = ANY


class Polled(Struct, frozen=True):
    """The scheduler's word on workers."""

    reports: Mapping[Handle, Report]


class Explained(Struct, frozen=True):
    """The batch system's words on what a queued worker waits for."""

    handle: Handle
    words: str


class Tick(Struct, frozen=True):
    """Time has passed."""


class Look(Struct, frozen=True):
    """See whether some have nothing to do while others have too much."""


class GoOn(Struct, frozen=True):
    """Hand out more of what waits: an event hands out so much at most, so that others are not kept
    waiting.
    """


class Closing(Struct, frozen=True):
    """End everything."""


Event: TypeAlias = (
    Submitted
    | CancelAsked
    | RecallAsked
    | Released
    | Received
    | Launched
    | LaunchFailed
    | Polled
    | Explained
    | Tick
    | Look
    | GoOn
    | Closing
)

# ------------------------------------------------------------------ effects


class Send(Struct, frozen=True, gc=False):
    """Send a worker a message."""

    worker: bytes
    message: Message
    buffers: Payload = ()


class Grant(Struct, frozen=True):
    """Tell a worker what it is to give to the calls of a lane; `takes` is how many of its cores
    that are booked for them.
    """

    worker: bytes
    lane: int
    given: Resource
    takes: int


class Launch(Struct, frozen=True):
    """Ask the scheduler for workers."""

    count: int
    demand: Demand = ANY


class Withdraw(Struct, frozen=True):
    """Have the scheduler stop these workers."""

    handles: Sequence[Handle]


class Settled(Struct, frozen=True):
    """The outcome of the calls `start` to `stop` (exclusive) of a task. Each call of each task is
    settled exactly once.

    `payload` is the pickled list of values, or with `raised` the pickled exception of the one call;
    or it is None and `error` says why there is none. `exitcode` is as that of a
    `multiprocessing.Process`. `last`: no call of the task is left. `recalled`: they were taken back
    before they began, on request. `seconds` is how long they took together; None when that is not
    known.
    """

    task: int
    start: int
    stop: int
    payload: Payload | None
    raised: bool = False
    error: GridEngineError | None = None
    exitcode: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    attempts: Sequence[Attempt] = ()
    last: bool = False
    recalled: bool = False
    seconds: float | None = None


class Began(Struct, frozen=True):
    """A watched task runs."""

    task: int
    pid: int
    host: str
    attempt: int


class Note(Struct, frozen=True):
    """A watched task pushed a value."""

    task: int
    payload: Payload


class Lost(Struct, frozen=True):
    """A worker is gone: forget its connection."""

    worker: bytes


class Explain(Struct, frozen=True):
    """Tell the user what these queued workers wait for, in the batch system's words."""

    handles: Sequence[Handle]
    seconds: float


class Warn(Struct, frozen=True):
    """Tell the user something that does not stop the run."""

    text: str


Effect: TypeAlias = (
    Send | Grant | Launch | Withdraw | Settled | Began | Note | Lost | Explain | Warn
)
