"""Calls as the core keeps them: open tasks, the spans of their calls, and who submitted them."""

from __future__ import annotations

from collections.abc import Set

from msgspec import Struct, field

from gridengine.dispatcher.core.tasks import Attempt, Function, ResultData, Task
from gridengine.resources.demand import Demand
from gridengine.serialize.payload import Payload, size_of
from gridengine.wire.messages import Input


class Pace(Struct, eq=False):
    """The mean duration of calls in seconds, as measured lately; None while it is not known."""

    seconds: float | None = None

    def measured(self, calls: int, seconds: float) -> None:
        """Learn from a result; a longer duration counts at once, a shorter one bit by bit."""
        mean = max(seconds, 0.0) / calls
        known = self.seconds
        self.seconds = mean if known is None or mean > known else 0.5 * (known + mean)

    def exceeded(self, seconds: float) -> None:
        """Learn that a call has taken so long already."""
        self.seconds = max(seconds, self.seconds or 0.0)


class RemoteObject(Struct):
    """A function in use, or kept for a while after: its open tasks, the workers that have it, and
    the pace of its calls, whoever submits them.

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


class Submitter(Struct, eq=False):
    """A client with calls here: its number of open tasks, and of batches that workers have, which
    with their loads are its share of the workers.

    `last_run` is the number of its latest run; `function` the one that it submitted last, and
    `pace` that of its calls: at first that of others'.
    """

    number: int
    function: RemoteObject
    pace: Pace
    open: int = 0
    batches: int = 0
    load: int = 0
    last_run: int = 0


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
    are those that have not begun, by the numbers of their tasks, until it is there. `data` is what
    came of the call; `input` is how assignments name it, and `payload` what they then have of it;
    when it is large workers know it as `remote`. `maker`, `made` and `heirs`: see `lineage`.
    """

    reference: int
    held: int = 1
    told: bool = False
    asked: bool = False
    open: int = 0
    waiting: dict[int, OpenTask] = {}
    data: ResultData | None = None
    input: Input = Input(0)
    payload: Payload = ()
    remote: RemoteObject | None = None
    maker: OpenTask | None = None
    made: int = 0
    heirs: int = 0

    def size_for(self, worker: bytes) -> int:
        """Return how many bytes a worker is sent for a call that needs it."""
        if self.remote is None:
            return size_of(self.payload)
        return 0 if worker in self.remote.workers else self.remote.size


class OpenTask(Struct, gc=False):
    """A task not all of whose calls are settled.

    `needs` are the shared objects that it or its function refers to; `order` is its place among all
    tasks, and `since` when it was submitted; `unwanted` are the parts of it that were cancelled or
    recalled; `attempts` are how earlier attempts of its calls ended, None while there is nothing to
    tell. `settled` are the calls that are, as ranges, unless all are at once.

    `inputs` are the results that its one call needs, of which so many are `missing`: until they are
    there it waits in no queue. `kept` are the references of results that others need, by the
    indices of their calls; of those `wanted_late` that was known only after they were assigned.
    `span` is what waits for inputs that its worker has not, and may have waited until `near_until`
    for another that has them; one that is `remade` is told to nobody.
    """

    task: Task
    function: RemoteObject
    unsettled: int
    submitter: Submitter
    pace: Pace
    needs: tuple[RemoteObject, ...] = ()
    order: int = 0
    since: float = 0.0
    unwanted: tuple[Unwanted, ...] = ()
    runs: dict[int, None] = field(default_factory=dict)
    attempts: dict[int, list[Attempt]] | None = None
    settled: list[tuple[int, int]] | None = None
    inputs: tuple[AwaitedResult, ...] = ()
    missing: int = 0
    kept: dict[int, int] | None = None
    wanted_late: Set[int] = frozenset()
    span: Span | None = None
    near_until: float = 0.0
    remade: bool = False

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
