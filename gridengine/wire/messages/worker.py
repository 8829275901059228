"""Messages between a worker and its dispatcher, and between an agent and its runners."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec

from gridengine.errors import ProtocolError
from gridengine.serialize.payload import Place
from gridengine.wire.messages.common import (
    BUFFERS,
    CallerState,
    CodecName,
    Count,
    Item,
    MessageBase,
    Reference,
    input_name,
)


class HeldRun(Item, frozen=True):
    """A run that a returning worker holds. Its calls from `done` to `stop` have no outcome that a
    dispatcher has acknowledged.
    """

    run: int
    task: int
    done: Count
    stop: Count


class HeldBatch(Item, frozen=True):
    """The unfinished runs of one batch, with its allocation (0: none)."""

    runs: Sequence[HeldRun]
    allocation: int = 0


class Held(Item, frozen=True):
    """Everything that a returning worker holds: its batches, oldest first, its allocations, the
    names of its definitions, and how many calls it was assigned in its life.
    """

    batches: Sequence[HeldBatch] = ()
    allocations: Sequence[int] = ()
    defined: Sequence[bytes] = ()
    taken: Count = 0


class Hello(MessageBase, frozen=True):
    """A worker's first message. `log` is the path of its standard output if that is a file, else
    empty; `elapsed` is the age of its cluster job in seconds; `held` is what it holds when it comes
    back. A worker that announces `functions` gets calls of these alone, by their names, and no
    other worker gets them. `resources` are the resources that it has, as the name and arguments of
    each kind; empty when it has those of the dispatcher's other workers. A worker that `pulls` can
    get results from other workers.
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
    pulls: bool = False


class RunnerFigures(Item, frozen=True):
    """A worker's measurement of a runner: its process, the call `index` of the run that it is in
    (run 0: none), and its memory in bytes.
    """

    pid: int
    run: int
    index: int
    memory: Count


class Measured(MessageBase, frozen=True):
    """A sign of life with measurements, sent now and then in place of a `Beat`: the load of the
    worker's machine, the memory in bytes of its agent and of the busy runners, and its clock in
    seconds since 1970 (0: not given). `processor` and `agent_processor` are the parts of a
    processor that its runners, together, and its agent have used since the last measurement (nil:
    not given).
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
    """A log record or warning of a call. Each is one buffer, in msgpack.

    `level` and `created` (seconds since 1970) are as in `logging`, `exception` is the formatted
    traceback, `call` is the call's label for people. For a warning, `categories` are the names of
    its class and its base classes, up to `builtins.Warning`. `left_out` is the number of records
    that were dropped before this one; a record with neither logger nor categories only carries that
    number.
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
    """An intermediate value of a watched run; its buffers are the pickled value. With `log`,
    records that calls of any run have logged: each buffer is a `LoggedRecord` in msgpack.
    """

    run: int
    buffers: Count = 1
    log: bool = False


class Output(MessageBase, frozen=True):
    """Text that a watched run wrote to its standard output (`stream` 1) or error (2), in one
    buffer. A stand-alone dispatcher forwards it to the client of that run.
    """

    run: int
    stream: Annotated[int, msgspec.Meta(ge=1, le=2)]
    buffers: ClassVar[int] = 1


VALUES, RAISED, RETRYABLE, OUT_OF_MEMORY, INTERRUPTED = range(5)


class Result(Item, frozen=True):
    """The outcome of the calls `start` to `stop` of a run.

    `status` is `VALUES` (the buffers are the pickled list of return values) or, for one call,
    `RAISED` (the pickled exception), `RETRYABLE` (a pickled exception that the caller wants
    retried), `OUT_OF_MEMORY` (a pickled exception for lack of memory) or `INTERRUPTED` (the call
    has stopped for its worker's end; a pickled exception, if it cannot run again). `seconds` is how
    long these calls took together. With `output`, the last two buffers are the call's standard
    output and error. `peak_memory` is the runner's highest memory use meanwhile, in bytes; 0 when
    not measured. A large value that other calls need may stay at the worker: then there are no
    buffers, and `held` is its reference and its size in bytes.
    """

    run: int
    start: int
    stop: int
    status: Annotated[int, msgspec.Meta(ge=0, le=4)]
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
    """A result that the worker holds; without buffers when it does not hold the result. A worker
    that leaves sends every result that it still holds.
    """

    name: bytes
    buffers: Count = 1


