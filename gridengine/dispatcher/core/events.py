"""Events, which go into the core, and effects, which come out of it: plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from msgspec import Struct

from gridengine.dispatcher.core.tasks import AlikeTasks, Effect, Function, ResultData, Task
from gridengine.errors import GridEngineError
from gridengine.resources.base import Resource
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.launcher import Handle, Report
from gridengine.serialize.payload import KeptPayload, Payload
from gridengine.wire.messages import Hello, Message


class Event(Struct, frozen=True):
    """A fact that the core is told."""


class ClientJoined(Event, frozen=True):
    """A client has come, or is back, with turns by its `weight` above 0. Its tasks and submitters
    have the numbers `number << NUMBER_BITS | n`. Number 0 is the dispatcher's own process, which is
    always there.
    """

    number: int
    weight: float = 1.0


class ClientLeft(Event, frozen=True):
    """A client is gone, and its tasks end."""

    number: int


class Submitted(Event, frozen=True):
    """Tasks of one function, to run in order, by runners that have loaded no modules of an earlier
    `generation`. With `parent` a call of that run has made them, and they end with it unless they
    are `detached`. They belong to the parent's client, or to the one in their submitter's number.
    """

    function: Function
    tasks: Sequence[Task]
    generation: int = 0
    parent: int = 0
    detached: bool = False


class SubmittedAlike(Event, frozen=True):
    """Tasks that are alike; no call is their parent."""

    function: Function
    alike: AlikeTasks


class CancelRequested(Event, frozen=True):
    """End these tasks, and these `calls` of other tasks (task, start, stop). Calls that have not
    begun never run; calls that run are sent `signal`.

    Other calls in the same batches run again, uncharged.
    """

    tasks: Sequence[int]
    signal: int
    calls: Sequence[tuple[int, int, int]] = ()


class RecallRequested(Event, frozen=True):
    """Take back those of these calls (task, start, stop) that have not begun. They are settled as
    `recalled`: waiting calls at once, assigned calls when their workers have returned them.
    """

    calls: Sequence[tuple[int, int, int]]


class Released(Event, frozen=True):
    """Nobody can use this shared object in a new task any more."""

    name: bytes


class ResultWanted(Event, frozen=True):
    """Calls need the results of earlier calls (task, call, reference)."""

    calls: Sequence[tuple[int, int, int]]


class Supplied(Event, frozen=True):
    """The client supplies the result of a reference."""

    reference: int
    data: ResultData


class ReferencesReleased(Event, frozen=True):
    """No new task can refer to these results."""

    references: Sequence[int]


class ResultAsked(Event, frozen=True):
    """The caller asks for a result that a worker has."""

    reference: int


class RestoredRun(Struct, frozen=True, gc=False):
    """Calls that an earlier dispatcher process assigned to a worker; `number` is the run's."""

    number: int
    worker: bytes
    task: int
    start: int
    stop: int
    attempt: int = 1


class RestoredWorker(Struct, frozen=True):
    """A worker that was connected to an earlier dispatcher process, and its latest `Hello`."""

    id: bytes
    hello: Hello


class Restored(Event, frozen=True):
    """The state that an earlier process of this dispatcher has left; handled before any worker
    connects.

    It may come in two events, around the events that submit its tasks again (in the place of
    `submitted`): first `launched` and `workers`, so that no other workers are launched; then
    `settled` and `runs`.

    submitted: tasks with unsettled calls, as they were handed in.
    settled: the settled calls of such tasks, by the number of the task: ranges from one call to
        before another, in order.
    runs: the runs of workers that are not known to have ended, in any order. Where a call was
        assigned more than once, the highest number counts. Of calls that may run only once, each
        assignment must be listed: calls that are not listed are assigned at once.
    workers: the workers that were connected, and not lost since.
    launched: the workers that the scheduler has started and that were not seen to end.

    A worker of `runs` that is not among `workers` has ended with that process, as the workers of
    its own machine do. Calls of other `runs` are assigned to nobody else until their worker is
    back, is reported dead by the scheduler, or has been silent for its lease. Then the worker is
    lost as any other worker is.
    """

    submitted: Sequence[Submitted] = ()
    settled: Mapping[int, Sequence[tuple[int, int]]] = {}
    runs: Sequence[RestoredRun] = ()
    workers: Sequence[RestoredWorker] = ()
    launched: Sequence[Launched] = ()


class DrainHosts(Event, frozen=True):
    """The workers on these hosts are to leave when their calls have ended."""

    hosts: Set[str]


class Received(Event, frozen=True, gc=False):
    """A message of a worker."""

    worker: bytes
    message: Message
    buffers: Sequence[bytes | bytearray | memoryview] = ()


class Scaled(Event, frozen=True):
    """The number of workers is to stay within these bounds; None is the initial bound. Of too many,
    idle ones leave first, busy ones when their calls have ended.
    """

    minimum: int | None = None
    maximum: int | None = None


class Launched(Event, frozen=True):
    """The scheduler has started workers. `asked`: for which resources, in its own words."""

    handles: Sequence[Handle]
    demand: Demand = ANY
    asked: str = ""


class LaunchFailed(Event, frozen=True):
    """The scheduler has started none; `for_now`: it may later."""

    error: GridEngineError
    for_now: bool = False
    demand: Demand = ANY


class Polled(Event, frozen=True):
    """The scheduler's reports of workers."""

    reports: Mapping[Handle, Report]


class Explained(Event, frozen=True):
    """Why a queued worker waits, in the words of the batch system. Or, with `running`: which
    addresses do not answer a running worker, in its own words.
    """

    handle: Handle
    words: str
    running: bool = False


class Tick(Event, frozen=True):
    """Time has passed."""


class Rebalance(Event, frozen=True):
    """Workers that are at slow calls are to return unbegun ones."""


class Continue(Event, frozen=True):
    """More of the deferred calls may be assigned: one event assigns a limited number, so that
    others are not kept waiting.
    """


class Closing(Event, frozen=True):
    """Everything ends; `for_good`: nobody will ask for a result any more."""

    for_good: bool = False


class Draining(Event, frozen=True):
    """No call may begin, except calls that running calls need. `Drained` says when none runs."""


class Send(Effect, frozen=True, gc=False):
    """Send a worker a message."""

    worker: bytes
    message: Message
    buffers: Payload = ()


class Grant(Effect, frozen=True):
    """Tell a worker the resources of an allocation. `takes`: how many of its cores are booked."""

    worker: bytes
    allocation: int
    given: Resource
    takes: int


class Launch(Effect, frozen=True):
    """Ask the scheduler for workers. `label`: the name of the calls that they are for."""

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
    """A wanted result was told before: the client has it and is to supply it."""

    reference: int


class ResultExpected(Effect, frozen=True):
    """A wanted result will be kept when it is here."""

    reference: int


class ResultKept(Effect, frozen=True):
    """A result stays at its worker, and is about to be told. When nobody has it any more,
    `ReferencesReleased` names it once more than other results.
    """

    payload: KeptPayload


class ResultFetched(Effect, frozen=True):
    """A result that stayed at a worker is here, or is lost for good."""

    reference: int
    data: ResultData


class Explain(Effect, frozen=True):
    """Tell the user why these queued workers wait or, with `running`, why the first one has not
    connected.
    """

    handles: Sequence[Handle]
    seconds: float
    running: bool = False


class Drained(Effect, frozen=True):
    """No call runs any more, and none begins, as `Draining` asked."""


class Warn(Effect, frozen=True):
    """Tell the user something that does not stop the run."""

    text: str


class Inform(Effect, frozen=True):
    """Write a line about the run to the log."""

    text: str
