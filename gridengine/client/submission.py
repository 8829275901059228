"""Many calls of one function on their way: to a dispatcher in tasks, and back as outcomes."""

from __future__ import annotations

import queue
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from msgspec import Struct

from gridengine.client.connect import connect
from gridengine.client.functions import function_of_map
from gridengine.client.log_relay import RELAYS, drain_logs
from gridengine.client.options import CallOptions
from gridengine.client.outcomes import Outcome, OutcomeListener, outcomes_of
from gridengine.client.run_options import RunOptions
from gridengine.dispatcher.call_slot import WithoutSlot
from gridengine.dispatcher.core.status import Snapshot
from gridengine.dispatcher.core.tasks import CallsFinished, Function, Task
from gridengine.dispatcher.interface import Dispatcher
from gridengine.errors import PicklingError
from gridengine.resources.units import flag, whole
from gridengine.schedulers.base import Scheduler, SchedulerSpec
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload, size_of
from gridengine.serialize.references import Reference, awaited_in, numbers
from gridengine.serialize.repeated_arrays import RepeatedArrays


class MapRequest(Struct, frozen=True):
    """What a user asks for with many calls.

    Raises:
        TypeError, ConfigurationError: `f` cannot be called, or an option is of another type, or
            out of its range.
    """

    f: Callable[..., Any]
    form: int
    scheduler: SchedulerSpec
    reraise: bool
    chunksize: int | None
    options: CallOptions
    kept: RunOptions | None = None
    """The run with a name that the calls are of, if they are of one."""

    def __post_init__(self) -> None:
        if not callable(self.f):
            raise TypeError(f"{self.f!r} is not callable")
        if self.reraise is not True:  # a call less for most maps
            flag("reraise", self.reraise)
        if self.chunksize is not None:
            check_chunksize(self.chunksize)


def check_chunksize(chunksize: int) -> None:
    """Check a number of calls that are to travel together.

    Raises:
        TypeError, ConfigurationError: it is no whole number above zero.
    """
    whole("chunksize", chunksize, most=sys.maxsize)


WINDOW_BYTES = 256_000_000
"""So many bytes of pickled calls may wait for a worker, beside those that workers have."""
LOOK_SECONDS = 0.1
"""How often who waits for room looks whether workers have begun what was sent."""


class _Block(Struct):
    """A task: the number of its first call, how many calls it has, how many are unsettled, and of
    how many bytes it is.
    """

    first: int
    count: int
    unsettled: int
    size: int


