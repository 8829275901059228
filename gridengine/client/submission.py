"""Calls on their way: from the caller's thread to the hub of a scheduler, and what has settled on
its way back.
"""

from __future__ import annotations

import queue
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from gridengine.client.connect import connect
from gridengine.client.functions import make_function
from gridengine.client.options import CallOptions
from gridengine.dispatcher.core.tasks import Attempt, CallsFinished, Task, TaskMessage, TaskStarted
from gridengine.errors import GridEngineError, OutOfMemory, PicklingError, ProtocolError
from gridengine.resources.units import whole
from gridengine.schedulers.base import SchedulerSpec
from gridengine.schedulers.logs import log_tail
from gridengine.serialize import pickling
from gridengine.serialize.itemwise_unpickler import Unloadable
from gridengine.serialize.payload import size_of
from gridengine.serialize.shared_memory import KEPT_BYTES

if TYPE_CHECKING:
    from gridengine.dispatcher.interface import Snapshot


def check_limits(retries: int, timeout: float | None) -> None:
    """Check the limits of a call.

    Raises:
        TypeError, ConfigurationError: one is no number, or out of its range.
    """
    CallOptions(retries, timeout)


@dataclass(frozen=True, slots=True)
class MapRequest:
    """What is to be done with many calls."""

    f: Callable[..., Any]
    form: int
    scheduler: SchedulerSpec
    reraise: bool
    chunksize: int | None
    limits: CallOptions

    def __post_init__(self) -> None:
        if not callable(self.f):
            raise TypeError(f"{self.f!r} is not callable")
        if self.chunksize is not None:
            whole("chunksize", self.chunksize, most=sys.maxsize)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the calls `start` to `stop`: their values, or the one error of them all."""

    start: int
    stop: int
    values: Sequence[Any]
    error: BaseException | None


def outcomes_of(event: CallsFinished, first: int = 0) -> list[Outcome]:
    """Return what became of the calls of what has settled, one outcome where they are alike. What
    cannot be read here is a `PicklingError`.

    It may take its time: the end of a worker's log is read here, too.

    first: what to count from.
    """
    start, stop = first + event.start, first + event.stop
    if event.payload is None:
        return [Outcome(start, stop, (), _with_log(event.error))]
    if event.raised:
        return [
            Outcome(
                start,
                stop,
                (),
                _with_history(pickling.load_exception(event.payload), event.attempts),
            )
        ]
    try:
        values, complete = pickling.load_values(event.payload)
    except PicklingError as error:
        return [Outcome(start, stop, (), error)]
    if not isinstance(values, list) or len(values) != stop - start:
        count = (
            f"{len(values)} results" if isinstance(values, list) else f"a {type(values).__name__}"
        )
        wrong = ProtocolError(
            f"the worker answered {stop - start} calls with {count}",
            hint="report this as a fault of gridengine",
        )
        return [Outcome(start, stop, (), wrong)]
    if complete:
        return [Outcome(start, stop, values, None)]
    return [
        Outcome(index, index + 1, (), value.error)
        if type(value) is Unloadable
        else Outcome(index, index + 1, [value], None)
        for index, value in enumerate(values, start)
    ]


def _with_log(error: GridEngineError | None) -> GridEngineError | None:
    """Tell in an error that came about here how the log ends that it names."""
    if error is not None and error.log and error.log_tail is None:
        error.log_tail = log_tail(error.log) or None
    return error


def _with_history(error: BaseException, attempts: Sequence[Attempt]) -> BaseException:
    """Tell in an exception that came from afar what its host cannot know: the cluster job, its log,
    and what came of each attempt.
    """
    if isinstance(error, OutOfMemory) and attempts:
        error.host, error.job, error.log = (
            attempts[-1].host,
            attempts[-1].job or None,
            attempts[-1].log or None,
        )
        error.attempts = tuple(map(str, attempts))
        error.log_tail = log_tail(attempts[-1].log) or None
    elif len(attempts) > 1:
        notes = error.__dict__.get("__notes__")  # not by the class, whose own code might fail
        notes = [
            *(notes if isinstance(notes, list) else ()),
            *(f"attempt {number}: {attempt}" for number, attempt in enumerate(attempts, 1)),
        ]
        BaseException.__setattr__(
            error, "__notes__", notes
        )  # add_note would have to ask the class, a frozen dataclass perhaps
    return error


class _Inbox:
    """Where the I/O thread puts what has settled. The interpreter's exit does not wait for it."""

    daemon = True

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[CallsFinished] = queue.SimpleQueue()
        self.settled = self.events.put

    def began(self, event: TaskStarted) -> None:
        """Not asked for."""

    def noted(self, event: TaskMessage) -> None:
        """Not asked for."""


