"""The border between callers and dispatchers: what callers need of a dispatcher, what it tells
them, and the submitted calls whose outcome their listener has not received yet.

Open calls are counted where outcomes are passed on, so that all can be failed even when the core is
broken.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from gridengine.dispatcher.call_slot import CallSlot
from gridengine.dispatcher.core.snapshot import Snapshot
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

if TYPE_CHECKING:
    from gridengine.dispatcher.core.status import Status


class Listener(Protocol):
    """Receives the events of tasks. It is called in the I/O thread: it must return at once, not
    raise and not unpickle.

    `daemon`: whether the end of the interpreter may end its tasks; if not it waits for them.
    """

    daemon: bool

    def settled(self, event: CallsFinished) -> None: ...
    def began(self, event: TaskStarted) -> None: ...
    def noted(self, event: TaskMessage) -> None: ...

    def abandoned(self) -> None:
        """Hand nothing more over: the call that the tasks belong to has ended, and so do they."""


class Dispatcher(Protocol):
    """Runs tasks on the workers of one scheduler. Its methods may be called from any thread.

    `slots` is how many calls run at a time at the most; `at_once` is whether calls have ended when
    `submit` returns; `check_room` raises when so many more calls may not be submitted, None where
    any number may; `call_slot` is what the call has in which this dispatcher is used, if it is
    one that this dispatcher runs.
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
        """Have tasks run; the listener receives the outcome of each of their calls once.

        Raises:
            ConfigurationError: the dispatcher is closed, or belongs to the process that this one
                was forked from; or no worker can hold what a task asks for.
        """

    def check(self, demand: Demand) -> None:
        """Check that a worker can hold what calls ask for, and that the request can be pickled.

        Raises:
            ConfigurationError: no worker can; the text says what they hold.
            PicklingError: a resource is of a user's own class, which cannot be pickled.
            Exception: what a user's own class raises.
        """

    def cancel(
        self,
        tasks: Iterable[int],
        number: int = signal.SIGTERM,
        calls: Iterable[tuple[int, int, int]] = (),
    ) -> None:
        """End tasks, and of others these calls (a task, its first call, the one after the last):
        calls not started never run; those that run are sent the signal. The listener receives an
        outcome of each all the same.
        """

    def recall(self, calls: Iterable[tuple[int, int, int]]) -> None:
        """Withdraw what has not begun of these calls (a task, its first call, the one after the
        last): it is settled as `recalled`.
        """

    def catch_up(self) -> None:
        """Wait until all that this thread has asked for is decided, and, for workers of this
        machine, carried out.
        """

    def release(self, name: bytes) -> None:
        """Note that no new task can refer to this shared object. Waits for no lock, since the
        garbage collector calls it too.
        """

    def want(self, task: int, index: int, reference: int, missing: Callable[[], object]) -> None:
        """Have a reference stand for the result of a call that was handed in before. Should what
        came of it not be had here any more, `missing` is called, once, in the I/O thread: it is to
        see that `supply` is, now or later. It is let go of when that is known.
        """

    def supply(self, reference: int, data: ResultData) -> None:
        """Say what a reference stands for that no call of this dispatcher makes."""

    def release_references(self, references: Sequence[int]) -> None:
        """Note that no new task can refer to these results. Waits for no lock, since the garbage
        collector calls it too.
        """

    def detach(self, submitter: int) -> None:
        """Have tasks of this submitter not end with the call that submits them."""

    def note_run(self, name: str, file: str, submitter: int) -> None:
        """Note that the calls of this submitter are of a run with a name: who looks finds the
        dispatcher by that.
        """

    def is_durable(self, task: int) -> bool:
        """Return whether a task that was handed in is on disk, where another process finds it."""

    def snapshot(self) -> Snapshot:
        """Return the latest published state, at most some tenths of a second old."""

    def status(self, most: int = 100) -> Status:
        """Return what it does at this moment; of workers, runs and failures at most so many each.

        Raises:
            ConfigurationError: it has been closed, or belongs to another process.
        """

    def follow(self, tell: Callable[[Status | None], object], interval: float) -> object:
        """Have this be called with the status: at once, and then each `interval` seconds with what
        has happened since; with None when there will be nothing more. It is to return at once.
        Return what to `unfollow`.

        Raises:
            GridEngineError: it has been closed, or nobody answers any more.
            ValueError: very many follow already.
        """

    def unfollow(self, followed: Any) -> None:
        """Tell this one nothing more: what `follow` has returned."""

    def flush_output(self, seconds: float | None = None) -> None:
        """Wait until our standard output and error have taken what was printed up to now, or so
        many seconds, at most five.
        """

    def close(self, *, wait: bool = True) -> None:
        """End all calls, the workers and the threads; calls not settled are settled with
        `Cancelled`. May be called twice.
        """


