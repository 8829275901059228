"""The messages that dispatcher, worker and runner exchange, and their frames. Pure: no socket, no
pickle.

A message is a small header, one of the structs below, and a list of *buffers*: pickled functions,
arguments and results, which nobody but the caller and the runner ever looks into. On the wire it is
a list of frames:

    frame 0     MAGIC (the version is its last byte), then msgpack of [sizes of all buffers, header]
    frame 1     the small buffers (up to `SMALL` bytes), one after the other; absent when none
    frames 2..  each larger buffer, a frame of its own, not copied

Every header that carries buffers says how many belong to each of its items, and `decode` checks
that sizes and counts agree before anybody acts on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, TypeAlias

import msgspec

from gridengine.errors import MessageTooLong, ProtocolError
from gridengine.serialize.payload import Buffer, Payload, Place

VERSION = 3
MAGIC = b"GEp" + bytes([VERSION])
SMALL = 32 * 1024
MOST_BUFFERS = 1_000_000


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """The base of all messages: immutable, and an array on the wire."""


class _Item(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The base of what messages list."""


class Assignment(_Item, frozen=True):
    """Run the calls `start` to `stop` (exclusive) of a task, whose buffers are the pickled list of
    all its calls.

    `run` is unique in the life of a dispatcher: each time calls are handed out they get a new one,
    so that a late answer is told from one that is waited for. `form` says what the list of calls
    holds: `SINGLE` (one argument each), `STAR` (a tuple of arguments each) or `FULL` (a pair of
    arguments and keywords each). `timeout` is in seconds and `memory` in bytes, for each call; 0 is
    no limit. `first` is what people call the task's first call: its number among all calls.
    `name` is the name of a job; its process has it while the job runs.
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
    buffers: int = 1
    name: str = ""


VALUES, RAISED, RETRYABLE, OUT_OF_MEMORY = range(4)


class Result(_Item, frozen=True):
    """The outcome of the calls `start` to `stop` of a run.

    `status` is `VALUES` (the buffers are the pickled list of what they returned), or, for one call,
    `RAISED` (the pickled exception), `RETRYABLE` (the same, and it is one of those that the caller
    wants retried) or `OUT_OF_MEMORY` (the same, and it is for want of memory). `seconds` is how
    long these calls took together. With `output`, the last two buffers are what the call wrote to
    its standard output and error. `peak_memory` is what the runner had at most meanwhile, in bytes;
    0 when it did not look.
    """

    run: int
    start: int
    stop: int
    status: Annotated[int, msgspec.Meta(ge=0, le=3)]
    seconds: Annotated[float, msgspec.Meta(ge=0, le=1e12)]
    buffers: int = 1
    output: bool = False
    peak_memory: int = 0


class Hello(_Message, frozen=True):
    """A worker's first word. `log` is the path of its standard output when that is a file, else
    empty; `elapsed` for how many seconds its cluster job has run by now.
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


class Welcome(_Message, frozen=True):
    """The dispatcher's answer: you are known."""


class Refuse(_Message, frozen=True):
    """The dispatcher's other answer: you may not work here, and why."""

    reason: str


class Define(_Message, frozen=True):
    """A function, by its digest; comes before the first assignment that uses it. Its buffers are
    the pickled function.

    Or, `shared`, an object that functions and arguments refer to, by its name.

    `path` and `directory` are the caller's `sys.path`, made absolute, and working directory; in
    bytes, for the name of a file need not be text. An agent tells its runners of buffers that are
    not in the message but at `places` of the file `block`, in the order of their indices.
    """

    function: bytes
    path: list[bytes]
    directory: bytes
    buffers: int = 1
    block: str = ""
    places: list[Place] = []
    shared: bool = False


class Forget(_Message, frozen=True):
    """Functions that will not be used again."""

    functions: list[bytes]


class Reload(_Message, frozen=True):
    """Modules of the caller's have changed: what follows is for runners that have loaded none
    before.
    """


class Allocate(_Message, frozen=True):
    """What the calls of a lane are given, until it is taken back. Its buffers are the pickled
    resource; with `failed` the exception that keeps it from being pickled.

    `cores` and `gpus` are the numbers in it, counted among what the worker holds, or with `exact`
    the machine's own; None when none were asked for, an empty list when none are given. `takes` is
    how many of the worker's slots are not for other calls meanwhile.
    """

    allocation: int
    takes: int = 0
    cores: list[int] | None = None
    gpus: list[int | str] | None = None
    exact: bool = False
    failed: bool = False
    buffers: int = 1


