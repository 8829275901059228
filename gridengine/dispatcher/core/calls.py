"""Open tasks, the spans of their calls, results that calls need, and who submitted them; the states
of a call.

An object that is made for each call is a `Struct`, which is made quickly. An object that changes
with each call is a record with slots: setting its attributes takes a tenth of the time.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gridengine.dispatcher.core.events import Received
from gridengine.requests import Function, ResultData, TaskOptions
from gridengine.resources.demand import Demand
from gridengine.serialize.payload import Payload, size_of
from gridengine.status.figures import FunctionCounts
from gridengine.wire.messages import Attempt
from gridengine.wire.records import field, record

T = TypeVar("T")
Ranges: TypeAlias = Sequence[tuple[int, int]]
"""Calls of a task, as ranges `start` to before `stop`."""

FEW = 8
"""Up to this many items are in a tuple: a dictionary takes several times the memory and time."""


def added(many: Collection[T], one: T) -> Collection[T]:
    """Return the collection with one more item. A few items are in a tuple, which is copied; more
    are in a dictionary, which is changed in place.
    """
    if isinstance(many, dict):
        many[one] = None
        return many
    return (*many, one) if len(many) < FEW else dict.fromkeys((*many, one))


def without(many: Collection[T], one: T) -> Collection[T]:
    """Return a collection, made by `added`, without one item."""
    if isinstance(many, dict):
        many.pop(one, None)
        return many
    if not isinstance(many, tuple) or one not in many:
        return many
    place = many.index(one)
    return many[:place] + many[place + 1 :]


@record
class Pace:
    """The recent mean duration of calls in seconds; None while it is not known."""

    seconds: float | None = None

    def measured(self, calls: int, seconds: float) -> None:
        """Learn from a result: a longer duration replaces the mean; a shorter one is averaged with
        it.
        """
        mean = seconds / calls if seconds > 0.0 else 0.0
        known = self.seconds
        self.seconds = mean if known is None or mean > known else 0.5 * (known + mean)

    def exceeded(self, seconds: float) -> None:
        """Learn that a call has already run for this long."""
        self.seconds = max(seconds, self.seconds or 0.0)


@record
class RemoteObject:
    """An object that workers hold: a function, a shared object, or a large result.

    function, size: the object and its bytes. open: how many open tasks use it. workers: who has it.
    pace, counts: of a function, the duration and the number of its calls.
    shared, held: functions and calls refer to it; it stays while handles are held.
    result, away, asked: it is the result of a call, and stays as long as its `AwaitedResult`. While
        it is away only workers have it, one of which may have been asked for it.
    pulls, unpulled: the workers that get it from another one, each with that worker and the pull's
        number; whether a pull has failed.
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
    pulls: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    unpulled: bool = False
    pace: Pace = field(default_factory=Pace)
    counts: FunctionCounts = field(default_factory=FunctionCounts)


@record
class CoreClient:
    """A process that submits calls, with the calls that its calls make. Number 0 is the
    dispatcher's own process. `share`: the load of its batches divided by its weight. `last_turn`:
    the number of its latest batch. A client is forgotten when it has `left` and has no
    `submitters`.
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
    cancelled: int = 0
    left: bool = False


@record
class CoreSubmitter:
    """One source of calls within a client, with its open tasks and its batches at workers.

    last_run: the number of its latest run. function: its latest function.
    pace: the pace of its calls of this function; at first the pace of all calls of the function.
    depth: inside of how many calls its calls are. plain: depth 0, and of the dispatcher's own
        process.
    """

    number: int
    function: RemoteObject
    pace: Pace
    client: CoreClient
    open: int = 0
    batches: int = 0
    load: int = 0
    last_run: int = 0
    depth: int = 0
    plain: bool = True


class Unwanted(Struct, frozen=True):
    """Calls of a task, `start` to before `stop`, that were cancelled by a `signal`. With signal 0
    they were recalled: then they must not begin their first attempt.
    """

    start: int
    stop: int
    signal: int = 0


class AwaitedResult(Struct, eq=False, gc=False):
    """The result of a call that other calls, its *dependents*, need. The result may not have come
    yet.

    held: how many references to the result exist: new dependents may come. A result that stays at
        a worker is held once more, when the caller was `told` of it; the caller may have `asked`
        for it.
    open: how many dependents have not ended; waiting: the dependents that have not begun.
    data: the outcome; remote: a large value, as workers know it.
    run: until the result has come, the run that makes it, if dependents may follow in the same
        batch.
    maker, made, heirs: see `objects`.

    With a million calls, memory is slow: the fields that each event reads come first.
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