class DispatcherBase:
    """What dispatchers have in common, and do where there is nothing to tell or to do: their state
    is in another process, or they have none between calls. For the methods see `Dispatcher`.
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
        """Return what is known of the state here: next to nothing."""
        return Snapshot(workers=1)

    def status(self, most: int = 100) -> Status:
        """Likewise."""
        from gridengine.dispatcher.core.status import Status  # few ask

        return Status(slots=self.slots, worker_count=1)

    def follow(self, tell: Callable[[Status | None], object], interval: float) -> object:
        """Tell this once: here there is nothing new to tell."""
        tell(self.status())
        tell(None)
        return None

    def unfollow(self, followed: Any) -> None:
        """Do nothing: nobody follows."""

    def flush_output(self, seconds: float | None = None) -> None:
        """Return: what calls print was printed, or goes to their caller."""


class _Calls(Struct, eq=False, gc=False):
    """The calls of a task that has several; those that are settled, as ranges of their indices."""

    count: int
    settled: list[tuple[int, int]]

    def remaining(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges of calls that are not settled, in their order."""
        start = 0
        for first, stop in sorted(self.settled):
            if start < first:
                yield start, first
            start = stop
        if start < self.count:
            yield start, self.count


class UnsettledTasks:
    """All such tasks. One thread settles; any may add, and wait for those that are not daemon."""

    def __init__(self) -> None:
        self._tasks: dict[int, Listener] = {}
        self._calls: dict[int, _Calls] = {}
        """Those of tasks that have several."""
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
        """Return the listener of a task; None when all of it is settled."""
        return self._tasks.get(task)

    def left(self, task: int) -> list[tuple[int, int]]:
        """Return the ranges of the calls of a task that are not settled."""
        if task not in self._tasks:
            return []
        return list((self._calls.get(task) or _Calls(1, [])).remaining())

    def ids(self) -> list[int]:
        """Return the ids of all such tasks."""
        return list(self._tasks)

    def settle(self, event: CallsFinished) -> None:
        """Pass the outcome of calls to their listener. Only then they count as settled."""
        listener = self._tasks.get(event.task)
        if listener is None:
            return
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
        """Pass it to their listener that a task has begun."""
        if (listener := self._tasks.get(event.task)) is not None:
            listener.began(event)

    def noted(self, event: TaskMessage) -> None:
        """Pass to their listener what a task has pushed, or its calls have logged."""
        if (listener := self._tasks.get(event.task)) is not None:
            listener.noted(event)

    def fail(
        self, error: GridEngineError, tasks: Iterable[int] | None = None
    ) -> Iterator[BaseException]:
        """Settle all remaining calls, or those of these tasks, with an error; yield what a listener
        raises, and go on.
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
        """Wait until all tasks that are left are daemon, or are abandoned."""
        with self._settled:
            self._settled.wait_for(
                lambda: abandoned() or all(one.daemon for one in list(self._tasks.values()))
            )

    def clear(self) -> None:
        """Forget all tasks; nobody waits for them any more."""
        self._tasks.clear()
        self._calls.clear()
        with self._settled:
            self._settled.notify_all()
