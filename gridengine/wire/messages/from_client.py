"""What a client says to its dispatcher: one of a stand-alone dispatcher or, by way of its agent, a
process whose calls make calls. Who may only look, a watcher, says `ClientHello` and `Control`.
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
    """A client's first message: the process `pid` of `host`, whose script has this name. Answered
    by `ChildrenWelcome`, or `Refuse`.

    It speaks all protocols from `oldest` to `protocol`. `python` is that of its functions, empty
    where it sends none. `machine` and `started` tell it from any other process, where they can be
    looked at: which processes can see it, and when it began. `weight` is its part of the turns of
    all clients. By `codec` the dispatcher tells it of errors of its own. One that `keeps`
    says by `OutcomesTaken` what it has, and is in the journal until then. One that `resumes` had
    this number at the process that the dispatcher was before, and so many of its requests are
    `durable`. One that has a name to `keep` leaves its calls to the next of that name when it is
    gone, or says goodbye as `DETACHED`; it has those of the clients before it.
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
    """A client asks its dispatcher to do or tell something, as JSON says it. Answered by
    `Controlled`, with this number.
    """

    number: int
    action: str
    arguments: bytes = b"{}"


Calls: TypeAlias = Sequence[tuple[int, int, int]]
"""The number of each task, its first call that is meant, and the one after the last."""


EncodedDemand: TypeAlias = tuple[list[tuple[str, list[Any]]], float]
"""What `gridengine.resources.encoding` makes of a demand."""


class ChildrenHello(OfRunner, frozen=True):
    """The process's first: its calls are about to make calls. Answered by `ChildrenWelcome`."""


class FunctionItem(Item, frozen=True):
    """A function that the process names for the first time; see `Define`, and the core's
    `Function`. `needs` are the names of shared objects, those that they need being among them. With
    a `codec` other than pickle it is known by its `name`, and has no buffers.
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
    """A shared object that the process names for the first time; those that it needs come
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


class ChildTasks(OfRunner, frozen=True):
    """Run these tasks, whose function has this digest, for the call that the process is at: one of
    `run`. They end with that run, or if they are `detached` with the client whose call it is.

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


class ChildCancel(OfRunner, frozen=True):
    """End these tasks, and of others these calls, by this signal."""

    tasks: Sequence[int]
    signal: Annotated[int, msgspec.Meta(ge=1, le=64)]
    calls: Calls = ()


class ChildRecall(OfRunner, frozen=True):
    """Take back what has not begun of these calls."""

    calls: Calls


class ChildForget(OfRunner, frozen=True):
    """The process will name none of these functions and shared objects again, or not without
    sending them again; and refer to none of these results.
    """

    functions: Sequence[bytes] = ()
    shared: Sequence[bytes] = ()
    references: Sequence[Reference] = ()


class ChildWant(OfRunner, frozen=True):
    """Have a reference stand for the result of a call that was handed in before. Answered by
    `ChildResult`.
    """

    task: int
    index: int
    reference: Reference


class ChildSupply(OfRunner, frozen=True):
    """What a reference stands for, as the core's `ResultData` has it: the value at `item` of a
    pickled list or, with `raised`, a pickled exception; without buffers the call was `cancelled`.
    """

    reference: Reference
    item: int = 0
    raised: bool = False
    cancelled: bool = False
    path: Sequence[str] = ()
    buffers: Count = 0


class ChildCheck(OfRunner, frozen=True):
    """Say whether a worker can hold what calls ask for. Answered by `Checked`, with this `number`,
    when all that was asked before is decided.
    """

    number: int
    demand: EncodedDemand | None = None


class Waits(OfRunner, frozen=True):
    """The call that the process is at, one of `run`, waits for calls that it has made: it has no
    slot, and nothing of its allocation, until it is `Resumed`.
    """

    run: int


class Resumes(OfRunner, frozen=True):
    """It waits no more, and asks for its slot. Answered by `Resumed`."""

    run: int


class ChildrenEnded(OfRunner, frozen=True):
    """The process has ended: nobody is to be told of its calls any more."""


class OutcomesTaken(MessageBase, frozen=True):
    """A client has the outcomes of these numbers."""

    numbers: Sequence[int]


FromParent: TypeAlias = (
    ChildrenHello
    | ChildTasks
    | ChildCancel
    | ChildRecall
    | ChildForget
    | ChildWant
    | ChildSupply
    | ChildCheck
    | Waits
    | Resumes
)
"""What a process sends whose calls make calls; the agent adds `ChildrenEnded`."""
JOURNALED = frozenset({ChildTasks, ChildCancel, ChildRecall, ChildForget, ChildWant, ChildSupply})
"""What a journal has of a client, and `Durable` counts."""
NUMBER_BITS = 40
"""How many bits the numbers have that such a process counts by itself."""
