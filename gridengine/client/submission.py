"""Many calls of one function: they go to a dispatcher in tasks, and return as outcomes."""

from __future__ import annotations

import functools
import itertools
import queue
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct
from msgspec.structs import replace

from gridengine.arguments import flag, whole
from gridengine.calls.interface import WithoutSlot
from gridengine.client.connect import connect
from gridengine.client.functions import function_of_map
from gridengine.client.hand_in import HandedTask, HandedTasks, TaskMaker
from gridengine.client.keywords_and_arguments import check_function
from gridengine.client.log_relay import RELAYS, drain_logs
from gridengine.client.options import CallOptions, RunOptions
from gridengine.client.outcomes import Outcome, outcomes_of
from gridengine.errors import PicklingError
from gridengine.requests import CallsFinished, Task
from gridengine.schedulers.base import Scheduler, SchedulerSpec
from gridengine.serialize.payload import STAR
from gridengine.serialize.references import Reference, awaited_in
from gridengine.serialize.shared_objects import RepeatedArrays
from gridengine.status.snapshot import Snapshot
from gridengine.threads import PIECE_SECONDS, in_pieces

if TYPE_CHECKING:
    from gridengine.client.initializer import Initializer
    from gridengine.client.named_run import OpenRun
    from gridengine.client.named_run_calls import RunMap


class MapRequest(Struct, frozen=True):
    """A user's request for many calls.

    Raises:
        TypeError, ConfigurationError: `f` is not callable, or an option has another type, or is out
            of its range.
    """

    f: Callable[..., Any]
    form: int
    scheduler: SchedulerSpec
    reraise: bool
    chunksize: int | None
    options: CallOptions
    named_run: RunOptions | None = None
    """The options of the calls' named run; None if there is none."""
    initializer: Initializer | None = None
    """Runs in each process before the first call."""
    notify: Any = None
    """Gets a message at the first failure and at the end, see `watching.notices`."""

    def __post_init__(self) -> None:
        check_function(self.f)
        if self.notify is not None:
            from gridengine.watching.notices import check_receiver  # few want messages

            check_receiver(self.notify)
        if self.reraise is not True:  # saves most maps a function call
            flag("reraise", self.reraise)
        if self.chunksize is not None:
            check_chunksize(self.chunksize)


def numbered(request: MapRequest, calls: Iterator[Any]) -> tuple[MapRequest, Iterator[Any]]:
    """Return a request with a seed, and its calls, each with its number."""
    from gridengine.call_context.random_streams import with_numbers
    from gridengine.client.initializer import seeded  # few need these

    numbers = itertools.count()
    seeded_request = replace(request, f=seeded(request.f, request.options.seed), form=STAR)
    return seeded_request, with_numbers(request.form, calls, numbers)


def check_chunksize(chunksize: int) -> None:
    """Check the number of calls that are to travel together.

    Raises:
        TypeError, ConfigurationError: it is not a whole number above zero.
    """
    whole("chunksize", chunksize, most=sys.maxsize)


WINDOW_BYTES = 256_000_000
"""At most this many bytes of pickled calls wait for a worker, beside those that workers have."""
LOOK_SECONDS = 0.1
"""How often a thread that waits for room checks whether workers have taken calls."""


class MapTask(HandedTask):
    """A task of a map: the number of its first call, and its size in bytes."""

    first: int
    size: int