class Release(_Message, frozen=True):
    """Lanes to which nothing more will be assigned."""

    allocations: list[int]


class Assign(_Message, frozen=True):
    """A batch of work for one runner, to be run in order: one of the lane, or of those for calls
    that ask for nothing (0).
    """

    assignments: list[Assignment]
    allocation: int = 0


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
    """I am here. Carries nothing: the envelope's acknowledgement does."""


class Started(_Message, frozen=True):
    """A watched run has begun, in the process `pid`."""

    run: int
    pid: int


class Pushed(_Message, frozen=True):
    """A watched run's intermediate value; its buffers are the pickled value."""

    run: int
    buffers: int = 1


class Output(_Message, frozen=True):
    """What a watched run wrote to its standard output (`stream` 1) or error (2), in one buffer."""

    run: int
    stream: Annotated[int, msgspec.Meta(ge=1, le=2)]


class OutputTaken(_Message, frozen=True):
    """So many bytes of what a worker's runs wrote have been taken by the caller's own streams."""

    size: Annotated[int, msgspec.Meta(ge=0)]


class Results(_Message, frozen=True):
    """Outcomes, oldest first."""

    results: list[Result]


class Crashed(_Message, frozen=True):
    """A runner died in call `index` of `run`, or was killed for the reason given. Its two buffers
    are standard output and error.

    `exitcode` is as `multiprocessing.Process.exitcode`: -n when signal n killed it. `reason` is
    `CRASH`, `TIMEOUT`, `CANCELLED` or `MEMORY`. `peak_memory` is the runner's in bytes, 0 when not
    known.
    """

    run: int
    index: int
    exitcode: int
    reason: Annotated[str, msgspec.Meta(pattern=r"^(crash|timeout|cancelled|memory)\Z")]
    pid: int
    peak_memory: int = 0


CRASH, TIMEOUT, CANCELLED, MEMORY = "crash", "timeout", "cancelled", "memory"


class Returned(_Message, frozen=True):
    """These runs were not started, or not all of them: what was not answered may be handed to
    another. `reason` says what kept them.
    """

    runs: list[int]
    reason: str = ""


class Shortened(_Message, frozen=True):
    """A run ends at `stop`: its calls from there on have not begun, and may be handed to
    another.
    """

    run: int
    stop: int


class Goodbye(_Message, frozen=True):
    """A worker's last word. Its reason is `TERMINATED` when somebody else ended it."""

    reason: str


TERMINATED = "terminated"


Message: TypeAlias = (
    Hello
    | Welcome
    | Refuse
    | Define
    | Forget
    | Reload
    | Allocate
    | Release
    | Assign
    | Cancel
    | Recall
    | Stop
    | Beat
    | Started
    | Pushed
    | Output
    | OutputTaken
    | Results
    | Crashed
    | Returned
    | Shortened
    | Goodbye
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[tuple[list[int], Message]] = msgspec.msgpack.Decoder(
    tuple[list[int], Message]
)
_sizes_decoder: msgspec.msgpack.Decoder[tuple[list[int], msgspec.Raw]] = msgspec.msgpack.Decoder(
    tuple[list[int], msgspec.Raw]
)


def encode(message: Message, buffers: Sequence[Buffer] = ()) -> list[Buffer]:
    """Return the frames of a message and its buffers. Large buffers are passed on, not copied."""
    sizes = [
        len(buffer) if type(buffer) is bytes else memoryview(buffer).nbytes for buffer in buffers
    ]
    frames: list[Buffer] = [MAGIC + _encoder.encode((sizes, message))]
    small = [buffer for buffer, size in zip(buffers, sizes, strict=True) if size <= SMALL]
    if small:
        frames.append(small[0] if len(small) == 1 else b"".join(small))
    if len(small) < len(sizes):
        frames += [buffer for buffer, size in zip(buffers, sizes, strict=True) if size > SMALL]
    return frames


def decode(frames: Sequence[Buffer]) -> tuple[Message, list[Buffer]]:
    """Return the message and its buffers, views of the frames.

    Raises:
        ProtocolError: the frames are not a message of this version, or their sizes and counts do
        not agree.
    """
    if not frames or bytes(memoryview(frames[0])[: len(MAGIC)]) != MAGIC:
        raise ProtocolError(f"not a message of protocol version {VERSION}")
    try:
        sizes, message = _decoder.decode(memoryview(frames[0])[len(MAGIC) :])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"malformed header: {error}") from None
    buffers = _split(sizes, frames)
    if len(buffers) != count_buffers(message):
        raise ProtocolError(
            f"{type(message).__name__} announces {count_buffers(message)} buffers and brings "
            f"{len(buffers)}"
        )
    _check(message)
    return message, buffers


