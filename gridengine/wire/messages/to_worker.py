"""What a dispatcher says to a worker, and an agent to its runners."""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from gridengine.serialize.payload import Place
from gridengine.wire.messages.common import (
    BUFFERS,
    CallerState,
    CodecName,
    Count,
    Item,
    MessageBase,
    input_name,
)


class Welcome(MessageBase, frozen=True):
    """The dispatcher's answer to a `Hello`: the worker is accepted, by the process that has this
    number among those that are one dispatcher, started again; 0 where there are no others.
    """

    epoch: int = 0


class Define(MessageBase, frozen=True):
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
    blocks: dict[str, list[Place]] = msgspec.field(default_factory=dict)
    shared: bool = False
    caller: CallerState | None = None
    result: bool = False
    codec: CodecName = "pickle"


class Forget(MessageBase, frozen=True):
    """Functions that will not be used again."""

    functions: list[bytes]


class Keep(MessageBase, frozen=True):
    """Others need the result of this call of a run, by this reference: that was not known when it
    was assigned.
    """

    run: int
    index: int
    reference: int


class Fetch(MessageBase, frozen=True):
    """Send these results, which the worker holds."""

    names: list[bytes]


class Reload(MessageBase, frozen=True):
    """Modules of the caller's have changed: what follows is for runners that have loaded none
    before.
    """


class Allocate(MessageBase, frozen=True):
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


class Release(MessageBase, frozen=True):
    """Allocations to which nothing more will be assigned."""

    allocations: list[int]


class Input(Item, frozen=True):
    """The result of another call that a call refers to: the one at `item` of a pickled list of
    values. It has so many buffers, after those of the calls; or, when `buffers` is 0, it was
    defined, by the name that `input_name` gives its reference; or, with `run`, a run before this in
    the same batch makes it, and its runner has it.
    """

    reference: int
    item: int = 0
    buffers: Count = 0
    run: int = 0


class Assignment(Item, frozen=True):
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


class Assign(MessageBase, frozen=True):
    """A batch of work for one runner, to be run in order: one with this allocation, or with none
    (0) for calls that ask for nothing.
    """

    assignments: list[Assignment]
    allocation: int = 0

    def count_buffers(self) -> int:
        return sum(map(BUFFERS, self.assignments))


class Cancel(MessageBase, frozen=True):
    """End these runs: drop those not started, send `signal` to the runners of the others (and
    SIGKILL after the grace time).
    """

    runs: list[int]
    signal: int


class Recall(MessageBase, frozen=True):
    """Give back of these runs the calls that have not begun: others have nothing to do. What has
    begun goes on.
    """

    runs: list[int]


class Stop(MessageBase, frozen=True):
    """Leave: nothing more will come. What still runs is ended."""


class OutputTaken(MessageBase, frozen=True):
    """So many bytes of what a run wrote have been taken by the streams of who submitted it. A
    client says so to its dispatcher, too.
    """

    size: Annotated[int, msgspec.Meta(ge=0)]
    run: int