@dataclass(slots=True)
class _Block:
    """A submitted task: the number of its first call, and how many have not settled."""

    first: int
    left: int


class Submission:
    """The calls of one function that are on their way. It belongs to the caller's thread; the I/O
    thread sees its inbox alone.
    """

    def __init__(self, plan: MapRequest) -> None:
        self._plan = plan
        self._function = make_function(plan.f, plan.limits.exceptions, most_digested=KEPT_BYTES)
        self.dispatcher, self._scheduler, self._ours = connect(
            plan.scheduler, lambda scheduler: scheduler.prepare()
        )
        self._submitter = 0
        """The number that all these calls have in common, by which they take turns with others:
        that of the first task.
        """
        self._inbox = _Inbox()
        self._blocks: dict[int, _Block] = {}
        self._loaded: list[Task] = []

    @property
    def empty(self) -> bool:
        """Whether everything loaded has settled."""
        return not self._blocks

    def snapshot(self) -> Snapshot:
        """Return the dispatcher's state, `running` being of these calls alone."""
        return self.dispatcher.snapshot().of(self._submitter)

    def load(self, calls: Sequence[Any], first: int) -> int:
        """Have calls wait for `depart`, the first of which is call number `first`; return the size
        of their pickle in bytes.

        Raises:
            PicklingError: one of them cannot travel; none of them waits.
        """
        payload = pickling.dump_calls(calls, describe=lambda place: f"call {first + place}")
        id = self.dispatcher.new_id()
        self._submitter = self._submitter or id
        task = self._plan.limits.task(
            id, payload, len(calls), self._plan.form, first=first, submitter=self._submitter
        )
        self._loaded.append(task)
        self._blocks[task.id] = _Block(first, len(calls))
        return size_of(payload)

    def depart(self) -> None:
        """Send the calls that wait."""
        if self._loaded:
            tasks, self._loaded = self._loaded, []
            self.dispatcher.submit(self._function, tasks, self._inbox)

    def load_what_can_travel(self, calls: Sequence[Any], first: int) -> tuple[int, list[Outcome]]:
        """As `load`, but leave out those calls that cannot be pickled; return the size of the
        others' pickle, and their errors.
        """
        try:
            return self.load(calls, first), []
        except PicklingError as error:
            if len(calls) == 1:
                return 0, [Outcome(first, first + 1, (), error)]
        half = len(calls) // 2
        size, failed = self.load_what_can_travel(calls[:half], first)
        more, also_failed = self.load_what_can_travel(calls[half:], first + half)
        return size + more, failed + also_failed

    def outcomes(self, timeout: float | None) -> Iterator[Outcome]:
        """Yield what has settled; wait for the first, up to `timeout` seconds, when nothing has."""
        try:
            yield from self._read(
                self._inbox.events.get(timeout=timeout)
                if timeout != 0
                else self._inbox.events.get_nowait()
            )
            while True:
                yield from self._read(self._inbox.events.get_nowait())
        except queue.Empty:
            return

    def _read(self, event: CallsFinished) -> list[Outcome]:
        block = self._blocks[event.task]
        block.left -= event.stop - event.start
        if not block.left:
            del self._blocks[event.task]
        return outcomes_of(event, block.first)

    def cancel_after(self, index: int) -> None:
        """Cancel the blocks that begin after this call."""
        self.dispatcher.cancel(
            [task for task, block in self._blocks.items() if block.first > index]
        )

    def cancel(self) -> None:
        """Cancel what has not settled, and hear no more of it."""
        for task in self._loaded:
            del self._blocks[task.id]
        self._loaded.clear()
        if self._blocks:
            self.dispatcher.cancel(list(self._blocks))
            self._blocks.clear()

    def close(self) -> None:
        """Cancel what has not settled, and close the scheduler if it is ours. May be called
        twice.
        """
        try:
            self.cancel()
        finally:
            if self._ours:
                self._scheduler.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
