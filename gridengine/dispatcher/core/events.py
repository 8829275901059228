"""What goes into the core (each an `Event`) and comes out of it (each an `Effect`): plain frozen
data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from msgspec import Struct

from gridengine.dispatcher.core.tasks import AlikeTasks, Effect, Function, ResultData, Task
from gridengine.errors import GridEngineError
from gridengine.resources.base import Resource
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.launcher import Handle, Report
from gridengine.serialize.kept_payload import KeptPayload
from gridengine.serialize.payload import Payload
from gridengine.wire.messages import Hello, Message


class Event(Struct, frozen=True):
    """What the core is told."""


class ClientJoined(Event, frozen=True):
    """A client has come, or has come back; it has turns by its `weight`, which is above 0. The
    numbers of its tasks and submitters are `number << NUMBER_BITS | n`; the number 0 is that of the
    dispatcher's own process, which is always there.
    """

    number: int
    weight: float = 1.0


class ClientLeft(Event, frozen=True):
    """A client has gone, and its tasks with it."""

    number: int


class Submitted(Event, frozen=True):
    """Tasks of one function, to be run in order, by runners that have loaded no modules of an
    earlier `generation` than this; for a call of the run `parent`, with which they end unless they
    are `detached`, or 0. They are of the client that the number of their submitter says, or of the
    parent's, and end with that.
    """

    function: Function
    tasks: Sequence[Task]
    generation: int = 0
    parent: int = 0
    detached: bool = False


class SubmittedAlike(Event, frozen=True):
    """As `Submitted`, where tasks are alike. No call is their parent."""

    function: Function
    alike: AlikeTasks


class CancelRequested(Event, frozen=True):
    """End these tasks, and of others these `calls` (the number of the task, the first call and the
    one after the last): what has not started never runs, what runs is sent `signal`.

    Other calls that are with them at a worker run again, uncharged.
    """

    tasks: Sequence[int]
    signal: int
    calls: Sequence[tuple[int, int, int]] = ()


class RecallRequested(Event, frozen=True):
    """Take back what has not begun of these calls: the number of each task, the first call and the
    one after the last.

    They are settled, as `recalled`: those that wait at once, those that workers have when these
    have given them back.
    """

    calls: Sequence[tuple[int, int, int]]


class Released(Event, frozen=True):
    """Nobody can hand in this shared object any more."""

    name: bytes


class ResultWanted(Event, frozen=True):
    """Others need the results of these calls, which were handed in before: the number of each task,
    the call, and the reference that stands for its result from now on.
    """

    calls: Sequence[tuple[int, int, int]]


class Supplied(Event, frozen=True):
    """What a reference stands for is here, and comes from the client."""

    reference: int
    data: ResultData


class ReferencesReleased(Event, frozen=True):
    """No new task can refer to these results."""

    references: Sequence[int]


class ResultAsked(Event, frozen=True):
    """The caller asks for a result that a worker has."""

    reference: int


class RestoredRun(Struct, frozen=True, gc=False):
    """Calls `start` to `stop` of a task that a worker was assigned by a dispatcher before this one;
    `number` is the run's.
    """

    number: int
    worker: bytes
    task: int
    start: int
    stop: int
    attempt: int = 1


class RestoredWorker(Struct, frozen=True):
    """A worker that was connected to a dispatcher before this one, and its latest `Hello`."""

    id: bytes
    hello: Hello


class Restored(Event, frozen=True):
    """What a dispatcher before this one has left; handled before any worker connects.

    It may come in two events around those that submit its tasks again (`submitted` being another
    way to do that): `launched` and `workers` first, lest others are launched; `settled` and `runs`
    behind them.

    submitted: tasks that have calls which are not settled, as they were handed in.
    settled: of such tasks the calls that are, as ranges from one to before another, in order, by
        the number of the task.
    runs: what workers were assigned and not known to have ended, in any order; where calls were
        assigned more than once, the highest number counts. Of calls that may run only once each
        assignment must be among them: others are assigned at once.
    workers: those that were connected, and not lost since.
    launched: the workers that the scheduler has started and was not seen to have ended.

    A worker of `runs` that is not among `workers` has ended with that dispatcher, as those of its
    own process do. Calls of other `runs` are assigned to nobody else until their worker is back, is
    reported dead by the scheduler, or has been silent for its lease: then as with every worker that
    is lost.
    """

    submitted: Sequence[Submitted] = ()
    settled: Mapping[int, Sequence[tuple[int, int]]] = {}
    runs: Sequence[RestoredRun] = ()
    workers: Sequence[RestoredWorker] = ()
    launched: Sequence[Launched] = ()


class DrainHosts(Event, frozen=True):
    """Assign nothing more to the workers on these hosts; each leaves when what it has is done."""

    hosts: Set[str]


class Received(Event, frozen=True, gc=False):
    """A message of a worker."""

    worker: bytes
    message: Message
    buffers: Sequence[bytes | bytearray | memoryview] = ()


class Scaled(Event, frozen=True):
    """From now on there are to be at least and at most so many workers; None is as it was at first.
    Of too many those leave first that have nothing to do, the others when what they are at has
    ended.
    """

    minimum: int | None = None
    maximum: int | None = None


class Launched(Event, frozen=True):
    """The scheduler has started these workers; `asked` is for what, in its own words."""

    handles: Sequence[Handle]
    demand: Demand = ANY
    asked: str = ""


class LaunchFailed(Event, frozen=True):
    """The scheduler has started none; `for_now`: it may later."""

    error: GridEngineError
    for_now: bool = False
    demand: Demand = ANY


class Polled(Event, frozen=True):
    """What the scheduler reports of workers."""

    reports: Mapping[Handle, Report]


class Explained(Event, frozen=True):
    """The batch system's words on what a queued worker waits for; or, of one that is `running`, its
    own on which addresses of the dispatcher do not answer it.
    """

    handle: Handle
    words: str
    running: bool = False


class Tick(Event, frozen=True):
    """Time has passed."""


class Rebalance(Event, frozen=True):
    """Recall calls that have not begun from workers that are at slow ones."""


class Continue(Event, frozen=True):
    """Assign more of what waits: one event assigns so much at most, so that others are not kept
    waiting.
    """


class Closing(Event, frozen=True):
    """End everything; `for_good`: nobody will ask for a result any more."""

    for_good: bool = False


class Draining(Event, frozen=True):
    """Have no call begin any more but those that running ones need; `Drained` tells when none
    runs.
    """


class Send(Effect, frozen=True, gc=False):
    """Send a worker a message."""

    worker: bytes
    message: Message
    buffers: Payload = ()


class Grant(Effect, frozen=True):
    """Tell a worker what it is to give to the calls of an allocation; `takes` is how many of its
    cores are booked for them.
    """

    worker: bytes
    allocation: int
    given: Resource
    takes: int


class Launch(Effect, frozen=True):
    """Ask the scheduler for workers; `label` is what the calls are called that they are for."""

    count: int
    demand: Demand = ANY
    label: str = ""


class Withdraw(Effect, frozen=True):
    """Have the scheduler stop these workers."""

    handles: Sequence[Handle]


class Lost(Effect, frozen=True):
    """A worker is gone: forget its connection."""

    worker: bytes


class ResultMissing(Effect, frozen=True):
    """A result that is wanted was told before that was known: the client, who has it, is to supply
    it.
    """

    reference: int


class ResultExpected(Effect, frozen=True):
    """A result that is wanted will be kept when it is there."""

    reference: int


class ResultKept(Effect, frozen=True):
    """This stands for a result that stays at its worker, and is about to be told. When nobody has
    it any more, `ReferencesReleased` is to say so, once more than else.
    """

    payload: KeptPayload


class ResultFetched(Effect, frozen=True):
    """A result is here that has stayed at its worker; or it cannot be had any more."""

    reference: int
    data: ResultData


class Explain(Effect, frozen=True):
    """Tell the user what these queued workers wait for, in the batch system's words; or, of those
    that are `running`, what keeps the first from connecting, in its own.
    """

    handles: Sequence[Handle]
    seconds: float
    running: bool = False


class Drained(Effect, frozen=True):
    """No call runs any more, and none begins: this was asked for by `Draining`."""


class Warn(Effect, frozen=True):
    """Tell the user something that does not stop the run."""

    text: str


class Inform(Effect, frozen=True):
    """Tell who reads the log how the run goes."""

    text: str
