"""The messages that dispatcher, worker and runner exchange.

A message is a small header, one of the structs below, and a list of *buffers*: pickled functions,
arguments and results, which only the caller and the runner ever decode. A header has the
number of buffers that belong to each of its items. `framing` makes frames of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Any, TypeAlias

import msgspec

from gridengine.errors import ProtocolError
from gridengine.serialize.payload import Buffer, Payload, Place

VERSION = OLDEST = 8
"""The newest and the oldest protocol that is spoken here.

Of all versions the same: how a message begins (`framing`), the first two fields of `Hello` and
`ClientHello`, which say the version, and the first of `Refuse`, which is the answer to another.
"""


Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
CodecName: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^(pickle|msgpack|json)\Z")]
Reference: TypeAlias = Count
"""What stands for the result of a call; see `input_name`."""
_BUFFERS = attrgetter("buffers")


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """The base of all messages: immutable, and an array on the wire."""

    def count_buffers(self) -> int:
        """Return how many buffers belong to this message.

        Raises:
            ProtocolError: its parts do not agree.
        """
        return 0


class _MessageWithBuffers(_Message, frozen=True):
    """The base of messages with a payload. Its field `buffers` is how many it has."""

    def count_buffers(self) -> int:
        return self.buffers  # type: ignore[attr-defined, no-any-return]


class _Item(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The base of what messages list."""


class Input(_Item, frozen=True):
    """The result of another call that a call refers to: the one at `item` of a pickled list of
    values. It has so many buffers, after those of the calls; or, when `buffers` is 0, it was
    defined, by the name that `input_name` gives its reference; or, with `run`, a run before this in
    the same batch makes it, and its runner has it.
    """

    reference: int
    item: int = 0
    buffers: Count = 0
    run: int = 0


NAME_BYTES = 8
"""How long the names of results are."""


def input_name(reference: int) -> bytes:
    """Return the name of a result where functions and shared objects have theirs, whose names are
    of other lengths.
    """
    return reference.to_bytes(NAME_BYTES, "big")


class Assignment(_Item, frozen=True):
    """Run the calls `start` to `stop` (exclusive) of a task, whose buffers are the pickled list of
    all its calls.

    `run` is unique in the life of a dispatcher: each time calls are handed out they get a new one,
    so that a late result differs from one that is waited for. `form` is what the list of calls
    holds: `SINGLE` (one argument each), `STAR` (a tuple of arguments each) or `FULL` (a pair of
    arguments and keywords each). `timeout` is in seconds and `memory` in bytes, for each call; 0 is
    no limit. `first` is what people call the task's first call: its number among all calls,
    or `UNNUMBERED`.
    `name` is the name of a job; its process has it while the job runs. Calls that are run `once`
    are never run again: each is answered before the next begins. Of the calls in `kept` others need
    the results, each by a reference: where there are such, each value is pickled on its own, and
    for any process to load. `inputs` are the results of other calls that these refer to, whose
    buffers count too.
    """

    run: int
    task: int
    function: bytes
    start: int
    stop: int
    attempt: int
    form: int
    watched: bool = False
    controlled: bool = False
    timeout: float | None = None
    memory: int = 0
    first: int = 0
    buffers: Count = 1
    name: str = ""
    once: bool = False
    kept: Sequence[tuple[int, int]] = ()
    inputs: Sequence[Input] = ()


def large_inputs(assignment: Assignment) -> list[bytes]:
    """Return the names of the inputs that must have been defined."""
    return [input_name(one.reference) for one in assignment.inputs if not (one.buffers or one.run)]


VALUES, RAISED, RETRYABLE, OUT_OF_MEMORY = range(4)


