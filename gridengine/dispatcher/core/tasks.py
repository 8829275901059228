"""Tasks as clients hand them in, and the outcomes that clients are told: plain frozen data."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from gridengine.errors import UNNUMBERED, GridEngineError
from gridengine.resources.demand import ANY, Demand
from gridengine.serialize.payload import SINGLE, Buffer, Payload
from gridengine.serialize.shared_objects import SharedObject
from gridengine.wire.messages import CallerState

MOST_PRIORITY = 1 << 31
"""The highest priority, and negated the lowest."""


class Function(Struct, frozen=True):
    """A pickled callable, named by its digest, with the caller's `sys.path` and directory in the
    file system's encoding; `name` is for people.

    `needs` are the shared objects that it refers to; `after` the references of results that it
    contains, which its tasks list too; `caller` is the rest of the caller's state that its calls
    get. With a `codec` other than pickle the payload is its name.
    """

    digest: bytes
    payload: Payload
    path: tuple[bytes, ...]
    directory: bytes
    name: str
    needs: tuple[SharedObject, ...] = ()
    caller: CallerState | None = None
    after: tuple[int, ...] = ()
    codec: str = "pickle"


class Task(Struct, frozen=True, gc=False):
    """The unit of submission: `count` calls of a function, pickled as one list.

    form: what the list holds (`payload.SINGLE`, `STAR`, `FULL`).
    retries: how often a call runs again that ended without its own fault.
    timeout: the seconds that each call may take.
    watched: its output is kept, its start is told, its pushed values are forwarded, and its process
        has its `name`. controlled: it gets a controller.
    first: the index of its first call among all calls of the submission, or `UNNUMBERED`.
    escalate_memory: the factor by which memory grows when a call ran out of memory.
    needs: the shared objects that the calls refer to.
    submitter: the number of its submitter, with the client's number above `NUMBER_BITS`; all jobs
        have one submitter.
    after: the references of results that its one call needs. kept: (index, reference) of the calls
        whose results other calls need.
    priority: of one client's calls, those of a higher priority begin first.
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
    needs: tuple[SharedObject, ...] = ()
    submitter: int = 0
    after: tuple[int, ...] = ()
    kept: tuple[tuple[int, int], ...] = ()
    priority: int = 0


class AlikeTasks(Struct, frozen=True):
    """Tasks of one call each, like their first (`task`) but for their payloads, of one buffer each.
    Task and call numbers are consecutive. They neither need results or shared objects nor make
    results that others need, and none is watched. Payloads are dropped when their tasks are opened.
    """

    task: Task
    payloads: list[Buffer]

    @property
    def numbers(self) -> range:
        """The numbers of the tasks."""
        return range(self.task.id, self.task.id + len(self.payloads))

    def at(self, place: int) -> Task:
        """Return one of them."""
        first = self.task.first
        return replace(
            self.task,
            id=self.task.id + place,
            payload=(self.payloads[place],),
            first=first if first == UNNUMBERED else first + place,
        )


class ResultData(Struct, frozen=True, gc=False):
    """The outcome of one call, for its reference.

    `payload` is a pickled list with the value at `item`, or with `raised` a pickled exception. If
    it is None, `error` says why, or the call was `cancelled`. `path`: see `CallsFinished`, with
    this call last.
    """

    payload: Payload | None = None
    item: int = 0
    raised: bool = False
    error: GridEngineError | None = None
    cancelled: bool = False
    path: tuple[str, ...] = ()


class Attempt(Struct, frozen=True):
    """One attempt at a call, and how it ended.

    host: the machine. job: the batch system's id of the cluster task, empty where there is none.
    started, ended: seconds of a clock that never jumps and has no meaningful zero (`time.monotonic`
        of the dispatcher's process). `started`: when the call was assigned or, for a job, when it
        began.
    outcome: in words. log: the path of the worker's log, or empty.
    exitcode: as that of a `multiprocessing.Process`; None if unknown, since the worker is lost.
    peak_memory: the most memory that its process had, in bytes; 0 if unknown.
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


class Effect(Struct, frozen=True):
    """An action for the shell around the core: see `events`."""


class CallsFinished(Effect, frozen=True, gc=False):
    """The outcome of calls of a task, `start` to before `stop`. Each call is settled exactly once.

    payload: the pickled list of values or, with `raised`, the pickled exception of the one call. If
        it is None, `error` says why.
    exitcode: as that of a `multiprocessing.Process`. last: no call of the task is left.
    recalled: the calls were taken back before they began or, with a `path`, a call that they need
        was cancelled.
    seconds: how long they took together; None if unknown.
    path: of a call that did not run because an input failed: the name of the call that failed
        first, then the functions through which the failure came, up to this one. Of a long path,
        the first and the last names.
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
    path: tuple[str, ...] = ()


class TaskStarted(Effect, frozen=True):
    """A watched task has begun to run."""

    task: int
    pid: int
    host: str
    attempt: int


class TaskMessage(Effect, frozen=True):
    """A watched task has pushed a value, or, with `log`, calls have logged something."""

    task: int
    payload: Payload
    log: bool = False
