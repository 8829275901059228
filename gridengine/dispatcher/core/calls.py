"""Calls as the core keeps them: open tasks, the spans of their calls, and who submitted them.

What there are many of, and what is made for each call, is a `Struct`, which is made quickly; what
is changed for each call is a dataclass with slots, of which an attribute is set in a tenth of the
time.
"""

from __future__ import annotations

import types
from bisect import bisect_left
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from gridengine.dispatcher.core.tasks import Attempt, Function, ResultData, Task
from gridengine.resources.demand import Demand
from gridengine.serialize.payload import size_of

NONE: Any = types.MappingProxyType({})
"""The empty table of all that have none of their own: one for each would take memory, and time."""
FEW = 8
"""So many wait in a tuple: a table takes several times its memory, and the time to make it."""


@dataclass(slots=True, eq=False)
class Pace:
    """The mean duration of calls in seconds, as measured lately; None while it is not known."""

    seconds: float | None = None

    def measured(self, calls: int, seconds: float) -> None:
        """Learn from a result; a longer duration counts at once, a shorter one bit by bit."""
        mean = seconds / calls if seconds > 0.0 else 0.0
        known = self.seconds
        self.seconds = mean if known is None or mean > known else 0.5 * (known + mean)

    def exceeded(self, seconds: float) -> None:
        """Learn that a call has taken so long already."""
        self.seconds = max(seconds, self.seconds or 0.0)


QUICK_SECONDS = 1e-3
"""Of calls that take less it is not noted how long each took, which would cost as much as they."""
_STEPS, _LEAST, _MOST = 4, -40, 96
"""Durations are told apart by so many steps for each power of two, of which these are the first and
the last: from a millisecond to half a year.
"""
_BOUNDS = [2.0 ** (step / _STEPS) for step in range(_LEAST, _MOST + 1)]
"""Up to how many seconds each of them is; the last is of all that take longer, too."""


@dataclass(slots=True, eq=False)
class FunctionCounts:
    """What became of the calls of functions of one name since the dispatcher began.

    `calls` were measured, and took so many `seconds` together; `lasting` is by steps how many took
    how long, of those that were not quick. Of those that are left, so many are `unsettled`, and
    `running` at workers. `peak_memory` is what was seen of them at most, and
    `asked_memory` the most that was asked for, in bytes; by `grown_memory` bytes a process has
    grown from call to call. The numbers of calls of maps were below `numbered`.
    """

    name: str = ""
    done: int = 0
    failed: int = 0
    retried: int = 0
    unsettled: int = 0
    running: int = 0
    calls: int = 0
    seconds: float = 0.0
    peak_memory: int = 0
    asked_memory: int = 0
    grown_memory: int = 0
    numbered: int = 0
    lasting: list[int] | None = None

    def note_seconds(self, seconds: float, calls: int, peak_memory: int = 0) -> None:
        """Note that calls took so long each, and what memory at most."""
        if self.lasting is None:
            self.lasting = [0] * len(_BOUNDS)
        self.lasting[bisect_left(_BOUNDS, seconds, hi=_MOST - _LEAST)] += calls
        if peak_memory > self.peak_memory:
            self.peak_memory = peak_memory

    def histogram(self) -> list[tuple[float, int]]:
        """Return up to how many seconds how many calls took that were not quick."""
        found = zip(_BOUNDS, self.lasting or (), strict=False)
        return [(bound, count) for bound, count in found if count]

    def quantile(self, part: float) -> float | None:
        """Return how many seconds so great a part of the calls took at most, to a tenth of it; None
        while nothing is known.
        """
        if not self.calls:
            return None
        lasting, longest = self.lasting or [], QUICK_SECONDS
        left = part * self.calls - (self.calls - sum(lasting))
        for step, count in enumerate(lasting, _LEAST):
            if left <= 0:
                break
            left -= count
            longest = max(longest, 2.0 ** ((step - 0.5) / _STEPS))
        return longest


@dataclass(slots=True, eq=False)
class RemoteObject:
    """A function in use, or kept for a while after: its open tasks, the workers that have it, and
    the pace of its calls, whoever submits them, and what became of them.

    With `shared`, an object that functions and calls refer to. It is kept for as long as handles
    for it are `held`. With `result`, the result of a call that others need, which is kept as long
    as its `AwaitedResult`; while it is `away` only its workers have it, one of which may have been
    `asked` for it. `size` is in bytes.
    """

    function: Function
    size: int
    open: int = 0
    shared: bool = False
    result: bool = False
    held: bool = False
    away: bool = False
    asked: bytes | None = None
    workers: set[bytes] = field(default_factory=set)
    pace: Pace = field(default_factory=Pace)
    counts: FunctionCounts = field(default_factory=FunctionCounts)