class TaskDetails(Struct, frozen=True, gc=False):
    """What few open tasks have; all others share one record.

    again: the demand and the attempt of a call that came back or lacked its inputs, and waits.
    needs: the shared objects that the task or its function refers to.
    unwanted: its cancelled and recalled calls. attempts: how earlier attempts ended, by index.
    settled: its settled calls, as ranges; None before any.
    wanted_late: the calls whose results were asked for after the assignment.
    near_until: until when it may wait for the worker that has its inputs.
    remade: it makes a lost result again, and nobody is told its outcome.
    parent: the number of the run that it ends with, or 0.
    """

    again: tuple[Demand, int] | None = None
    needs: tuple[RemoteObject, ...] = ()
    unwanted: tuple[Unwanted, ...] = ()
    attempts: dict[int, list[Attempt]] | None = None
    settled: list[tuple[int, int]] | None = None
    wanted_late: Set[int] = frozenset()
    near_until: float = 0.0
    remade: bool = False
    parent: int = 0


class OpenTask(Struct, eq=False, gc=False):
    """A task with unsettled calls. It has what the core needs of a `Task`, which is not kept: with
    a million waiting calls, each field takes eight megabytes.

    order, since: the place of its submission among all submissions; when it was submitted.
    missing: how many of the `inputs` of its one call have not come. Meanwhile the task is in no
        queue, or is at a worker behind the calls that make its inputs. inputs: the results that the
        call needs.
    runs: the numbers of its runs. One number is in a tuple, since a table takes several times the
        memory; several are in a table, where each is found at once.
    kept: its result that other calls need; of several calls, the results by index.
    """

    id: int
    payload: Payload
    count: int
    options: TaskOptions
    first: int
    function: RemoteObject
    submitter: CoreSubmitter
    pace: Pace
    unsettled: int
    order: int = 0
    since: float = 0.0
    missing: int = 0
    runs: tuple[()] | tuple[int] | dict[int, None] = ()
    inputs: tuple[AwaitedResult, ...] = ()
    kept: AwaitedResult | dict[int, AwaitedResult] | None = None
    details: TaskDetails = TaskDetails()

    def change(self, **details: Any) -> None:
        """Give the task other details."""
        self.details = replace(self.details, **details)

    def only_span(self) -> Span:
        """Return the span to queue when all inputs of this single-call task are here."""
        demand, attempt = self.details.again or (self.options.demand, 1)
        return Span(self, 0, 1, demand, attempt)

    def may_follow(self, first: OpenTask, coming: Collection[AwaitedResult]) -> bool:
        """Return whether its call may follow, in one batch, calls that make the results in
        `coming`.
        """
        options, its, details = self.options, first.options, self.details
        for needed in self.inputs:
            if needed.data is None:
                if needed not in coming:
                    return False
            elif needed.remote is not None and needed.remote.away:
                return False
        return (
            self.function is first.function
            and self.submitter is first.submitter
            and (options is its or (options.demand, options.priority) == (its.demand, its.priority))
            and self.unsettled > 0
            and options.retries > 0
            and not (self.runs or details.again or details.remade or options.watched)
        )

    def kept_within(self, start: int, stop: int) -> Sequence[tuple[int, int]]:
        """Return (index, reference) of the calls in a range whose results other calls need."""
        kept = self.kept
        if kept is None:
            return ()
        if isinstance(kept, AwaitedResult):
            return ((0, kept.reference),)
        return [(index, kept[index].reference) for index in range(start, stop) if index in kept]

    def size_for(self, worker: bytes) -> int:
        """Return how many bytes a worker is sent for one of its runs."""
        payload = self.payload
        size = len(payload[0]) if len(payload) == 1 else size_of(payload)
        for needed in self.inputs:
            remote, data = needed.remote, needed.data
            if remote is not None:
                size += 0 if worker in remote.workers else remote.size
            elif data is not None and data.payload is not None:
                size += len(data.payload[0])
        return size

    def is_settled(self, index: int) -> bool:
        """Return whether the call of this index is settled."""
        return any(start <= index < stop for start, stop in self.details.settled or ())

    @property
    def left(self) -> list[tuple[int, int]]:
        """Its calls that are not settled."""
        return left_of([(0, self.count)], self.details.settled or ())

    def add_settled(self, start: int, stop: int) -> None:
        """Note that the calls `start` to before `stop` are settled."""
        settled = self.details.settled
        if settled is None:
            self.change(settled=[(start, stop)])
        elif settled[-1][1] == start:
            settled[-1] = settled[-1][0], stop
        else:
            settled.append((start, stop))

    def cancelled_by(self, index: int) -> int:
        """Return the signal by which a call was cancelled last, or 0."""
        unwanted = self.details.unwanted
        numbers = [one.signal for one in unwanted if one.start <= index < one.stop]
        return next(filter(None, reversed(numbers)), 0)


