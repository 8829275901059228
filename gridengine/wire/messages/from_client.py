"""Messages from a client to its dispatcher. A client is a process that connects to a stand-alone
dispatcher or, by way of its agent, a runner whose call submits nested calls. A watcher sends
`ClientHello` and `Control` only. A script makes the same requests of the dispatcher in its own
process: there the struct is an event of the core, and travels nowhere.

Some classes have a `tag` of an older name: the tag is the name on the wire, which does not change.
"""

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import msgspec

from gridengine.wire.messages.common import (
    BUFFERS,
    CallerState,
    CodecName,
    Count,
    Item,
    MessageBase,
    OfRunner,
    Reference,
)


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
    other than pickle the function is known by its `name`, and has no buffers.
    """

    name: str
    path: list[bytes]
    directory: bytes
    needs: Sequence[bytes] = ()
    after: Sequence[Reference] = ()
    caller: CallerState | None = None
    buffers: Count = 1
    codec: CodecName = "pickle"


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
