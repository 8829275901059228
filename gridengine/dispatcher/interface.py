"""What clients need of a dispatcher, and what it tells them: the border between `client` and
`dispatcher`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from gridengine.dispatcher.call_slot import CallSlot
from gridengine.dispatcher.core.status import Snapshot
from gridengine.dispatcher.core.tasks import (
    CallsFinished,
    Function,
    ResultData,
    Task,
    TaskMessage,
    TaskStarted,
)
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
