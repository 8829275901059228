"""Tasks, the requests of clients, and the reports that clients get on their calls: plain frozen
data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from gridengine.errors import GridEngineError
from gridengine.resources.demand import ANY, Demand
from gridengine.serialize.payload import SINGLE, Payload
from gridengine.serialize.shared_objects import SharedObject
from gridengine.wire.messages import Attempt, CallerState

MOST_PRIORITY = 1 << 31
"""The highest priority; its negative is the lowest."""


class Function(Struct, frozen=True):
    """A pickled callable, named by its digest, with the caller's `sys.path` and directory in the
    file system's encoding; `name` is for people.

    `needs` are the shared objects that it refers to; `after` the references of results that it
    contains, which its tasks list too; `caller` is the rest of the caller's state that its calls
    get. With a `codec` other than pickle the payload is its name. `parameters` are the names of its
    positional parameters, for people, as far as they are known; an empty last one stands for the
    number of the call.
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
    parameters: tuple[str, ...] = ()


class TaskOptions(Struct, frozen=True):
    """What tasks of one maker have in common: they share one record, since a million may wait.

    form: the form of the calls in a task's list (`payload.SINGLE`, `STAR`, `FULL`).
    retries: how often a call runs again after it ended through no fault of its own.
    timeout: the seconds that each call may take.
    watched: its output is kept, its start is told, its pushed values are forwarded, and its process
        has its `name`. controlled: it gets a controller.
    escalate_memory: the factor by which memory grows when a call ran out of memory.
    submitter: the number of its submitter, with the client's number above `NUMBER_BITS`; all jobs
        have one submitter.
    priority: of one client's calls, those of a higher priority begin first.
    """

    form: int = SINGLE
    retries: int = 2
    timeout: float | None = None
    watched: bool = False
    controlled: bool = False
    name: str = ""
    demand: Demand = ANY
    escalate_memory: float = 1.0
    submitter: int = 0
    priority: int = 0


class Task(Struct, frozen=True, gc=False):
    """The unit of submission: `count` calls of a function, pickled as one list.

    first: the index of its first call among all calls of the submission, or `UNNUMBERED`.
    needs: the shared objects that the calls refer to.
    after: the references of results that its one call needs. kept: (index, reference) of the calls
        whose results other calls need.
    """

    id: int
    payload: Payload
    count: int = 1
    options: TaskOptions = TaskOptions()
    first: int = 0
    needs: tuple[SharedObject, ...] = ()
    after: tuple[int, ...] = ()
    kept: tuple[tuple[int, int], ...] = ()


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


class Submitted(Struct, frozen=True):
    """Tasks of one function, to run in order, by runners that have loaded no modules of an earlier
    `generation`. With `parent` a call of that run has made them, and they end with it unless they
    are `detached`. They belong to the parent's client, or to the one in their submitter's number.
    """

    function: Function
    tasks: Sequence[Task]
    generation: int = 0
    parent: int = 0
    detached: bool = False


class Supplied(Struct, frozen=True):
    """The client supplies the result of a reference."""

    reference: int
    data: ResultData


class Told(Struct, frozen=True):
    """The client tells the call in progress of a task something, see `Deliver`."""

    task: int
    payload: Payload


class TasksCancelled(Struct, frozen=True):
    """Cancel these tasks, and these calls of others, by this signal. A range of calls is the number
    of a task, the first call, and the one after the last.
    """

    tasks: Sequence[int]
    signal: int
    calls: Sequence[tuple[int, int, int]] = ()


class CallsRecalled(Struct, frozen=True):
    """Take back the calls in these ranges that have not begun."""

    calls: Sequence[tuple[int, int, int]]


class NamesForgotten(Struct, frozen=True):
    """No new task refers to these shared objects and results."""

    shared: Sequence[bytes] = ()
    references: Sequence[int] = ()


class ResultWanted(Struct, frozen=True):
    """Bind a reference to the result of an earlier call. Answered by `WantAnswered`."""

    task: int
    index: int
    reference: int


Request: TypeAlias = (
    Submitted | Supplied | Told | TasksCancelled | CallsRecalled | NamesForgotten | ResultWanted
)
"""A request of a client. In the dispatcher's own process it is the event; to another process it
travels as a message (`calls/translation`).
"""


class Effect(Struct, frozen=True):
    """An action of the core, which the dispatcher performs; most are in `core/events`."""


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


class TaskMessage(Effect, frozen=True):
    """A watched task has pushed a value, or, with `log`, calls have logged something."""

    task: int
    payload: Payload
    log: bool = False


class TaskBegan(Effect, frozen=True):
    """A watched task has begun to run."""

    task: int
    pid: int
    host: str
    attempt: int


class WantAnswered(Effect, frozen=True):
    """The dispatcher keeps the result of the call for the reference when it arrives; or it is
    `missing`, and the client must supply it.
    """

    reference: int
    missing: bool
