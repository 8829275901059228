"""What a dispatcher says to a client, a watcher, or a process whose calls make calls."""

from collections.abc import Sequence
from typing import TypeAlias

from gridengine.wire.messages.common import VERSION, Count, Item, MessageBase, OfRunner


class Controlled(MessageBase, frozen=True):
    """The answer to a `Control`, in JSON; with `failed` what is wrong, as a text."""

    number: int
    answer: bytes
    failed: bool = False


class ChildrenWelcome(OfRunner, frozen=True):
    """The numbers of the process's tasks and submitters are `client << NUMBER_BITS | n`; `slots` is
    how many calls the dispatcher's workers run at a time at the most; `protocol` is the one that
    both are to speak. `taken`: with a journal, how many of the client's requests are in it; -1
    without. `epoch` is the number of the process among those that are one dispatcher, started
    again. `owed` is how many tasks clients of its name have left to it, of which something is to
    come, and `ready` how many messages with outcomes of these there are by now. `unserved`: there
    is no worker before somebody starts one.
    """

    client: int
    slots: int
    protocol: int = VERSION
    taken: int = -1
    epoch: int = 0
    owed: int = 0
    ready: int = 0
    unserved: bool = False


class ChildResult(OfRunner, frozen=True):
    """What a reference stands for will be kept when it is there; or it is `missing`, and the
    process is to supply it.
    """

    reference: int
    missing: bool


class Checked(OfRunner, frozen=True):
    """The answer to a `ChildCheck`: with a buffer, the pickled error, when no worker ever can. When
    somebody has to start one by hand, `command` is what starts it (empty where no command does).
    """

    number: int
    failed: bool = False
    command: str | None = None

    def count_buffers(self) -> int:
        return int(self.failed)


class Resumed(OfRunner, frozen=True):
    """The call may go on, as one of this allocation, which may be another than before (0: none).

    Or it is refused something, and told why: to wait at all, which it does not any more, or what
    it had before.
    """

    run: int
    allocation: int = 0
    refused: str = ""


class AttemptItem(Item, frozen=True):
    """One run of a call, and how it ended; the fields are those of the core's `Attempt`."""

    host: str
    job: str
    started: float
    ended: float
    outcome: str
    log: str = ""
    exitcode: int | None = None
    peak_memory: int = 0


class FinishedItem(Item, frozen=True):
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


class ChildrenFinished(OfRunner, frozen=True):
    """What came of calls, oldest first. With a `number` it is in the journal, until the client says
    by `OutcomesTaken` that it has it.
    """

    outcomes: list[FinishedItem]
    number: int = 0

    def count_buffers(self) -> int:
        return sum(one.count_buffers() for one in self.outcomes)


class Durable(MessageBase, frozen=True):
    """So many of a client's requests are in the dispatcher's journal, on disk. It counts those that
    change something: all between `ChildTasks` and `ChildSupply`.
    """

    requests: int


class ChildStarted(OfRunner, frozen=True):
    """A watched task has begun to run."""

    task: int
    pid: int
    host: str
    attempt: int


class ChildMessage(OfRunner, frozen=True):
    """A watched task has pushed a value, whose pickle these buffers are; or with `log` they are
    what calls have logged, as those of `Pushed`.
    """

    task: int
    buffers: Count = 1
    log: bool = False


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