@dataclass(slots=True, eq=False)
class Client:
    """A process that submits calls, with those that its calls make; the number of the dispatcher's
    own is 0.

    The `load` of its batches that workers have, for its `weight`, is its `share`; `last_turn`
    is the number of its latest batch. Of its calls, so many are `unsettled`, `running` at workers,
    `done` and `failed`. It is forgotten when it has `left` and has no `submitters` any more.
    """

    number: int
    weight: float = 1.0
    load: int = 0
    share: float = 0.0
    last_turn: int = 0
    submitters: int = 0
    unsettled: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    left: bool = False


@dataclass(slots=True, eq=False)
class Submitter:
    """Who of a client has calls here: its number of open tasks, and of batches that workers have,
    which with their loads are its share of the workers.

    `last_run` is the number of its latest run; `function` the one that it submitted last, and
    `pace` that of its calls: at first that of others'. `depth` is how many calls its own are
    inside of: of a client's the deepest come first. Those that are `plain` are inside of none, and
    of the dispatcher's own process.
    """

    number: int
    function: RemoteObject
    pace: Pace
    client: Client
    open: int = 0
    batches: int = 0
    load: int = 0
    last_run: int = 0
    depth: int = 0
    plain: bool = True

    def count_unsettled(self, function: RemoteObject, calls: int) -> None:
        """Note that its client has so many more calls of a function that have no outcome, or
        fewer.
        """
        self.client.unsettled += calls
        function.counts.unsettled += calls


class Unwanted(Struct, frozen=True):
    """Calls of a task, from `start` to before `stop`, that somebody cancelled, by this `signal`; or
    with 0 recalled: then they are not to begin their first attempt.
    """

    start: int
    stop: int
    signal: int = 0


class AwaitedResult(Struct, eq=False, gc=False):
    """What a reference stands for: the result of a call that others, its *dependents*, need; it may
    not be there yet.

    It is kept while it is `held`, that is, new dependents may come, or the caller was `told` of one
    that stays at a worker, and may have `asked` for it; and while dependents are `open`. `waiting`
    are those that have not begun, until it is there, in a tuple or a table. `data` is what came of
    the call: the value is sent with each call that needs it, or, when it is large, known to workers
    as `remote`. While it is not there `run` is the number of the run that is to make it, if others
    may follow that in its batch. `maker`, `made` and `heirs`: see `lineage`.

    Of a million calls most is waiting for memory: what an event looks at comes first, here as in
    `OpenTask`.
    """

    reference: int
    held: int = 1
    open: int = 0
    waiting: Collection[OpenTask] = ()
    data: ResultData | None = None
    remote: RemoteObject | None = None
    heirs: int = 0
    maker: OpenTask | None = None
    made: int = 0
    run: int = 0
    told: bool = False
    asked: bool = False

    def add_waiting(self, one: OpenTask) -> None:
        """Have a task wait for it."""
        waiting = self.waiting
        if not waiting:
            self.waiting = (one,)
        elif isinstance(waiting, dict):
            waiting[one] = None
        elif len(waiting) < FEW:
            self.waiting = (*waiting, one)
        else:
            self.waiting = dict.fromkeys((*waiting, one))

    def drop_waiting(self, one: OpenTask) -> None:
        """Have a task not wait for it any more, if it did."""
        if isinstance(self.waiting, dict):
            self.waiting.pop(one, None)
        else:
            self.waiting = tuple(other for other in self.waiting if other is not one)


