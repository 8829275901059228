"""Messages from a dispatcher to a worker, and from an agent to its runners."""

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
      value is
      pickled on its own, and so that any process can load it.
    - `inputs` are the results of other calls that these calls refer to; `buffers` counts theirs
      too.
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


class Stop(MessageBase, frozen=True):
    """Leave: nothing more will come. Running calls are ended."""


class OutputTaken(MessageBase, frozen=True):
    """The submitter's streams have taken this many bytes of a run's output, so that the worker may
    send more. A client sends it to its dispatcher, too.
    """

    size: Annotated[int, msgspec.Meta(ge=0)]
    run: int
