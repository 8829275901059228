"""What a worker says to its dispatcher, and runners to their agent."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec

from gridengine.errors import ProtocolError
from gridengine.wire.messages.common import (
    BUFFERS,
    Count,
    Item,
    MessageBase,
    Reference,
)


class HeldRun(Item, frozen=True):
    """A run of a worker that comes back, as its dispatchers know it by what they have acknowledged:
    the calls of the task from `done` to `stop` are not answered.
    """

    run: int
    task: int
    done: Count
    stop: Count


class HeldBatch(Item, frozen=True):
    """The runs that have not ended of one batch, which has this allocation (0: none)."""

    runs: Sequence[HeldRun]
    allocation: int = 0


class Held(Item, frozen=True):
    """What a worker has that comes back to a dispatcher which does not know it: its batches, oldest
    first, its allocations, the names of what was defined to it, and how many calls it was assigned
    in its life.
    """

    batches: Sequence[HeldBatch] = ()
    allocations: Sequence[int] = ()
    defined: Sequence[bytes] = ()
    taken: Count = 0


class Hello(MessageBase, frozen=True):
    """A worker's first message. `log` is the path of its standard output when that is a file, else
    empty; `elapsed` for how many seconds its cluster job has run by now; `held` what it has when it
    comes back. One that announces `functions` is given calls of these alone, by their names, and
    nobody else is. `resources` is what it holds, the name and the arguments of each kind; when that
    is empty it holds what its dispatcher's other workers do.
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
    resources: Sequence[tuple[str, list[Any]]] = []


class RunnerFigures(Item, frozen=True):
    """What a worker measures of a runner: its process, the call `index` of the run that it is at
    (0: none), and the bytes of memory that it has.
    """

    pid: int
    run: int
    index: int
    memory: Count


class Measured(MessageBase, frozen=True):
    """A sign of life, in the place of a `Beat` now and then, with what the worker measures: its
    machine's load, the bytes of memory that its agent, and the busy runners, have, what its clock
    shows, in seconds of the epoch (0: it does not say), and which part of a processor its runners
    together, and its agent, have used since it looked before (nil: it does not say).
    """

    load: Annotated[float, msgspec.Meta(ge=0, le=1e12)]
    memory: Count
    runners: Sequence[RunnerFigures] = ()
    clock: Annotated[float, msgspec.Meta(ge=0, le=1e12)] = 0.0
    processor: Annotated[float, msgspec.Meta(ge=0, le=1e12)] | None = None
    agent_processor: Annotated[float, msgspec.Meta(ge=0, le=1e12)] | None = None


class Started(MessageBase, frozen=True):
    """A watched run has begun, in the process `pid`."""

    run: int
    pid: int


class LoggedRecord(Item, frozen=True):
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


class Pushed(MessageBase, frozen=True):
    """A watched run's intermediate value; its buffers are the pickled value. Or, of any run, with
    `log`, what its calls have logged: each buffer is a `LoggedRecord` in msgpack.
    """

    run: int
    buffers: Count = 1
    log: bool = False


class Output(MessageBase, frozen=True):
    """What a watched run wrote to its standard output (`stream` 1) or error (2), in one buffer. The
    dispatcher passes it on to the client that the run is of, if that is in another process.
    """

    run: int
    stream: Annotated[int, msgspec.Meta(ge=1, le=2)]
    buffers: ClassVar[int] = 1


VALUES, RAISED, RETRYABLE, OUT_OF_MEMORY = range(4)


class Result(Item, frozen=True):
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


class Results(MessageBase, frozen=True):
    """Outcomes, oldest first."""

    results: list[Result]

    def count_buffers(self) -> int:
        for one in self.results:
            if one.status != VALUES and one.stop - one.start != 1:
                raise ProtocolError("an exception is the outcome of one call")
            if one.output and one.buffers < 2:
                raise ProtocolError("a result with output has two buffers for it")
        return sum(map(BUFFERS, self.results))


class Fetched(MessageBase, frozen=True):
    """A result that the worker holds; without buffers when it does not. A worker that leaves sends
    all it still holds.
    """

    name: bytes
    buffers: Count = 1


class Crashed(MessageBase, frozen=True):
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
    buffers: ClassVar[int] = 2


CRASH, TIMEOUT, CANCELLED, MEMORY = "crash", "timeout", "cancelled", "memory"
NO_INPUT = "a call before it, whose result it needs, has brought none"
PROCESS_LEFT = "the process ended by itself, after its last call"


class Returned(MessageBase, frozen=True):
    """These runs were not started, or not all of them: what was not answered may be handed to
    another. `reason` is what kept them; `PROCESS_LEFT` is none of the worker's.
    """

    runs: list[int]
    reason: str = ""

    def count_buffers(self) -> int:
        if len(set(self.runs)) < len(self.runs):
            raise ProtocolError("a run is given back twice")
        return 0


class Shortened(MessageBase, frozen=True):
    """A run ends at `stop`: its calls from there on have not begun, and may be handed to
    another.
    """

    run: int
    stop: int