class Span(Struct, frozen=True, gc=False):
    """Waiting calls of a task, `start` to before `stop`, with their demand and their attempt."""

    open_task: OpenTask
    start: int
    stop: int
    demand: Demand
    attempt: int = 1

    @property
    def calls(self) -> int:
        """How many calls there are."""
        return self.stop - self.start

    @property
    def grown(self) -> Demand:
        """Their demand after they ran out of memory."""
        return self.demand.with_factor(self.demand.factor * self.open_task.options.escalate_memory)

    def split(self, ranges: Ranges) -> tuple[list[Span], list[Span]]:
        """Return the parts outside of these ranges of calls, and the parts within them."""
        outside = left_of([(self.start, self.stop)], ranges)
        within = left_of([(self.start, self.stop)], outside)
        return self._parts(outside), self._parts(within)

    def _parts(self, ranges: Ranges) -> list[Span]:
        return [replace(self, start=start, stop=stop) for start, stop in ranges]


def left_of(ranges: Ranges, others: Ranges) -> list[tuple[int, int]]:
    """Return the parts of the ranges that no other range covers."""
    left, sorted_others = list[tuple[int, int]](), sorted(others)
    for start, stop in ranges:
        for first, last in sorted_others:
            if max(start, first) < min(stop, last):
                if start < first:
                    left.append((start, first))
                start = last
        if start < stop:
            left.append((start, stop))
    return left


SHOWN_BYTES, ERROR_BYTES, EXCEPTION_BYTES = 2048, 2**16, 8192
"""Pickled calls of up to `SHOWN_BYTES` are kept to be shown, and those of up to `ERROR_BYTES` go
along with the error of one of them; of a pickled exception the first `EXCEPTION_BYTES` are kept.
"""


def shown_calls(one: OpenTask, most: int = SHOWN_BYTES) -> bytes:
    """Return the pickled calls of a task, so that their arguments can be shown; empty if they are
    longer than `most`, or have another codec than pickle.
    """
    payload = one.payload
    short = (
        one.function.function.codec == "pickle" and len(payload) == 1 and len(payload[0]) <= most
    )
    return bytes(payload[0]) if short else b""