class Result(_Item, frozen=True):
    """The outcome of the calls `start` to `stop` of a run.

    `status` is `VALUES` (the buffers are the pickled list of what they returned), or, for one call,
    `RAISED` (the pickled exception), `RETRYABLE` (the same, and it is one of those that the caller
    wants retried) or `OUT_OF_MEMORY` (the same, and it is for want of memory). `seconds` is how
    long these calls took together. With `output`, the last two buffers are what the call wrote to
    its standard output and error. `peak_memory` is what the runner had at most meanwhile, in bytes;
    0 when it did not look. A large value that others need may stay at the worker: then no
    buffers come, and `held` is its reference and its size in bytes.
    """

    run: int
    start: int
    stop: int
    status: Annotated[int, msgspec.Meta(ge=0, le=3)]
    seconds: Annotated[float, msgspec.Meta(ge=0, le=1e12)]
    buffers: Count = 1
    output: bool = False
    peak_memory: int = 0
    held: tuple[Reference, Count] | None = None


class HeldRun(_Item, frozen=True):
    """A run of a worker that comes back, as its dispatchers know it by what they have acknowledged:
    the calls of the task from `done` to `stop` are not answered.
    """

    run: int
    task: int
    done: Count
    stop: Count


class HeldBatch(_Item, frozen=True):
    """The runs that have not ended of one batch, which has this allocation (0: none)."""

    runs: Sequence[HeldRun]
    allocation: int = 0


class Held(_Item, frozen=True):
    """What a worker has that comes back to a dispatcher which does not know it: its batches, oldest
    first, its allocations, the names of what was defined to it, and how many calls it was assigned
    in its life.
    """

    batches: Sequence[HeldBatch] = ()
    allocations: Sequence[int] = ()
    defined: Sequence[bytes] = ()
    taken: Count = 0


class Hello(_Message, frozen=True):
    """A worker's first message. `log` is the path of its standard output when that is a file, else
    empty; `elapsed` for how many seconds its cluster job has run by now; `held` what it has when it
    comes back. One that announces `functions` is given calls of these alone, by their names, and
    nobody else is.
    """

    protocol: int
    version: str
    python: str
    run_id: str
    host: str
    pid: int
    slots: int
    log: str
    elapsed: Annotated[float, msgspec.Meta(ge=0, le=1e12)] = 0.0
    held: Held | None = None
    functions: Sequence[str] = ()


class ClientHello(_Message, frozen=True):
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


class Control(_Message, frozen=True):
    """A client asks its dispatcher to do or tell something, as JSON says it. Answered by
    `Controlled`, with this number.
    """

    number: int
    action: str
    arguments: bytes = b"{}"


class Controlled(_Message, frozen=True):
    """The answer to a `Control`, in JSON; with `failed` what is wrong, as a text."""

    number: int
    answer: bytes
    failed: bool = False


class Welcome(_Message, frozen=True):
    """The dispatcher's answer to a `Hello`: the worker is accepted, by the process that has this
    number among those that are one dispatcher, started again; 0 where there are no others.
    """

    epoch: int = 0


class Rejoin(_Message, frozen=True):
    """The answer of a dispatcher that was started again to a worker that it does not know: begin a
    new session, with a `Hello` that says what you hold, and send again what was not acknowledged.
    """

    epoch: int


class Refuse(_Message, frozen=True):
    """The dispatcher's other answer: the worker, or client, is to leave, and why; `mismatch`:
    because of its version.
    """

    reason: str
    mismatch: bool = False


class CallerState(_Item, frozen=True):
    """What calls have of the process that submits them, besides its path and directory: its
    environment, as /proc/self/environ has one, its umask, and its `sys.argv`. With `levels` it
    wants to have what calls log, from these levels on: of loggers, by their names (that of the
    root is empty).
    """

    variables: bytes
    umask: int
    arguments: Sequence[bytes] = ()
    levels: Sequence[tuple[str, int]] | None = None


