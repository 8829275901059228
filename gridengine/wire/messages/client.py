"""Messages between a client and its dispatcher: first those of the client, then the dispatcher's.

A client is a process that connects to a stand-alone dispatcher or, by way of its agent, a runner
whose call submits nested calls. A watcher sends `ClientHello` and `Control` only.

Some classes have a `tag` of an older name: the tag is the name on the wire, which does not change.
"""

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import msgspec

from gridengine.wire.messages.common import (
    BUFFERS,
    VERSION,
    CallerState,
    CodecName,
    Count,
    Item,
    MessageBase,
    OfRunner,
    Reference,
)

WATCHER = 0
"""The number that all watchers share. No task has this client number."""


class ClientHello(MessageBase, frozen=True):
    """A client's first message: the process `pid` of `host`, whose script has the name `script`.
    Answered by `ClientWelcome`, or `Refuse`.

    - The client speaks all protocols from `oldest` to `protocol`.
    - `python` is the version that its functions need, empty when it sends no Python functions.
    - `machine` and `started` identify its process, see `wire.processes`.
    - `weight` is its part of the turns of all clients.
    - The dispatcher encodes its own errors in `codec`.
    - With `keeps`, outcomes stay in the journal until the client acknowledges them by
      `OutcomesTaken`.
    - With `resumes`, the client had this number at the dispatcher's previous process, and
      `durable` of its requests were on disk.
    - `keep` is the name of a named run, or empty. When such a client goes, or says goodbye as
      `DETACHED`, its calls go on and pass to the next client of the same name.
    """

    protocol: int
    version: str
    oldest: int
    python: str
    host: str
    pid: int
    script: str = ""
    machine: str = ""
    started: int = 0
    weight: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = 1.0
    codec: CodecName = "pickle"
    keeps: bool = False
    resumes: int = 0
    durable: int = 0
    keep: Annotated[str, msgspec.Meta(max_length=300)] = ""


class Control(MessageBase, frozen=True):
    """A client asks its dispatcher for an action; `arguments` are JSON. Answered by `Controlled`
    with the same number.
    """

    number: int
    action: str
    arguments: bytes = b"{}"


Calls: TypeAlias = Sequence[tuple[int, int, int]]
"""Ranges of calls: the number of a task, the first call of the range, and the one after its last.
"""


EncodedDemand: TypeAlias = tuple[list[tuple[str, list[Any]]], float]
"""A demand as `gridengine.resources.demand` encodes it."""


class NestedHello(OfRunner, frozen=True, tag="ChildrenHello"):
    """The first message of a runner whose call is about to submit nested calls. Answered by
    `ClientWelcome`.
    """


class FunctionItem(Item, frozen=True):
    """A function that the client names for the first time; see `Define`, and the core's `Function`.
    `needs` are the names of shared objects, including those that these need in turn. With a `codec`
    other than pickle the function is known by its `name`, and has no buffers. `parameters` are the
    names of its positional parameters, as far as they are known; an empty last one stands for the
    number of the call.
    """

    name: str
    path: list[bytes]
    directory: bytes
    needs: Sequence[bytes] = ()
    after: Sequence[Reference] = ()
    caller: CallerState | None = None
    buffers: Count = 1
    codec: CodecName = "pickle"
    parameters: Sequence[str] = ()


class SharedItem(Item, frozen=True):
    """A shared object that the client names for the first time. The objects that it needs come
    before it.
    """

    name: bytes
    needs: Sequence[bytes] = ()
    buffers: Count = 1


class TaskItem(Item, frozen=True):
    """A task; the fields are those of the core's `Task`. `needs` are names."""

    id: int
    count: Annotated[int, msgspec.Meta(ge=1, le=10**15)] = 1
    form: Annotated[int, msgspec.Meta(ge=0, le=2)] = 0
    retries: int = 2
    timeout: float | None = None
    watched: bool = False
    controlled: bool = False
    name: str = ""
    first: int = 0
    demand: EncodedDemand | None = None
    escalate_memory: float = 1.0
    needs: Sequence[bytes] = ()
    submitter: int = 0
    after: Sequence[Reference] = ()
    kept: Sequence[tuple[int, Reference]] = ()
    buffers: Count = 1
    priority: Annotated[int, msgspec.Meta(ge=-(1 << 31), le=1 << 31)] = 0