CallState: TypeAlias = Literal["waiting", "missing", "assigned", "settled"]
"""The state of one call. It is not stored: the place of a call is its state (`CoreState.state_of`),
and a million calls that wait need no field for it. `Story` stores it while checks are on.

waiting: in a queue, in a span. missing: in no queue, until results that it needs are
there, or until the worker that has them has room. assigned: a worker has it, in a run. settled: its
outcome has been told.
"""


CALL_MOVES: Mapping[CallState, Set[CallState]] = {
    # A call begins here.
    "waiting": {
        "assigned",  # a batch with it is sent to a worker
        "missing",  # it needs results that are not there, or are elsewhere
        "settled",  # cancelled, recalled, or no worker can be had
    },
    "missing": {
        "waiting",  # the last result is there
        "assigned",  # in one batch with the call that makes its input, behind it
        "settled",  # cancelled, recalled, or an input has failed
    },
    "assigned": {
        "assigned",  # the worker of an earlier dispatcher is back, and goes on with it
        "waiting",  # given back, lost, or to be tried again
        "missing",  # given back, and its input was not made there
        "settled",  # answered, failed for good, cancelled, or recalled
    },
    "settled": set(),
}


MOST_LINES, MOST_SUBJECTS = 30, 10_000


Subject: TypeAlias = int | bytes
"""A task, by its number, or a worker, by its id."""


class Broken(AssertionError):
    """An invariant of the core does not hold: a fault of this package."""


class Story:
    """The recent past of a core. It has the last `MOST_LINES` events of each of the `MOST_SUBJECTS`
    tasks and workers to which something happened last; and the state of each unsettled call.
    """

    def __init__(self) -> None:
        self._lines: OrderedDict[Subject, deque[str]] = OrderedDict()
        self._states: dict[int, dict[int, CallState]] = {}
        self._event = ""

    def begin(self, event: object, now: float) -> None:
        """Note which event is being handled."""
        self._event = f"{now:.3f} {type(event).__name__}"
        if isinstance(event, Received):
            self.add(event.worker, f"says {type(event.message).__name__}")

    def add(self, subject: Subject, words: str) -> None:
        """Note an event of a task or worker."""
        lines = self._lines.setdefault(subject, deque(maxlen=MOST_LINES))
        lines.append(f"{self._event}: {words}")
        self._lines.move_to_end(subject)
        if len(self._lines) > MOST_SUBJECTS:
            self._lines.popitem(last=False)

    def of(self, subject: Subject) -> list[str]:
        """Return the last events of a task or worker, the oldest first."""
        return list(self._lines.get(subject, ()))

    def move(self, span: Span, state: CallState, words: str = "") -> None:
        """Note that calls enter a state.

        Raises:
            Broken: `CALL_MOVES` has no such arrow.
        """
        one, number = span.open_task, span.open_task.id
        known = self._states.setdefault(number, {})
        for index in range(span.start, span.stop):
            before = known.get(index, "waiting")
            if state not in CALL_MOVES[before] or one.unsettled < 0:
                raise self.broken(f"call {index} of task {number} is {before}: not {state}", number)
            known[index] = state
        self.add(number, f"calls {span.start} to {span.stop} are {state} {words}".rstrip())
        if not one.unsettled:
            del self._states[number]

    def states_of(self, one: OpenTask, start: int, stop: int, but: CallState) -> list[int]:
        """Return the indices of the calls from `start` to before `stop` that are in another state
        than `but`.
        """
        known = self._states.get(one.id)
        if known is None:
            return [] if but == "waiting" else [start]
        return [index for index in range(start, stop) if known.get(index, "waiting") != but]

    def broken(self, text: str, subject: Subject | None = None) -> Broken:
        """Return the error of a broken invariant; the text ends with the last events of its
        subject.
        """
        lines = [] if subject is None else self.of(subject)
        return Broken("\n  ".join([text, *lines]))