class Define(_MessageWithBuffers, frozen=True):
    """A function, by its digest; comes before the first assignment that uses it. Its buffers are
    the pickled function.

    Or, `shared`, an object that functions and arguments refer to, by its name; or the `result` of
    another call, which is loaded anew for each call that has it among its `inputs`.

    `path` and `directory` are the caller's `sys.path`, made absolute, and working directory; in
    bytes, for the name of a file need not be text. An agent sends its runners buffers that are
    not in the message but at places of `blocks`, which are files by their paths.

    With a `codec` other than pickle the buffer is the function's name, in UTF-8, and what its calls
    are given and return is in that form.
    """

    function: bytes
    path: list[bytes]
    directory: bytes
    buffers: Count = 1
    blocks: dict[str, list[Place]] = {}
    shared: bool = False
    caller: CallerState | None = None
    result: bool = False
    codec: CodecName = "pickle"


class Forget(_Message, frozen=True):
    """Functions that will not be used again."""

    functions: list[bytes]


class Keep(_Message, frozen=True):
    """Others need the result of this call of a run, by this reference: that was not known when it
    was assigned.
    """

    run: int
    index: int
    reference: int


class Fetch(_Message, frozen=True):
    """Send these results, which the worker holds."""

    names: list[bytes]


class Fetched(_MessageWithBuffers, frozen=True):
    """A result that the worker holds; without buffers when it does not. A worker that leaves sends
    all it still holds.
    """

    name: bytes
    buffers: Count = 1


class Reload(_Message, frozen=True):
    """Modules of the caller's have changed: what follows is for runners that have loaded none
    before.
    """


class Allocate(_MessageWithBuffers, frozen=True):
    """What the calls of an allocation are given, until its release. Its buffers are the pickled
    resource; with `failed` the exception that keeps it from being pickled.

    `cores` and `gpus` are the numbers in it, counted among what the worker holds, or with `exact`
    the machine's own; None when none were asked for, an empty list when none are given. `takes` is
    how many of the worker's slots are not for other calls meanwhile.
    """

    allocation: int
    slots: int = 0
    cores: list[int] | None = None
    gpus: list[int | str] | None = None
    exact: bool = False
    failed: bool = False
    buffers: Count = 1


class Release(_Message, frozen=True):
    """Allocations to which nothing more will be assigned."""

    allocations: list[int]


class Assign(_Message, frozen=True):
    """A batch of work for one runner, to be run in order: one with this allocation, or with none
    (0) for calls that ask for nothing.
    """

    assignments: list[Assignment]
    allocation: int = 0

    def count_buffers(self) -> int:
        return sum(map(_BUFFERS, self.assignments))


class Cancel(_Message, frozen=True):
    """End these runs: drop those not started, send `signal` to the runners of the others (and
    SIGKILL after the grace time).
    """

    runs: list[int]
    signal: int


class Recall(_Message, frozen=True):
    """Give back of these runs the calls that have not begun: others have nothing to do. What has
    begun goes on.
    """

    runs: list[int]


class Stop(_Message, frozen=True):
    """Leave: nothing more will come. What still runs is ended."""


class Beat(_Message, frozen=True):
    """A sign of life. Carries nothing: the envelope's acknowledgement does."""


class RunnerFigures(_Item, frozen=True):
    """What a worker measures of a runner: its process, the call `index` of the run that it is at
    (0: none), and the bytes of memory that it has.
    """

    pid: int
    run: int
    index: int
    memory: Count


class Measured(_Message, frozen=True):
    """A sign of life, in the place of a `Beat` now and then, with what the worker measures: its
    machine's load, the bytes of memory that its agent, and the busy runners, have, and what its
    clock shows, in seconds of the epoch (0: it does not say).
    """

    load: Annotated[float, msgspec.Meta(ge=0, le=1e12)]
    memory: Count
    runners: Sequence[RunnerFigures] = ()
    clock: Annotated[float, msgspec.Meta(ge=0, le=1e12)] = 0.0


class Started(_Message, frozen=True):
    """A watched run has begun, in the process `pid`."""

    run: int
    pid: int