class Submission(OutcomeListener):
    """The calls of one function, as tasks of a dispatcher. It belongs to the thread that submits;
    the I/O thread calls `settled` alone.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        function: Function,
        form: int,
        options: CallOptions,
        submitter: int = 0,
    ) -> None:
        self.dispatcher = dispatcher
        self._function = function
        self.name = function.name
        """What people call the function."""
        self._options = options
        self._form = form
        self._submitter = submitter
        """The number that these calls have in common, by which they take turns with others: that of
        the first task, unless it is given.
        """
        self._scheduler: Scheduler | None = None
        self._ours = False
        self._added: list[Task] = []
        self._needed_by_all: tuple[Reference, ...] = ()
        self._needed_by_added: list[Reference] = []
        """The results of other calls that the function, and those that were added, refer to."""
        self._blocks: dict[int, _Block] = {}
        self._repeated = RepeatedArrays()
        # One counter for each of the two threads, so that no lock is needed.
        self._added_bytes = self._settled_bytes = 0
        self._discards = False
        self._events: queue.SimpleQueue[tuple[int, CallsFinished] | Outcome] = queue.SimpleQueue()
        self._unread: tuple[int, CallsFinished] | Outcome | None = None
        self._wake: Callable[[], object] | None = None
        """Wakes the task that waits for outcomes."""

    @classmethod
    def of(cls, request: MapRequest) -> Self:
        """Return a submission for a user's request, without calls yet.

        Raises:
            PicklingError: the function cannot be pickled; no scheduler is made.
        """
        function = function_of_map(request.f, request.options)
        dispatcher, scheduler, ours = connect(request.scheduler, prepare=True)
        made = cls(dispatcher, function, request.form, request.options)
        made._scheduler, made._ours = scheduler, ours
        if function.after:
            made._needed_by_all = made._introduce(function.payload)
        return made

    @property
    def finished(self) -> bool:
        """Whether the outcomes of all calls have been read."""
        return not self._blocks and self._unread is None and self._events.empty()

    def snapshot(self) -> Snapshot:
        """Return the dispatcher's state, where only these calls count as running."""
        return self.dispatcher.snapshot().of(self._submitter)

    def has_room(self) -> bool:
        """Return whether more may be added: what waits for a worker is within the window. There is
        always room for one.
        """
        held, blocks = self._added_bytes - self._settled_bytes, len(self._blocks)
        if held <= WINDOW_BYTES or not blocks:
            return True
        waiting = max(blocks - self.snapshot().running, 0)
        return waiting * held <= WINDOW_BYTES * blocks

    def wait_seconds(self) -> float | None:
        """Return for how long to wait for outcomes before room is looked for again; None is until
        one comes.
        """
        return None if self.has_room() else LOOK_SECONDS

    def add(self, calls: Sequence[Any], first: int) -> int:
        """Add a task, to be sent by `flush`; `first` is the number of its first call. Return of how
        many bytes the calls are, those included that they share with others.

        Raises:
            PicklingError: one of the calls cannot be pickled; none of them is added.
        """
        repeated = self._repeated
        stored, named = repeated.stored, repeated.named
        payload = pickling.dump_calls(
            calls, describe=lambda place: f"call {first + place}", repeated=repeated
        )
        after: tuple[int, ...] = ()
        if getattr(payload, "awaits", None) or self._needed_by_all:
            if len(calls) > 1:
                return self._add_apart(calls, first)
            references = *self._introduce(payload), *self._needed_by_all
            self._needed_by_added += references
            after = numbers(references)
        id = self.dispatcher.new_id()
        self._submitter = self._submitter or id
        self._added.append(
            self._options.task(
                id,
                payload,
                len(calls),
                self._form,
                first=first,
                submitter=self._submitter,
                after=after,
            )
        )
        pickled = size_of(payload)
        size = pickled + repeated.stored - stored
        self._blocks[id] = _Block(first, len(calls), len(calls), size)
        self._added_bytes += size
        return pickled + repeated.named - named

    def _introduce(self, payload: Payload) -> tuple[Reference, ...]:
        from gridengine.client.dependencies import introduce  # here, as in `functions`

        return introduce(payload, self.dispatcher)

    def _add_apart(self, calls: Sequence[Any], first: int) -> int:
        """As `add`, where calls refer to results of others: each of those is a task of its own. The
        others stay together.
        """
        size, start = 0, 0
        for index, call in enumerate(calls):
            alone = self._needed_by_all or awaited_in(pickling.dump_calls([call]))
            if alone and start < index:
                size += self.add(calls[start:index], first + start)
            if alone:
                size += self.add([call], first + index)
                start = index + 1
        return size + (self.add(calls[start:], first + start) if start < len(calls) else 0)

    def add_what_can_travel(self, calls: Sequence[Any], first: int) -> int:
        """As `add`, but calls that cannot be pickled are left out, and their errors are their
        outcomes.
        """
        try:
            return self.add(calls, first)
        except PicklingError as error:
            if len(calls) == 1:
                return self.add_failed(error, calls, first)
        half = len(calls) // 2
        size = self.add_what_can_travel(calls[:half], first)
        return size + self.add_what_can_travel(calls[half:], first + half)

    def add_failed(self, error: Exception, calls: Sequence[Any], first: int) -> int:
        """As `add`, for calls that fail with this error without being sent."""
        self._events.put(Outcome(first, first + len(calls), (), error))
        return 0

    def flush(self) -> None:
        """Send the tasks that were added."""
        if self._added:
            tasks, self._added = self._added, []
            self.dispatcher.submit(self._function, tasks, self)
            self._needed_by_added.clear()

    def settled(self, event: CallsFinished) -> None:
        block = self._blocks.get(event.task)
        if block is None:
            return
        if not self._discards:
            self._events.put((block.first, event))
            if (wake := self._wake) is not None:
                wake()
        block.unsettled -= event.stop - event.start
        if not block.unsettled:
            del self._blocks[event.task]
            self._settled_bytes += block.size

    def note_all_sent(self) -> None:
        """Note that no more calls will be added."""
        self._repeated.clear()
        self._needed_by_all = ()

    def outcomes(self, timeout: float | None) -> Iterator[Outcome]:
        """Yield the outcomes that have come; wait for the first, up to `timeout` seconds, if there
        is none. Those of an event during which the iteration is left are yielded again.
        """
        try:
            while True:
                if self._unread is None:
                    slot = self.dispatcher.call_slot
                    if slot is None or timeout == 0 or not self._events.empty():
                        self._unread = self._events.get(timeout=timeout)
                    else:
                        with WithoutSlot(slot):
                            self._unread = self._events.get(timeout=timeout)
                unread = self._unread
                yield from (
                    [unread]
                    if isinstance(unread, Outcome)
                    else outcomes_of(unread[1], self._function.name, first=unread[0])
                )
                self._unread, timeout = None, 0
        except queue.Empty:
            return

    async def wait(self, timeout: float | None) -> None:
        """Wait in a task of asyncio or trio until outcomes have come, or `timeout` seconds."""
        from gridengine.client.async_waiting import task_waiter, task_without_slot

        waiter = task_waiter()
        self._wake = waiter.release
        try:
            if self._unread is None and self._events.empty():
                async with task_without_slot(self.dispatcher.call_slot):
                    await waiter.wait(timeout)
        finally:
            self._wake = None

    def unsettled_calls(self) -> list[tuple[int, int, int]]:
        """Return the tasks not all of whose calls have ended: the number of each, its first call
        and the one after its last.
        """
        return [(task, 0, block.count) for task, block in list(self._blocks.items())]

    def cancel_after(self, index: int) -> None:
        """Cancel the tasks that begin after this call."""
        self.dispatcher.cancel(
            [task for task, block in list(self._blocks.items()) if block.first > index]
        )

    def cancel(self) -> None:
        """Cancel what has not settled, and discard its outcomes."""
        self._discards = True
        for task in self._added:
            self._blocks.pop(task.id, None)  # a Ctrl-C may have come while it was added
        self._added.clear()
        if tasks := list(self._blocks):
            self.dispatcher.cancel(tasks)

    def close(self) -> None:
        """Cancel what has not settled, and close the scheduler if it was made here. May be called
        twice.
        """
        self.note_all_sent()
        try:
            if self._blocks:
                self.cancel()
        finally:
            if self._ours and self._scheduler is not None:
                self._scheduler.close()
            if RELAYS:
                drain_logs()