class Serves(MessageBase, frozen=True):
    """From here on other workers get the results that this worker holds at one of these addresses,
    of the form `tcp://host:port`. `key` is the CURVE key (in Z85) of its server.
    """

    addresses: Sequence[str]
    key: str


UNREACHED, ABSENT = "unreached", "absent"


class Pulled(MessageBase, frozen=True):
    """The answer to a `Pull` of this number: the worker holds the result too. Or it does not, and
    gives back the runs that need it: the other worker is `UNREACHED`; or the result is `ABSENT`
    there, or did not come for another reason. A `Forget` acknowledges such a failure: until then
    more runs that need the result may come.
    """

    name: bytes
    number: int
    failure: Annotated[str, msgspec.Meta(pattern=r"^(|unreached|absent)\Z")] = ""


class Crashed(MessageBase, frozen=True):
    """A runner died in call `index` of `run`, or was killed for the given reason. Its two buffers
    are standard output and error.

    `exitcode` is as `multiprocessing.Process.exitcode`: -n when signal n killed it. `reason` is
    `CRASH`, `TIMEOUT`, `CANCELLED` or `MEMORY`. `peak_memory` is the runner's in bytes, 0 when
    unknown. Of several calls that are made as one, `step` is the number of the one that died, from
    1; 0 when none had begun.
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
NOT_PULLED = "another worker did not send a result that they need"


class Returned(MessageBase, frozen=True):
    """These runs are given back: their calls without an outcome may be assigned to another worker.
    `reason` says why they did not run; with `PROCESS_LEFT`, `NO_INPUT` or `NOT_PULLED` the worker
    is not at fault.
    """

    runs: list[int]
    reason: str = ""

    def count_buffers(self) -> int:
        if len(set(self.runs)) < len(self.runs):
            raise ProtocolError("a run is given back twice")
        return 0


class Saved(MessageBase, frozen=True):
    """A call in progress has saved its state: the pickled object, with which its next attempt
    begins. It takes the place of an earlier one.
    """

    run: int
    index: Count
    buffers: Count = 1


class Leaving(MessageBase, frozen=True):
    """The worker was told to end and waits a moment for its calls to save their states: assign it
    nothing more.
    """


class Shortened(MessageBase, frozen=True):
    """A run ends at `stop`: its calls from there on have not begun and may be assigned to another
    worker.
    """

    run: int
    stop: int


# ---------------------------------------------------------------- from the dispatcher


class Welcome(MessageBase, frozen=True):
    """The answer to a `Hello`: the worker is accepted, by a dispatcher of this epoch (0: it has no
    predecessor).
    """

    epoch: int = 0


class Define(MessageBase, frozen=True):
    """A function, named by its digest; sent before the first assignment that uses it. Its buffers
    are the pickled function.

    With `shared`, an object that functions and arguments refer to by its name. With `result`, the
    result of another call, which is loaded anew for each call that has it among its `inputs`.

    `path` and `directory` are the caller's `sys.path`, made absolute, and working directory, as
    bytes, because the name of a file need not be text. An agent leaves large buffers out of the
    message to its runners: `blocks` maps the path of each file to the places of buffers in it.

    With a `codec` other than pickle, the buffer is the function's name in UTF-8, and arguments and
    results of its calls have that codec.
    """

    function: bytes
    path: list[bytes]
    directory: bytes
    buffers: Count = 1
    blocks: dict[str, list[Place]] = msgspec.field(default_factory=dict)
    shared: bool = False
    caller: CallerState | None = None
    result: bool = False
    codec: CodecName = "pickle"


class Forget(MessageBase, frozen=True):
    """Functions and other definitions that will not be used again."""

    functions: list[bytes]


class Keep(MessageBase, frozen=True):
    """Keep the result of this call of a run: others need it, by this reference. That was not known
    when the run was assigned.
    """

    run: int
    index: int
    reference: int


class Fetch(MessageBase, frozen=True):
    """Send these results, which the worker holds."""

    names: list[bytes]


class Pull(MessageBase, frozen=True):
    """Get this result from another worker, see `Serves`. Runs that need it are assigned after this
    message, and begin when the result is there. Without addresses: the other worker is gone, so
    give up the pull of this number. Each number is answered by one `Pulled`, or made needless by a
    `Forget`.

    From worker to worker, without addresses: send this result, in `Part`s of this number.
    """

    name: bytes
    number: int
    addresses: Sequence[str] = ()
    key: str = ""


class Reload(MessageBase, frozen=True):
    """Modules of the caller have changed: the runs that follow need runners that have loaded no
    modules yet.
    """


class Allocate(MessageBase, frozen=True):
    """The resources of an allocation, valid until its release. The buffers are the pickled resource
    or, with `failed`, the exception that kept it from being pickled.

    `cores` and `gpus` are the numbers in the allocation: indices into what the worker has, or with
    `exact` the machine's own numbers. None means that none were requested, an empty list that none
    are given. `slots` is how many of the worker's slots are closed to other calls meanwhile.
    `threads` is how many threads libraries may start in each process; 0 is one for each slot.
    """

    allocation: int
    slots: int = 0
    cores: list[int] | None = None
    gpus: list[int | str] | None = None
    exact: bool = False
    failed: bool = False
    buffers: Count = 1
    threads: Count = 0


class Release(MessageBase, frozen=True):
    """Allocations to which nothing more will be assigned."""

    allocations: list[int]


class Input(Item, frozen=True):
    """The result of another call that a call refers to: the value at `item` of a pickled list. It
    has this many buffers, after those of the calls. With `buffers` 0 it was defined, by the name
    that `input_name` gives its reference. With `run`, an earlier run of the same batch makes it,
    and the runner has it.
    """

    reference: int
    item: int = 0
    buffers: Count = 0
    run: int = 0


class Assignment(Item, frozen=True):
    """Run the calls `start` to `stop` (exclusive) of a task. The buffers are the pickled list of
    all calls of the task.

    - `run` is unique in the life of a dispatcher: each assignment gets a new number, so that a late
      result is told from an awaited one.
    - `form` says how the list holds the calls: `SINGLE` (one argument each), `STAR` (a tuple of
      arguments each) or `FULL` (a pair of arguments and keywords each).
    - `timeout` is in seconds and `memory` in bytes, for each call; 0 is no limit.
    - `first` is the label of the task's first call for people: its number among all calls, or
      `UNNUMBERED`.
    - `name` is the name of a job; its process has that name while the job runs.
    - `once`: the calls are never run again, so each is answered before the next begins.
    - `kept` lists the calls whose results other calls need, each with its reference. Each such
      value is pickled on its own, and so that any process can load it.
    - `inputs` are the results of other calls that these calls refer to; `buffers` counts theirs
      too.
    - `saved` lists the calls of which earlier attempts have saved a state, each with the number of
      its buffers. These are the last ones, and `buffers` counts them too.
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
    saved: Sequence[tuple[Count, Count]] = ()


