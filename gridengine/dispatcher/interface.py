"""The interface between callers and dispatchers: the methods of a dispatcher (`Dispatcher`), the
events that it passes to callers (`Listener`), and the submitted tasks that have no outcome yet
(`UnsettledTasks`).

Unsettled tasks are counted where outcomes are passed on, so that all can be failed even when the
core is broken.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from gridengine.dispatcher.call_slot import CallSlot
from gridengine.dispatcher.core.tasks import (
    CallsFinished,
    Function,
    ResultData,
    Task,
    TaskMessage,
    TaskStarted,
)
from gridengine.errors import GridEngineError
from gridengine.resources.demand import Demand
from gridengine.status.snapshot import Snapshot

if TYPE_CHECKING:
    from gridengine.status.rows import Status


class Listener(Protocol):
    """Receives the events of tasks. The I/O thread calls its methods: they must return at once, not
    raise, and not unpickle.

    `daemon`: whether the end of the interpreter ends its tasks; otherwise it waits for them.
    """

    daemon: bool

    def settled(self, event: CallsFinished) -> None: ...
    def began(self, event: TaskStarted) -> None: ...
    def noted(self, event: TaskMessage) -> None: ...

    def abandoned(self) -> None:
        """Submit nothing more: the call that the tasks belong to has ended, and so do they."""


class Dispatcher(Protocol):
    """Runs tasks on the workers of one scheduler. Its methods may be called from any thread.

    slots: how many calls run at a time, at most.
    at_once: whether calls have ended when `submit` returns.
    call_slot: the slot of the call in which this dispatcher is used; None outside of calls.
    check_room: raises an error if this many more calls may not be submitted; None if any number
    may.
    """

    slots: int
    at_once: bool

    @property
    def call_slot(self) -> CallSlot | None: ...

    @property
    def check_room(self) -> Callable[[int], object] | None: ...

    def new_id(self) -> int:
        """Return an id for a task, unique for this dispatcher."""

    def submit(self, function: Function, tasks: Sequence[Task], listener: Listener) -> None:
        """Run tasks. The listener receives the outcome of each of their calls once.

        Raises:
            ConfigurationError: the dispatcher is closed, or belongs to the process that this one
                was forked from; or no worker can hold a task's demand.
        """

    def check(self, demand: Demand) -> None:
        """Check that a worker can hold a demand, and that the demand can be pickled.

        Raises:
            ConfigurationError: no worker can; the text says what workers hold.
            PicklingError: a resource has a user's own class, which cannot be pickled.
            Exception: a user's own class raises it.
        """

    def cancel(
        self,
        tasks: Iterable[int],
        number: int = signal.SIGTERM,
        calls: Iterable[tuple[int, int, int]] = (),
    ) -> None:
        """End tasks, and these calls of other tasks (a task, its first call, the one after the
        last). Calls that have not begun never run; running calls get the signal. The listener
        receives the outcome of each call all the same.
        """

    def recall(self, calls: Iterable[tuple[int, int, int]]) -> None:
        """Recall these calls (a task, its first call, the one after the last): those that have not
        begun are settled as `recalled`.
        """

    def catch_up(self) -> None:
        """Wait until all requests of this thread are decided and, for workers on this machine,
        carried out.
        """

    def release(self, name: bytes) -> None:
        """Note that no new task can refer to this shared object. Takes no lock, because the garbage
        collector calls it too.
        """

    def want(self, task: int, index: int, reference: int, missing: Callable[[], object]) -> None:
        """Let a reference stand for the result of a call that was submitted before. If the
        dispatcher no longer has the result, it calls `missing`, once, in the I/O thread; `missing`
        must see to it that `supply` is called, now or later. In either case the dispatcher then
        drops `missing`.
        """

    def supply(self, reference: int, data: ResultData) -> None:
        """Give the result that a reference stands for, if no call of this dispatcher makes it."""

    def release_references(self, references: Sequence[int]) -> None:
        """Note that no new task can refer to these results. Takes no lock, because the garbage
        collector calls it too.
        """

    def detach(self, submitter: int) -> None:
        """Let tasks of this submitter go on when the call that submits them has ended."""

    def note_run(self, name: str, file: str, submitter: int) -> None:
        """Note that the calls of this submitter belong to a named run, so that the dispatcher can
        be found by the run's name.
        """

    def is_durable(self, task: int) -> bool:
        """Return whether a submitted task is on disk, where another process of the dispatcher finds
        it.
        """

    def snapshot(self) -> Snapshot:
        """Return the latest published state, at most some tenths of a second old."""

    def status(self, most: int = 100) -> Status:
        """Return the present status, with at most `most` workers, runs and failures each.

        Raises:
            ConfigurationError: the dispatcher has been closed, or belongs to another process.
        """

    def follow(self, tell: Callable[[Status | None], object], interval: float) -> object:
        """Call `tell` with the status: at once, then every `interval` seconds with the events
        since, and with None when there will be no more. `tell` must return at once. Return the
        argument for `unfollow`.

        Raises:
            GridEngineError: the dispatcher has been closed, or nobody answers any more.
            ValueError: very many follow already.
        """

    def unfollow(self, followed: Any) -> None:
        """Send a follower nothing more. `followed` is the return value of `follow`."""

    def flush_output(self, seconds: float | None = None) -> None:
        """Wait until our standard output and error have taken everything that was printed so far,
        for at most `seconds`, and five at most.
        """

    def close(self, *, wait: bool = True) -> None:
        """End all calls, the workers and the threads. Calls that are not settled are settled with
        `Cancelled`. May be called twice.
        """


class DispatcherBase:
    """The methods of dispatchers that have no state to show here: their state is in another
    process, or they have none between calls. For the methods see `Dispatcher`.
    """

    slots = 1
    at_once = False
    call_slot: CallSlot | None = None
    check_room: Callable[[int], object] | None = None

    def detach(self, submitter: int) -> None:
        """Do nothing: no call submits here."""

    def note_run(self, name: str, file: str, submitter: int) -> None:
        """Do nothing: nobody looks here, or another process knows."""

    def is_durable(self, task: int) -> bool:
        """Return False: nothing is on disk."""
        return False

    def snapshot(self) -> Snapshot:
        """Return a state with next to nothing in it."""
        return Snapshot(workers=1)

    def status(self, most: int = 100) -> Status:
        """Return a status with next to nothing in it."""
        from gridengine.status.rows import Status  # few ask

        return Status(slots=self.slots, worker_count=1)

    def follow(self, tell: Callable[[Status | None], object], interval: float) -> object:
        """Call `tell` once, and then with None: here the status does not change."""
        tell(self.status())
        tell(None)
        return None

    def unfollow(self, followed: Any) -> None:
        """Do nothing: nobody follows."""

    def flush_output(self, seconds: float | None = None) -> None:
        """Return at once: output of calls is printed already, or goes to their caller."""


class _Calls(Struct, eq=False, gc=False):
    """The calls of a task with several calls; the settled ones as ranges of their indices."""

    count: int
    settled: list[tuple[int, int]]

    def remaining(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges of unsettled calls, in their order."""
        start = 0
        for first, stop in sorted(self.settled):
            if start < first:
                yield start, first
            start = stop
        if start < self.count:
            yield start, self.count