class LoggedRecord(_Item, frozen=True):
    """What a call has logged, or warned of, as it travels: a buffer holds one, in msgpack.

    `level` and `created` (seconds since 1970) are as `logging` has them, `exception` is the
    formatted traceback, `call` what people call the call. Of a warning `categories` are the names
    of its class and those above it, up to `builtins.Warning`. `left_out` is how many were left out
    before it; one with neither logger nor categories says no more than that.
    """

    logger: str
    level: int
    text: str
    host: str
    call: str
    created: float = 0.0
    path: str = ""
    line: int = 0
    function: str = ""
    process: int = 0
    thread: str = ""
    exception: str = ""
    categories: Sequence[str] = ()
    left_out: Count = 0


class Pushed(_MessageWithBuffers, frozen=True):
    """A watched run's intermediate value; its buffers are the pickled value. Or, of any run, with
    `log`, what its calls have logged: each buffer is a `LoggedRecord` in msgpack.
    """

    run: int
    buffers: Count = 1
    log: bool = False


class Output(_Message, frozen=True):
    """What a watched run wrote to its standard output (`stream` 1) or error (2), in one buffer."""

    run: int
    stream: Annotated[int, msgspec.Meta(ge=1, le=2)]

    def count_buffers(self) -> int:
        return 1


class OutputTaken(_Message, frozen=True):
    """So many bytes of what a worker's runs wrote have been taken by the caller's own streams."""

    size: Annotated[int, msgspec.Meta(ge=0)]


class Results(_Message, frozen=True):
    """Outcomes, oldest first."""

    results: list[Result]

    def count_buffers(self) -> int:
        for one in self.results:
            if one.status != VALUES and one.stop - one.start != 1:
                raise ProtocolError("an exception is the outcome of one call")
            if one.output and one.buffers < 2:
                raise ProtocolError("a result with output has two buffers for it")
        return sum(map(_BUFFERS, self.results))


class Crashed(_Message, frozen=True):
    """A runner died in call `index` of `run`, or was killed for the reason given. Its two buffers
    are standard output and error.

    `exitcode` is as `multiprocessing.Process.exitcode`: -n when signal n killed it. `reason` is
    `CRASH`, `TIMEOUT`, `CANCELLED` or `MEMORY`. `peak_memory` is the runner's in bytes, 0 when not
    known. `step`: in which of several calls that are made as one it was, from 1; 0 when in none.
    """

    run: int
    index: int
    exitcode: int
    reason: Annotated[str, msgspec.Meta(pattern=r"^(crash|timeout|cancelled|memory)\Z")]
    pid: int
    peak_memory: int = 0
    step: int = 0

    def count_buffers(self) -> int:
        return 2


CRASH, TIMEOUT, CANCELLED, MEMORY = "crash", "timeout", "cancelled", "memory"


NO_INPUT = "a call before it, whose result it needs, has brought none"
PROCESS_LEFT = "the process ended by itself, after its last call"


class Returned(_Message, frozen=True):
    """These runs were not started, or not all of them: what was not answered may be handed to
    another. `reason` is what kept them; `PROCESS_LEFT` is none of the worker's.
    """

    runs: list[int]
    reason: str = ""

    def count_buffers(self) -> int:
        if len(set(self.runs)) < len(self.runs):
            raise ProtocolError("a run is given back twice")
        return 0


class Shortened(_Message, frozen=True):
    """A run ends at `stop`: its calls from there on have not begun, and may be handed to
    another.
    """

    run: int
    stop: int


class Goodbye(_Message, frozen=True):
    """A worker's or client's last message. A worker's reason is `TERMINATED` when it was ended from
    outside; `begun` are the runs that its runners were at, where that is known. A client's is
    `DETACHED` when its calls are to go on.
    """

    reason: str
    begun: list[int] | None = None


TERMINATED = "terminated"
DETACHED = "detached"


# ------------------------------------------------------------------ calls that make calls


class _OfRunner(_Message, frozen=True):
    """The base of what a process that runs calls and its dispatcher say to each other, when calls
    make calls, their *children*. `runner` is the number that the process's agent knows it by, which
    checks it, and passes all on.
    """

    runner: int