class Submission(HandedTasks[MapTask]):
    """The calls of one function, as tasks of a dispatcher. It belongs to the thread that submits;
    the I/O thread calls only `settled`. A named run is asked first which calls have an outcome.
    """

    _run: RunMap | None = None

    def __init__(self, maker: TaskMaker) -> None:
        super().__init__(maker.dispatcher)
        self._maker = maker
        self.name = maker.function.name
        """The name of the function, for people."""
        self._scheduler: Scheduler | None = None
        self._ours = False
        self._opened_run: OpenRun | None = None
        self._added: list[Task] = []
        self._needed_by_all: tuple[Reference, ...] = ()
        self._needed_by_added: list[Reference] = []
        """The references to other calls' results, in the function and the tasks that were added."""
        self._repeated = RepeatedArrays()
        # Each of the two threads has a counter of its own, so that no lock is needed.
        self._added_bytes = self._settled_bytes = 0
        self._discards = False
        self._unread_calls = 0
        """How many calls were added whose outcomes have not been read."""
        self._events: queue.SimpleQueue[tuple[int, CallsFinished] | Outcome] = queue.SimpleQueue()
        self._unread: list[tuple[int, CallsFinished] | Outcome] = []
        """At most one event, whose outcomes are yielded. It comes here in one step of the
        interpreter: a Ctrl-C between `get` and an assignment would lose it.
        """
        self._wake: Callable[[], object] | None = None
        """Wakes the task of an event loop that waits for outcomes."""

    @classmethod
    def of(cls, request: MapRequest) -> Self:
        """Return a submission for a user's request, without calls yet.

        Raises:
            PicklingError: the function cannot be pickled; then no scheduler is made.
            JournalError: another process has the named run, or its file cannot be read.
        """
        f, run = request.f, None
        if request.named_run is not None:
            from gridengine.client import named_run, named_run_calls  # few need these
            from gridengine.journal.what_counts import check_ignored

            check_ignored(f, request.named_run.ignore)
            run = named_run.OpenRun(request.named_run, request.scheduler, request.initializer)
        if request.initializer is not None:
            from gridengine.client.initializer import Prepared  # few need it

            f = Prepared(f, request.initializer)
        try:
            function = function_of_map(f, request.options)
            place = request.scheduler if run is None else run.place
            dispatcher, scheduler, ours = connect(place, prepare=True)
            number = dispatcher.new_id()
            maker = TaskMaker(dispatcher, function, request.form, request.options, number)
            made = cls(maker)
            if function.after:
                made._needed_by_all = maker.introduce(function.payload)
            made._scheduler, made._ours, made._opened_run = scheduler, ours, run
            if run is not None:
                made.record_in(run, named_run_calls.RunMap(run, request.f, maker, run.first))
        except BaseException:
            if run is not None:
                run.close()
            raise
        return made

    @property
    def run_name(self) -> str:
        """The name of the named run that was opened for these calls; empty if there is none."""
        return "" if self._opened_run is None else self._opened_run.name

    @property
    def finished(self) -> bool:
        """Whether the outcomes of all calls have been read."""
        return not self._unread_calls

    def warn_of_copies(self, f: Callable[..., Any], total: int | None) -> None:
        """Warn if several processes may call a function that takes along a generator of random
        numbers; `total` is how many calls there will be, None if that is unknown.
        """
        copies = getattr(self._maker.function.payload, "copies_generator", False)
        if copies and total != 1 and self.dispatcher.slots > 1:
            from gridengine.client.copied_generators import warn_of_copies  # few need it

            warn_of_copies(f)

    def snapshot(self) -> Snapshot:
        """Return the dispatcher's state, where only these calls count as running."""
        return self.dispatcher.snapshot().of(self._maker.submitter)

    def has_room(self) -> bool:
        """Return whether more calls may be added: those that wait for a worker fit into the window.
        There is always room for one task.
        """
        held, tasks = self._added_bytes - self._settled_bytes, len(self._handed)
        if held <= WINDOW_BYTES or not tasks:
            return True
        # Nobody says which tasks wait, so their average size stands for the size of each.
        waiting = max(tasks - self.snapshot().running, 0)
        return waiting * held <= WINDOW_BYTES * tasks

    def wait_seconds(self) -> float | None:
        """Return how long to wait for outcomes before checking for room; None: until one comes."""
        return None if self.has_room() else LOOK_SECONDS

    def adder(self, *, reraise: bool) -> Callable[[Sequence[Any], int], int]:
        """Return the function that adds a block of calls, to be sent by `flush`, given the number
        of the first. It returns the size of the calls in bytes, with the data that they share with
        other calls. A named run is asked for the calls first.

        reraise: the function raises a `PicklingError` if one of the calls cannot be pickled; none
            of them is added. Otherwise the error is the outcome of that call.
        """
        add = self._add if reraise else self._add_what_can_travel
        return add if self._run is None else functools.partial(self._add_unknown, add)

    def _add(self, calls: Sequence[Any], first: int) -> int:
        """Add calls as one task.

        Raises:
            PicklingError: one of the calls cannot be pickled.
        """
        maker, repeated = self._maker, self._repeated
        stored, named = repeated.stored, repeated.named
        payload = maker.pickled(calls, lambda place: f"call {first + place}", repeated)
        if repeated.repeats_generator and self.dispatcher.slots > 1:
            from gridengine.client.copied_generators import warn_of_repeated  # few need it

            repeated.repeats_generator = None
            warn_of_repeated(self.name)
        needed = self._needed_by_all
        if getattr(payload, "awaits", None) or needed:
            if len(calls) > 1:
                return self._add_apart(calls, first)
            needed = *maker.introduce(payload), *needed
            self._needed_by_added += needed
        task = maker.task(payload, len(calls), first, needed)
        self._added.append(task)
        pickled = sum(map(len, payload))  # `size_of`, without a call
        size = pickled + repeated.stored - stored
        self._handed[task.id] = MapTask(len(calls), len(calls), first, size)
        self._unread_calls += len(calls)
        self._added_bytes += size
        return pickled + repeated.named - named

    def _add_unknown(
        self, add: Callable[[Sequence[Any], int], int], calls: Sequence[Any], first: int
    ) -> int:
        """Put the outcomes of calls that the named run knows into the queue, and add the others.
        Return the size of the calls in bytes.
        """
        assert self._run is not None
        size = 0
        for part in self._run.parts(calls, first):
            if part.outcomes is None:
                before = len(self._added)
                size += add(part.calls, part.first)
                self._run.expect(part, self._added[before:])
            else:
                for outcome in part.outcomes:
                    self._put(outcome)
        return size or self._run.run_function.pickled

    def _add_apart(self, calls: Sequence[Any], first: int) -> int:
        """Add calls: each that needs other calls' results as its own task, the others together."""
        size, start = 0, 0
        for index, call in enumerate(calls):
            alone = self._needed_by_all or awaited_in(self._maker.pickled([call]))
            if alone and start < index:
                size += self._add(calls[start:index], first + start)
            if alone:
                size += self._add([call], first + index)
                start = index + 1
        left = calls[start:]
        return size + (self._add(left, first + start) if left else 0)

    def _add_what_can_travel(self, calls: Sequence[Any], first: int) -> int:
        """Add calls. Those that cannot be pickled are left out, with the error as their outcome."""
        try:
            return self._add(calls, first)
        except PicklingError as error:
            if len(calls) == 1:
                return self.add_failed(error, calls, first)
        half = len(calls) // 2
        size = self._add_what_can_travel(calls[:half], first)
        return size + self._add_what_can_travel(calls[half:], first + half)

    def add_failed(self, error: Exception, calls: Sequence[Any], first: int) -> int:
        """Add calls that fail with this error and are not sent."""
        self._put(Outcome(first, first + len(calls), (), error))
        return 0

    def _put(self, outcome: Outcome) -> None:
        """Put the outcome of calls that are not sent into the queue."""
        self._unread_calls += outcome.stop - outcome.start
        self._events.put(outcome)

    def flush(self) -> None:
        """Send the tasks that were added."""
        if self._added:
            tasks, self._added = self._added, []
            self._submit(self._maker.function, tasks, self)
            self._needed_by_added.clear()

    def _take_outcome(self, task: MapTask, event: CallsFinished) -> None:
        if not self._discards:
            self._events.put((task.first, event))
            if (wake := self._wake) is not None:
                wake()
        if not task.unsettled:
            self._settled_bytes += task.size

    def note_all_sent(self) -> None:
        """Note that no more calls will be added."""
        if self._repeated.stored or self._repeated.generators:  # saves most maps a function call
            self._repeated.clear()
        self._needed_by_all = ()
        if self._run is not None:
            self._run.run_function.log_counts()

    def outcomes(self, timeout: float | None) -> Iterator[Outcome]:
        """Yield the outcomes that have arrived; if there are none, wait up to `timeout` seconds for
        the first. If the iteration is left during the outcomes of one event, these are yielded
        again.
        """
        try:
            while True:
                if not self._unread:
                    at_once = timeout == 0 or not self._events.empty()
                    quick = timeout is not None and timeout <= PIECE_SECONDS
                    if at_once or (quick and self.dispatcher.call_slot is None):
                        self._unread += map(self._events.get, (True,), (timeout,))
                    else:
                        self._await_event(timeout)
                unread = self._unread[0]
                if isinstance(unread, Outcome):
                    event: Outcome | CallsFinished = unread
                    yield unread
                else:
                    first, event = unread
                    yield from outcomes_of(event, self.name, first=first)
                self._unread_calls -= event.stop - event.start
                self._unread, timeout = [], 0
        except queue.Empty:
            return

    def _await_event(self, timeout: float | None) -> None:
        """Read the next event; wait for it without the call's slot.

        Raises:
            queue.Empty: none has come within `timeout` seconds.
        """
        with WithoutSlot(self.dispatcher.call_slot) as wait:
            wait.expired = not in_pieces(self._event_comes, timeout)
        if not self._unread:
            raise queue.Empty

    def _event_comes(self, seconds: float) -> bool:
        try:
            self._unread += map(self._events.get, (True,), (seconds,))
        except queue.Empty:
            return False
        return True

    async def wait(self, timeout: float | None) -> None:
        """Wait in a task of asyncio or trio until outcomes arrive, or for `timeout` seconds."""
        from gridengine.client.loop_tasks import task_waiter, task_without_slot

        waiter = task_waiter()
        self._wake = waiter.release
        try:
            if not self._unread and self._events.empty():
                async with task_without_slot(self.dispatcher.call_slot):
                    await waiter.wait(timeout)
        finally:
            self._wake = None

    def cancel_after(self, index: int) -> None:
        """Cancel the tasks that begin after this call."""
        self.dispatcher.cancel(
            [task for task, one in list(self._handed.items()) if one.first > index]
        )

    def cancel(self) -> None:
        """Cancel all calls that have not settled, and discard their outcomes."""
        self._discards = True
        for task in self._added:
            self._handed.pop(task.id, None)  # missing if Ctrl-C came during `add`
        self._added.clear()
        if tasks := list(self._handed):
            self.dispatcher.cancel(tasks)

    def close(self) -> None:
        """Cancel all calls that have not settled, and close the scheduler and the named run if they
        were made here: then all outcomes are on disk. May be called twice.
        """
        self.note_all_sent()
        try:
            if self._handed:
                self.cancel()
        finally:
            try:
                if self._ours and self._scheduler is not None:
                    self._scheduler.close()
                if RELAYS:
                    drain_logs()
            finally:
                if self._opened_run is not None:
                    self._opened_run.close()
