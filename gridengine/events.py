"""What goes into the core (events) and comes out of it (effects): plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gridengine.errors import GridEngineError
from gridengine.protocol import SINGLE, Message, Payload
from gridengine.schedulers.base import ANY, Demand, Handle, Report


@dataclass(frozen=True, slots=True)
class Function:
    """A pickled callable, named by its digest, with the caller's `sys.path` and working directory; `name` is for people."""

    digest: bytes
    payload: Payload
    path: tuple[str, ...]
    directory: str
    name: str


@dataclass(frozen=True, slots=True)
class Task:
    """What travels: `count` calls of a function, pickled as one list.

    `form` says what the list holds (`protocol.SINGLE`, `STAR`, `FULL`). `retries` is how often a call that its surroundings killed is
    run again, `timeout` the seconds each call may take. A `watched` task has its output kept, its start told and its pushed values passed
    on; a `controlled` one is given a controller. `first` is the index of its first call among all that the user asked for.
    `escalate_memory` is by how much a call's memory is multiplied when it is run again because it ran out of it.
    """

    id: int
    payload: Payload
    count: int = 1
    form: int = SINGLE
    retries: int = 2
    timeout: float | None = None
    watched: bool = False
    controlled: bool = False
    first: int = 0
    demand: Demand = ANY
    escalate_memory: float = 1.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a call, and how it ended.

    host: the machine. job: the batch system's id of the cluster task, empty where there is none.
    started, ended: seconds of a clock of the dispatcher's process that never jumps and whose zero means nothing: only differences
        do (`time.monotonic`). `started` is when the call was handed out, or, for a job, when it began.
    outcome: in words. log: the path of the worker's log, or empty.
    exitcode: as that of a `multiprocessing.Process`; None when there is none to know (the worker is lost).
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


@dataclass(frozen=True, slots=True)
class Submitted:
    """Tasks of one function, to be run in order."""

    function: Function
    tasks: Sequence[Task]


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """End these tasks: what has not started never runs, what runs is sent `signal`."""

    tasks: Sequence[int]
    signal: int


@dataclass(frozen=True, slots=True)
class Received:
    """A message of a worker."""

    worker: bytes
    message: Message
    buffers: Sequence[bytes | bytearray | memoryview] = ()


@dataclass(frozen=True, slots=True)
class Launched:
    """The scheduler has started these workers."""

    handles: Sequence[Handle]
    demand: Demand = ANY


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """The scheduler has started none; `for_now`: it may later."""

    error: GridEngineError
    for_now: bool = False
    demand: Demand = ANY


@dataclass(frozen=True, slots=True)
class Polled:
    """The scheduler's word on workers."""

    reports: Mapping[Handle, Report]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Look:
    """See whether some have nothing to do while others have too much."""


@dataclass(frozen=True, slots=True)
class Closing:
    """End everything."""


Event: TypeAlias = Submitted | CancelAsked | Received | Launched | LaunchFailed | Polled | Tick | Look | Closing

# ------------------------------------------------------------------ effects


@dataclass(frozen=True, slots=True)
class Send:
    """Send a worker a message."""

    worker: bytes
    message: Message
    buffers: Payload = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """Ask the scheduler for workers."""

    count: int
    demand: Demand = ANY


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Have the scheduler stop these workers."""

    handles: Sequence[Handle]


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcome of the calls `start` to `stop` (exclusive) of a task. Each call of each task is settled exactly once.

    `payload` is the pickled list of values, or with `raised` the pickled exception of the one call; or it is None and `error` says
    why there is none. `exitcode` is as that of a `multiprocessing.Process`. `last`: no call of the task is left.
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


@dataclass(frozen=True, slots=True)
class Began:
    """A watched task runs."""

    task: int
    pid: int
    host: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Note:
    """A watched task pushed a value."""

    task: int
    payload: Payload


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker is gone: forget its connection."""

    worker: bytes


@dataclass(frozen=True, slots=True)
class Explain:
    """Tell the user what these queued workers wait for, in the batch system's words."""

    handles: Sequence[Handle]
    seconds: float


@dataclass(frozen=True, slots=True)
class Warn:
    """Tell the user something that does not stop the run."""

    text: str


Effect: TypeAlias = Send | Launch | Withdraw | Settled | Began | Note | Lost | Explain | Warn