Calls: TypeAlias = Sequence[tuple[int, int, int]]
"""The number of each task, its first call that is meant, and the one after the last."""
EncodedDemand: TypeAlias = tuple[list[tuple[str, list[Any]]], float]
"""What `gridengine.resources.encoding` makes of a demand."""


class ChildrenHello(_OfRunner, frozen=True):
    """The process's first: its calls are about to make calls. Answered by `ChildrenWelcome`."""


class ChildrenWelcome(_OfRunner, frozen=True):
    """The numbers of the process's tasks and submitters are `client << NUMBER_BITS | n`; `slots` is
    how many calls the dispatcher's workers run at a time at the most; `protocol` is the one that
    both are to speak. `taken`: with a journal, how many of the client's requests are in it; -1
    without. `epoch` is the number of the process among those that are one dispatcher, started
    again. `owed` is how many tasks clients of its name have left to it, of which something is to
    come, and `ready` how many messages with outcomes of these there are by now.
    """

    client: int
    slots: int
    protocol: int = VERSION
    taken: int = -1
    epoch: int = 0
    owed: int = 0
    ready: int = 0


class FunctionItem(_Item, frozen=True):
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


class SharedItem(_Item, frozen=True):
    """A shared object that the process names for the first time; those that it needs come
    before it.
    """

    name: bytes
    needs: Sequence[bytes] = ()
    buffers: Count = 1


class TaskItem(_Item, frozen=True):
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


class ChildTasks(_OfRunner, frozen=True):
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
        return sum(map(_BUFFERS, (*first, *self.shared, *self.tasks)))


class ChildCancel(_OfRunner, frozen=True):
    """End these tasks, and of others these calls, by this signal."""

    tasks: Sequence[int]
    signal: Annotated[int, msgspec.Meta(ge=1, le=64)]
    calls: Calls = ()


class ChildRecall(_OfRunner, frozen=True):
    """Take back what has not begun of these calls."""

    calls: Calls


class ChildForget(_OfRunner, frozen=True):
    """The process will name none of these functions and shared objects again, or not without
    sending them again; and refer to none of these results.
    """

    functions: Sequence[bytes] = ()
    shared: Sequence[bytes] = ()
    references: Sequence[Reference] = ()


class ChildWant(_OfRunner, frozen=True):
    """Have a reference stand for the result of a call that was handed in before. Answered by
    `ChildResult`.
    """

    task: int
    index: int
    reference: Reference


class ChildResult(_OfRunner, frozen=True):
    """What a reference stands for will be kept when it is there; or it is `missing`, and the
    process is to supply it.
    """

    reference: int
    missing: bool


class ChildSupply(_OfRunner, frozen=True):
    """What a reference stands for, as the core's `ResultData` has it: the value at `item` of a
    pickled list or, with `raised`, a pickled exception; without buffers the call was `cancelled`.
    """

    reference: Reference
    item: int = 0
    raised: bool = False
    cancelled: bool = False
    path: Sequence[str] = ()
    buffers: Count = 0

    def count_buffers(self) -> int:
        return self.buffers


class ChildCheck(_OfRunner, frozen=True):
    """Say whether a worker can hold what calls ask for. Answered by `Checked`, with this `number`,
    when all that was asked before is decided.
    """

    number: int
    demand: EncodedDemand | None = None


class Checked(_OfRunner, frozen=True):
    """The answer to a `ChildCheck`: with a buffer, the pickled error, when no worker can."""

    number: int
    failed: bool = False

    def count_buffers(self) -> int:
        return int(self.failed)


class Waits(_OfRunner, frozen=True):
    """The call that the process is at, one of `run`, waits for calls that it has made: it has no
    slot, and nothing of its allocation, until it is `Resumed`.
    """

    run: int


class Resumes(_OfRunner, frozen=True):
    """It waits no more, and asks for its slot. Answered by `Resumed`."""

    run: int