class OpenTask(Struct, eq=False, gc=False):
    """A task not all of whose calls are settled.

    `needs` are the shared objects that it or its function refers to; `order` is its place among all
    tasks, and `since` when it was submitted; `unwanted` are the parts of it that were cancelled or
    recalled; `attempts` are how earlier attempts of its calls ended, None while there is nothing to
    tell. `settled` are the calls that are, as ranges, unless all are at once.

    `inputs` are the results that its one call needs, of which so many are `missing`: until they are
    there it waits in no queue, or is at a worker, in a batch behind the calls that make them. Once
    it has come back from there, or its worker had not what it needs, `again` is the demand and the
    attempt that it waits for; it may have waited until `near_until` for a worker that has it.
    `kept` is its one result that others need, or, of several calls, those, by their indices; of
    those `wanted_late` that was known only after they were assigned. One that is `remade` is told
    to nobody.

    `parent` is the run that it is to end with, 0 for none.
    """

    task: Task
    function: RemoteObject
    unsettled: int
    submitter: Submitter
    pace: Pace
    needs: tuple[RemoteObject, ...] = ()
    order: int = 0
    since: float = 0.0
    missing: int = 0
    runs: dict[int, None] = NONE
    inputs: tuple[AwaitedResult, ...] = ()
    kept: AwaitedResult | dict[int, AwaitedResult] | None = None
    again: tuple[Demand, int] | None = None
    unwanted: tuple[Unwanted, ...] = ()
    attempts: dict[int, list[Attempt]] | None = None
    settled: list[tuple[int, int]] | None = None
    wanted_late: Set[int] = frozenset()
    near_until: float = 0.0
    remade: bool = False
    parent: int = 0

    def only_span(self) -> Span:
        """Return its one call, as it is to wait once its inputs are there."""
        demand, attempt = self.again or (self.task.demand, 1)
        return Span(self, 0, 1, demand, attempt)

    def may_follow(self, first: OpenTask, coming: Collection[AwaitedResult]) -> bool:
        """Return whether its one call may be in a batch that began with that task, behind calls
        that make these results.
        """
        for needed in self.inputs:
            if needed.data is None:
                if needed not in coming:
                    return False
            elif needed.remote is not None and needed.remote.away:
                return False
        return (
            self.function is first.function
            and self.submitter is first.submitter
            and self.task.demand == first.task.demand
            and self.task.priority == first.task.priority
            and self.unsettled > 0
            and self.task.retries > 0
            and not (self.runs or self.again or self.remade or self.task.watched)
        )

    def kept_within(self, start: int, stop: int) -> Sequence[tuple[int, int]]:
        """Return those of these calls whose results others need, with their references."""
        kept = self.kept
        if kept is None:
            return ()
        if isinstance(kept, AwaitedResult):
            return ((0, kept.reference),)
        return [(index, kept[index].reference) for index in range(start, stop) if index in kept]

    def size_for(self, worker: bytes) -> int:
        """Return how many bytes a worker is sent for one of its runs."""
        payload = self.task.payload
        size = len(payload[0]) if len(payload) == 1 else size_of(payload)
        for needed in self.inputs:
            if needed.remote is None:
                if needed.data is not None and needed.data.payload is not None:
                    size += len(needed.data.payload[0])
            elif worker not in needed.remote.workers:
                size += needed.remote.size
        return size

    def is_settled(self, index: int) -> bool:
        """Return whether one of its calls is settled."""
        return any(start <= index < stop for start, stop in self.settled or ())

    def cancelled_by(self, index: int) -> int:
        """Return the signal by which one of its calls was cancelled last, 0 when it was not."""
        if not self.unwanted:
            return 0
        numbers = [one.signal for one in self.unwanted if one.start <= index < one.stop]
        return next(filter(None, reversed(numbers)), 0)


class Span(Struct, frozen=True, gc=False):
    """Calls `start` to `stop` of a task, waiting for their attempt number `attempt` by a worker for
    this demand.
    """

    open_task: OpenTask
    start: int
    stop: int
    demand: Demand
    attempt: int = 1

    @property
    def calls(self) -> int:
        """How many calls there are."""
        return self.stop - self.start


MOST_SAMPLED = 2000


class EndedCall(Struct, frozen=True, gc=False):
    """Calls of a run that have ended: the first of them as `RunStatus` tells it, where they ran,
    when they ended, and how long they took together. `failed`: the attempt of the only one did.
    """

    id: str
    call: str
    function: str
    host: str
    job: str
    pid: int
    log: str
    ended: float
    seconds: float
    calls: int
    failed: bool


class CallSample:
    """An even sample of the calls that have ended, but for quick ones: each `every`-th, a number
    that is doubled whenever there would be too many.
    """

    __slots__ = ("every", "kept", "left_out")

    def __init__(self) -> None:
        self.every = 1
        self.left_out = 0
        self.kept: list[EndedCall] = []

    def add(self, one: EndedCall) -> None:
        """Keep this one."""
        self.left_out = 0
        self.kept.append(one)
        if len(self.kept) >= MOST_SAMPLED:
            del self.kept[::2]
            self.every *= 2


SHOWN_BYTES, EXCEPTION_BYTES = 2048, 8192
"""Of how many bytes pickled calls are at most that are kept to be shown, and how many of the first
of a pickled exception are.
"""


def shown_calls(one: OpenTask) -> bytes:
    """Return the pickled list of a task's calls, for who watches to show their arguments; empty
    when it is long, part of it travels beside it, or it is no pickle.
    """
    payload = one.task.payload
    short = (
        one.function.function.codec == "pickle"
        and len(payload) == 1
        and len(payload[0]) <= SHOWN_BYTES
    )
    return bytes(payload[0]) if short else b""


class Failure(Struct, frozen=True):
    """What is kept of calls that ended without a value: `error` in words, and its `hint`, or the
    beginning of the pickled `exception`; see `CallsFinished` and `Task` for the others.
    """

    task: int
    start: int
    stop: int
    function: str
    name: str
    first: int
    error: str
    exception: bytes
    cancelled: bool
    attempts: Sequence[Attempt]
    calls: bytes
    form: int
    retries: int
    hint: str
