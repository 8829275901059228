"""Events, which go into the core, and effects, which come out of it: plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TypeAlias

from msgspec import Struct

from gridengine.errors import GridEngineError
from gridengine.requests import Effect, Request, ResultData, Submitted
from gridengine.resources.base import Resource
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.launcher import Handle, Report
from gridengine.serialize.payload import Payload, PayloadAtWorker
from gridengine.wire.messages import Hello, Message


class EventBase(Struct, frozen=True):
    """An event that is not a client's request."""


class ClientJoined(EventBase, frozen=True):
    """A client has come, or has come back. It gets turns in proportion to its `weight`, a number
    above 0. Its tasks and submitters have the numbers `number << NUMBER_BITS | n`. Number 0 is the
    dispatcher's own process, which is always there.
    """

    number: int
    weight: float = 1.0


class ClientLeft(EventBase, frozen=True):
    """A client has left; its tasks end."""

    number: int


class ResultAsked(EventBase, frozen=True):
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


class Restored(EventBase, frozen=True):
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
    saved: the states that calls have saved, by task and index.

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
    saved: Mapping[int, Mapping[int, Payload]] = {}


class DrainHosts(EventBase, frozen=True):
    """The workers on these hosts are to leave when their calls have ended."""

    hosts: Set[str]


class Received(EventBase, frozen=True, gc=False):
    """A message of a worker."""

    worker: bytes
    message: Message
    buffers: Sequence[bytes | bytearray | memoryview] = ()


class Scaled(EventBase, frozen=True):
    """The number of workers must stay within these bounds; None restores the initial bound. If
    there are too many, idle workers leave first, and busy ones when their calls have ended.
    """

    minimum: int | None = None
    maximum: int | None = None


class Launched(EventBase, frozen=True):
    """The scheduler has started workers. `asked`: for which resources, in its own words."""

    handles: Sequence[Handle]
    demand: Demand = ANY
    asked: str = ""


class LaunchFailed(EventBase, frozen=True):
    """The scheduler has started no workers; with `for_now` it may do so later."""

    error: GridEngineError
    for_now: bool = False
    demand: Demand = ANY


class Polled(EventBase, frozen=True):
    """The scheduler's reports of workers."""

    reports: Mapping[Handle, Report]


class Explained(EventBase, frozen=True):
    """Why a queued worker waits, in the words of the batch system; or, with `running`, which
    addresses do not answer a running worker, in the worker's words.
    """

    handle: Handle
    words: str
    running: bool = False


class Tick(EventBase, frozen=True):
    """Time has passed.

    late: by how many seconds the tick is late if that is over half a lease: for so long this
        process was stopped, and perhaps its workers with it. Their silence does not count.
    unread: for how many seconds messages of workers may have waited here, unread: a worker that
        seems silent for so long may have written.
    """

    late: float = 0.0
    unread: float = 0.0


class Rebalance(EventBase, frozen=True):
    """Workers that run slow calls are to return the calls that have not begun."""


class Continue(EventBase, frozen=True):
    """More of the deferred calls may be assigned: one event assigns a limited number, so that
    others are not kept waiting.
    """


class Closing(EventBase, frozen=True):
    """Everything ends; `for_good`: nobody will ask for a result any more."""

    for_good: bool = False


class Draining(EventBase, frozen=True):
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
    """Ask the scheduler for workers. `label`: the name of the calls that they are for; `left_out`:
    the hosts that they may not run on.
    """

    count: int
    demand: Demand = ANY
    label: str = ""
    left_out: tuple[str, ...] = ()


class Withdraw(Effect, frozen=True):
    """Have the scheduler stop these workers."""

    handles: Sequence[Handle]


class Lost(Effect, frozen=True):
    """A worker is gone: forget its connection."""

    worker: bytes


class ResultStays(Effect, frozen=True):
    """A result stays at its worker, and the caller is about to be told. This counts as one more
    reference, which a `ClientForget` must release too.
    """

    payload: PayloadAtWorker


class ResultFetched(Effect, frozen=True):
    """A result that stayed at a worker is here, or is lost for good."""

    reference: int
    data: ResultData


class StateSaved(Effect, frozen=True):
    """A call in progress has saved its state. None in the place of the payload: nobody needs the
    state any more.
    """

    task: int
    index: int
    payload: Payload | None


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


Event: TypeAlias = EventBase | Request
"""A fact that goes into the core."""