class Resumed(_OfRunner, frozen=True):
    """The call may go on, as one of this allocation, which may be another than before (0: none).

    Or it is refused something, and told why: to wait at all, which it does not any more, or what
    it had before.
    """

    run: int
    allocation: int = 0
    refused: str = ""


class ChildrenEnded(_OfRunner, frozen=True):
    """The process has ended: nobody is to be told of its calls any more."""


class AttemptItem(_Item, frozen=True):
    """One run of a call, and how it ended; the fields are those of the core's `Attempt`."""

    host: str
    job: str
    started: float
    ended: float
    outcome: str
    log: str = ""
    exitcode: int | None = None
    peak_memory: int = 0


class FinishedItem(_Item, frozen=True):
    """The outcome of calls; the fields are those of the core's `CallsFinished`. Without `buffers`
    there is no payload. After them comes with `failed` the pickled error, and with `output` what
    was written to the standard output and error. Calls that failed for the same reason, as all that
    need one that did, have the same number as their `failure`; 0 is none, or not known. `ended`:
    somebody ended them, so that what needs them is cancelled.
    """

    task: int
    start: int
    stop: int
    buffers: Count = 0
    raised: bool = False
    failed: bool = False
    exitcode: int = 0
    output: bool = False
    attempts: Sequence[AttemptItem] = ()
    last: bool = False
    recalled: bool = False
    seconds: float | None = None
    path: Sequence[str] = ()
    failure: int = 0
    ended: bool = False

    def count_buffers(self) -> int:
        """Return how many buffers it has with those of the error and the output."""
        return self.buffers + self.failed + 2 * self.output


class ChildrenFinished(_OfRunner, frozen=True):
    """What came of calls, oldest first. With a `number` it is in the journal, until the client says
    by `OutcomesTaken` that it has it.
    """

    outcomes: list[FinishedItem]
    number: int = 0

    def count_buffers(self) -> int:
        return sum(one.count_buffers() for one in self.outcomes)


class OutcomesTaken(_Message, frozen=True):
    """A client has the outcomes of these numbers."""

    numbers: Sequence[int]


class Durable(_Message, frozen=True):
    """So many of a client's requests are in the dispatcher's journal, on disk. It counts those that
    change something: all between `ChildTasks` and `ChildSupply`.
    """

    requests: int


class ChildStarted(_OfRunner, frozen=True):
    """A watched task has begun to run."""

    task: int
    pid: int
    host: str
    attempt: int


class ChildMessage(_OfRunner, frozen=True):
    """A watched task has pushed a value, whose pickle these buffers are; or with `log` they are
    what calls have logged, as those of `Pushed`.
    """

    task: int
    buffers: Count = 1
    log: bool = False

    def count_buffers(self) -> int:
        return self.buffers


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
ToParent: TypeAlias = (
    ChildrenWelcome
    | ChildrenFinished
    | ChildStarted
    | ChildMessage
    | ChildResult
    | Checked
    | Resumed
)
"""What it is sent."""

Message: TypeAlias = (
    Hello
    | ClientHello
    | OutcomesTaken
    | Durable
    | Control
    | Controlled
    | Welcome
    | Rejoin
    | Refuse
    | Define
    | Forget
    | Keep
    | Fetch
    | Fetched
    | Reload
    | Allocate
    | Release
    | Assign
    | Cancel
    | Recall
    | Stop
    | Beat
    | Measured
    | Started
    | Pushed
    | Output
    | OutputTaken
    | Results
    | Crashed
    | Returned
    | Shortened
    | Goodbye
    | FromParent
    | ToParent
    | ChildrenEnded
)


def portions(items: Sequence[Any], buffers: Sequence[Buffer]) -> list[tuple[Any, Payload]]:
    """Return each item of an `Assign` or `Results` with the buffers that belong to it."""
    if len(items) == 1:
        return [(items[0], buffers)]
    offset, pairs = 0, []
    for item in items:
        pairs.append((item, buffers[offset : offset + item.buffers]))
        offset += item.buffers
    return pairs