def large_inputs(assignment: Assignment) -> list[bytes]:
    """Return the names of the inputs that must have been defined at the worker."""
    return [input_name(one.reference) for one in assignment.inputs if not (one.buffers or one.run)]


class Assign(MessageBase, frozen=True):
    """A batch for one runner, to be run in order, in this allocation (0: the calls request
    nothing).
    """

    assignments: list[Assignment]
    allocation: int = 0

    def count_buffers(self) -> int:
        return sum(map(BUFFERS, self.assignments))


class Cancel(MessageBase, frozen=True):
    """End these runs: drop those that have not begun, send `signal` to the runners of the others,
    and SIGKILL after the grace time.
    """

    runs: list[int]
    signal: int


class Recall(MessageBase, frozen=True):
    """Give back the calls of these runs that have not begun, because other workers are idle. Calls
    that have begun go on.
    """

    runs: list[int]


class LeaveBy(MessageBase, frozen=True):
    """The worker's calls have this many seconds from now on, and can ask for it. None: they are to
    stop as soon as they have saved their state, and may go on if they save none.
    """

    seconds: Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)] | None = None


class Deliver(MessageBase, frozen=True):
    """A value for the call in progress of this run, which reads what its client tells it: bytes
    that only the two understand.
    """

    run: int
    buffers: Count = 1


class Stop(MessageBase, frozen=True):
    """Leave: nothing more will come. Running calls are ended."""


class OutputTaken(MessageBase, frozen=True):
    """The submitter's streams have taken this many bytes of a run's output, so that the worker may
    send more. A client sends it to its dispatcher, too.
    """

    size: Annotated[int, msgspec.Meta(ge=0)]
    run: int


# ---------------------------------------------------------------- between workers


class Part(MessageBase, frozen=True):
    """A worker's answer to another worker's `Pull` of this number: the bytes of a result from
    `start` on, as if its buffers, which have these `sizes`, were one. Without sizes, the worker
    does not have the result. Results are sent in the order of their requests. The answer to a
    `Beat` is a `Beat`.
    """

    number: int
    sizes: Sequence[Count] = ()
    start: Count = 0
    buffers: Count = 0