def rest_of(header: Buffer, most: int) -> int:
    """Return how many bytes the frames of a message have that follow its first.

    Raises:
        ProtocolError: it is no first frame.
        MessageTooLong: they have more than `most`.
    """
    if bytes(memoryview(header)[: len(MAGIC)]) != MAGIC:
        raise ProtocolError(f"not a message of protocol version {VERSION}")
    try:
        sizes, _ = _sizes_decoder.decode(memoryview(header)[len(MAGIC) :])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProtocolError(f"malformed header: {error}") from None
    if len(sizes) > MOST_BUFFERS or (sizes and min(sizes) < 0):
        raise ProtocolError("buffer sizes out of range")
    if sum(sizes) > most:
        raise MessageTooLong(f"a message has {sum(sizes):,} bytes, and this machine {most:,}")
    return sum(sizes)


def _check(message: Message) -> None:
    match message:
        case Results(results=results):
            if any(one.status != VALUES and one.stop - one.start != 1 for one in results):
                raise ProtocolError("an exception is the outcome of one call")
            if any(one.output and one.buffers < 2 for one in results):
                raise ProtocolError("a result with output has two buffers for it")
        case Returned(runs=runs):
            if len(set(runs)) < len(runs):
                raise ProtocolError("a run is given back twice")


def _split(sizes: list[int], frames: Sequence[Buffer]) -> list[Buffer]:
    if len(sizes) > MOST_BUFFERS or (sizes and min(sizes) < 0):
        raise ProtocolError("buffer sizes out of range")
    if sizes and max(sizes) <= SMALL and len(frames) == 2:  # as nearly always
        return _cut(frames[1], sizes)
    has_small = any(size <= SMALL for size in sizes)
    large = list(frames[1 + has_small :])
    if len(frames) < 1 + has_small or len(large) != sum(size > SMALL for size in sizes):
        raise ProtocolError("buffer sizes and frames do not agree")
    if any(
        memoryview(buffer).nbytes != size
        for buffer, size in zip(large, (size for size in sizes if size > SMALL), strict=True)
    ):
        raise ProtocolError("a large buffer is not of the size announced")
    small = iter(_cut(frames[1], [size for size in sizes if size <= SMALL]) if has_small else ())
    rest = iter(large)
    return [next(small if size <= SMALL else rest) for size in sizes]


def _cut(frame: Buffer, sizes: list[int]) -> list[Buffer]:
    """Return the small buffers that a frame holds."""
    small, offset = memoryview(frame), 0
    if small.nbytes != sum(sizes):
        raise ProtocolError("small buffers and their frame do not agree")
    buffers: list[Buffer] = []
    for size in sizes:
        buffers.append(small[offset : offset + size])
        offset += size
    return buffers


def count_buffers(message: Message) -> int:
    """Return how many buffers belong to this message.

    Raises:
        ProtocolError: one of its counts is negative.
    """
    match message:
        case Assign(assignments=items) | Results(results=items):
            counts = [item.buffers for item in items]
            if counts and min(counts) < 0:
                raise ProtocolError("negative buffer count")
            return sum(counts)
        case Define(buffers=count) | Pushed(buffers=count) | Allocate(buffers=count):
            return count
        case Crashed():
            return 2
        case Output():
            return 1
        case _:
            return 0


def portions(items: Sequence[Any], buffers: Sequence[Buffer]) -> Iterator[tuple[Any, Payload]]:
    """Yield each item of an `Assign` or `Results` with the buffers that belong to it."""
    offset = 0
    for item in items:
        yield item, buffers[offset : offset + item.buffers]
        offset += item.buffers