class Submit(OfRunner, frozen=True, tag="ChildTasks"):
    """Run these tasks, whose function has this digest. They belong to the call of `run` that
    submits them, and end with that run; or, if `detached`, to the client, and end with it. `run` 0:
    no call submits them.

    The buffers are those of the function, if it is named for the first time, then of the shared
    objects, then of the tasks.
    """

    run: int
    digest: bytes
    tasks: list[TaskItem]
    function: FunctionItem | None = None
    shared: Sequence[SharedItem] = ()
    detached: bool = False

    def count_buffers(self) -> int:
        first = () if self.function is None else (self.function,)
        return sum(map(BUFFERS, (*first, *self.shared, *self.tasks)))


class ClientCancel(OfRunner, frozen=True, tag="ChildCancel"):
    """Cancel these tasks, and these calls of others, by this signal."""

    tasks: Sequence[int]
    signal: Annotated[int, msgspec.Meta(ge=1, le=64)]
    calls: Calls = ()


class ClientRecall(OfRunner, frozen=True, tag="ChildRecall"):
    """Take back the calls among these that have not begun."""

    calls: Calls


class ClientForget(OfRunner, frozen=True, tag="ChildForget"):
    """The client will not name these functions and shared objects again without sending them again,
    and will not refer to these results.
    """

    functions: Sequence[bytes] = ()
    shared: Sequence[bytes] = ()
    references: Sequence[Reference] = ()


class Want(OfRunner, frozen=True, tag="ChildWant"):
    """Let a reference stand for the result of a call that was submitted before. Answered by
    `WantAnswer`.
    """

    task: int
    index: int
    reference: Reference


class Supply(OfRunner, frozen=True, tag="ChildSupply"):
    """The result that a reference stands for, as in the core's `ResultData`: the value at `item` of
    a pickled list or, with `raised`, a pickled exception. With `cancelled`, the call was cancelled
    and there are no buffers.
    """

    reference: Reference
    item: int = 0
    raised: bool = False
    cancelled: bool = False
    path: Sequence[str] = ()
    buffers: Count = 0


class Tell(OfRunner, frozen=True):
    """Pass a value on to the call in progress of a task, see `Deliver`. To a task that does not
    run nothing is passed on: its outcome says so.
    """

    task: int
    buffers: Count = 1


class CheckDemand(OfRunner, frozen=True, tag="ChildCheck"):
    """Ask whether a worker can hold a demand. Answered by `Checked`, with the same `number`, when
    all earlier requests are decided.
    """

    number: int
    demand: EncodedDemand | None = None


class Waits(OfRunner, frozen=True):
    """The current call of `run` waits for its nested calls. It has no slot, and nothing of its
    allocation, until it is `Resumed`.
    """

    run: int


class Resumes(OfRunner, frozen=True):
    """The call waits no more and asks for a slot. Answered by `Resumed`."""

    run: int


class NestedEnded(OfRunner, frozen=True, tag="ChildrenEnded"):
    """The runner has ended: nobody is to be told of its nested calls any more."""


class OutcomesTaken(MessageBase, frozen=True):
    """The client has the outcomes with these numbers."""

    numbers: Sequence[int]


FromClient: TypeAlias = (
    NestedHello
    | Submit
    | ClientCancel
    | ClientRecall
    | ClientForget
    | Want
    | Supply
    | Tell
    | CheckDemand
    | Waits
    | Resumes
)
"""The messages of a runner whose calls submit nested calls; its agent adds `NestedEnded`."""
JOURNALED = frozenset({Submit, ClientCancel, ClientRecall, ClientForget, Want, Supply})
"""The messages of a client that the journal records, and that `Durable` counts."""
NUMBER_BITS = 40
"""How many bits of a task's or submitter's number the client counts by itself; the client's number
stands above them.
"""


# ---------------------------------------------------------------- from the dispatcher


class Controlled(MessageBase, frozen=True):
    """The answer to a `Control`, in JSON; with `failed`, a text that says what is wrong."""

    number: int
    answer: bytes
    failed: bool = False


