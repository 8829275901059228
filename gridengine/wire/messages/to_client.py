"""Messages from a dispatcher to a client, a watcher, or a runner whose call submits nested calls.
`TaskBegan` and `WantAnswer` are effects of the core, too, and `Attempt` is a part of outcomes.
"""

from collections.abc import Sequence
from typing import TypeAlias

from gridengine.wire.messages.common import VERSION, Count, Item, MessageBase, OfRunner


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


class TaskBegan(OfRunner, frozen=True, tag="ChildStarted"):
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
    ClientWelcome | Finished | TaskBegan | TaskPushed | WantAnswer | Checked | Resumed
)
"""The messages to a runner whose calls submit nested calls."""