class UnsettledTasks:
    """All submitted tasks with unsettled calls. One thread settles; any thread may add tasks, and
    wait for jobs.
    """

    def __init__(self) -> None:
        self._tasks: dict[int, Listener] = {}
        self._calls: dict[int, _Calls] = {}
        """The calls of tasks that have several."""
        self._settled = threading.Condition()

    def add(self, tasks: Sequence[Task], listener: Listener) -> None:
        """Add submitted tasks, and the listener for their outcomes."""
        for task in tasks:
            if task.count > 1:
                self._calls[task.id] = _Calls(task.count, [])
            self._tasks[task.id] = listener

    def add_single(self, numbers: Iterable[int], listener: Listener) -> None:
        """Add submitted tasks of one call each, by their numbers."""
        self._tasks.update(dict.fromkeys(numbers, listener))

    def listener(self, task: int) -> Listener | None:
        """Return the listener of a task; None if all its calls are settled."""
        return self._tasks.get(task)

    def left(self, task: int) -> list[tuple[int, int]]:
        """Return the ranges of unsettled calls of a task."""
        if task not in self._tasks:
            return []
        return list((self._calls.get(task) or _Calls(1, [])).remaining())

    def ids(self) -> list[int]:
        """Return the ids of all tasks with unsettled calls."""
        return list(self._tasks)

    def settle(self, event: CallsFinished) -> None:
        """Pass the outcome of calls to their listener. Only then do they count as settled."""
        listener = self._tasks.get(event.task)
        if listener is None:
            return
        # Before the task is removed: if the listener raises an exception, `fail` must still find
        # the task.
        listener.settled(event)
        if event.last:
            self._tasks.pop(event.task, None)
            if self._calls:
                self._calls.pop(event.task, None)
        elif (calls := self._calls.get(event.task)) is not None:
            settled = calls.settled
            if settled and settled[-1][1] == event.start:
                settled[-1] = settled[-1][0], event.stop
            else:
                settled.append((event.start, event.stop))
        if not listener.daemon:
            with self._settled:
                self._settled.notify_all()

    def began(self, event: TaskStarted) -> None:
        """Tell a task's listener that the task has begun."""
        if (listener := self._tasks.get(event.task)) is not None:
            listener.began(event)

    def noted(self, event: TaskMessage) -> None:
        """Pass a pushed value, or log records, to a task's listener."""
        if (listener := self._tasks.get(event.task)) is not None:
            listener.noted(event)

    def fail(
        self, error: GridEngineError, tasks: Iterable[int] | None = None
    ) -> Iterator[BaseException]:
        """Settle all remaining calls, or those of these tasks, with an error. Yield exceptions that
        listeners raise, and go on.
        """
        for id in self.ids() if tasks is None else tasks:
            if (listener := self._tasks.pop(id, None)) is None:
                continue
            calls = self._calls.pop(id, None) or _Calls(1, [])
            for start, stop in calls.remaining():
                try:
                    listener.settled(
                        CallsFinished(
                            id, start, stop, None, error=error, exitcode=1, last=stop == calls.count
                        )
                    )
                except BaseException as failure:
                    yield failure

    def wait_for_jobs(self, abandoned: Callable[[], bool]) -> None:
        """Wait until all remaining tasks are daemons, or `abandoned` returns True."""
        with self._settled:
            self._settled.wait_for(
                lambda: abandoned() or all(one.daemon for one in list(self._tasks.values()))
            )

    def clear(self) -> None:
        """Forget all tasks: nobody waits for them any more."""
        self._tasks.clear()
        self._calls.clear()
        with self._settled:
            self._settled.notify_all()