class ClientWelcome(OfRunner, frozen=True, tag="ChildrenWelcome"):
    """The client is accepted.

    - The numbers of its tasks and submitters are `client << NUMBER_BITS | n`.
    - `slots` is how many calls the dispatcher's workers run at a time, at most.
    - `protocol` is the version that both ends speak from now on.
    - `taken` is how many of the client's requests are in the journal; -1 without a journal.
    - `epoch` is the dispatcher's epoch.
    - `owed` is how many tasks earlier clients of its name have left that have no outcome yet, and
      `ready` how many messages with outcomes of such tasks are waiting.
    - `unserved`: no worker exists before somebody starts one.
    """

    client: int
    slots: int
    protocol: int = VERSION
    taken: int = -1
    epoch: int = 0
    owed: int = 0
    ready: int = 0
    unserved: bool = False


class WantAnswer(OfRunner, frozen=True, tag="ChildResult"):
    """The dispatcher keeps the result of the call for the reference when it arrives; or it is
    `missing`, and the client must supply it.
    """

    reference: int
    missing: bool


class Checked(OfRunner, frozen=True):
    """The answer to a `CheckDemand`: with `failed`, the buffer is the pickled error that says why
    no worker can ever hold the demand. When somebody must start such a worker by hand, `command`
    starts one (empty where no command does).
    """

    number: int
    failed: bool = False
    command: str | None = None

    def count_buffers(self) -> int:
        return int(self.failed)


class Resumed(OfRunner, frozen=True):
    """The call may go on, in this allocation, which may be another than before (0: none). Or the
    dispatcher refuses, and `refused` says why: the call may not wait, or cannot have its allocation
    back.
    """

    run: int
    allocation: int = 0
    refused: str = ""


class Attempt(Item, frozen=True):
    """One attempt at a call, and how it ended.

    - `host` is the machine, and `job` the batch system's id of the cluster task, empty if there is
      none.
    - `started` and `ended` are seconds of a clock of the dispatcher's process that never jumps and
      whose zero means nothing. A call starts when it is handed out, and a job when it begins.
    - `outcome` says in words how it ended.
    - `log` is the path of the worker's log, or empty.
    - `exitcode` is that of a `multiprocessing.Process`; None if the worker is lost.
    - `peak_memory` is the most that its process had, in bytes; 0 if unknown.
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


class FinishedItem(Item, frozen=True):
    """The outcome of calls; the fields are those of the core's `CallsFinished`. Without `buffers`
    there is no payload. The payload's buffers are followed, with `failed`, by the pickled error
    and, with `output`, by the standard output and error. Calls that failed for the same reason have
    the same `failure`, such as all calls that need one that failed; 0 is none, or unknown. With
    `ended`, somebody ended the calls, so that calls that need their results are cancelled.
    """

    task: int
    start: int
    stop: int
    buffers: Count = 0
    raised: bool = False
    failed: bool = False
    exitcode: int = 0
    output: bool = False
    attempts: Sequence[Attempt] = ()
    last: bool = False
    recalled: bool = False
    seconds: float | None = None
    path: Sequence[str] = ()
    failure: int = 0
    ended: bool = False

    def count_buffers(self) -> int:
        """Return how many buffers the item has, including those of the error and the output."""
        return self.buffers + self.failed + 2 * self.output


MOST_FAILURES = 100
"""Both ends recognise at least this many failures by `FinishedItem.failure`."""


class Finished(OfRunner, frozen=True, tag="ChildrenFinished"):
    """Outcomes of calls, oldest first. One with a `number` stays in the journal until the client
    acknowledges it by `OutcomesTaken`.
    """

    outcomes: list[FinishedItem]
    number: int = 0

    def count_buffers(self) -> int:
        return sum(one.count_buffers() for one in self.outcomes)


class Durable(MessageBase, frozen=True):
    """This many of a client's requests are on disk, in the dispatcher's journal. Only requests that
    change something count: `Submit`, `ClientCancel`, `ClientRecall`, `ClientForget`, `Want` and
    `Supply`.
    """

    requests: int


class TaskStarted(OfRunner, frozen=True, tag="ChildStarted"):
    """A watched task has begun to run."""

    task: int
    pid: int
    host: str
    attempt: int


class TaskPushed(OfRunner, frozen=True, tag="ChildMessage"):
    """A watched task has pushed a value, whose pickle these buffers are. With `log`, the buffers
    are log records of calls, as in `Pushed`.
    """

    task: int
    buffers: Count = 1
    log: bool = False


ToClient: TypeAlias = (
    ClientWelcome | Finished | TaskStarted | TaskPushed | WantAnswer | Checked | Resumed
)
"""The messages to a runner whose calls submit nested calls."""
