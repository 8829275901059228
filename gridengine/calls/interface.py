"""The interface between callers and dispatchers: the methods of a dispatcher (`Dispatcher`), and
the slot that a call gives back while it waits for its nested calls (`CallSlot`).
"""

from __future__ import annotations

import enum
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

from gridengine.dispatcher.unsettled import Listener, Wanted
from gridengine.requests import (
    CallsRecalled,
    Function,
    NamesForgotten,
    Request,
    ResultData,
    ResultWanted,
    Supplied,
    Task,
    TasksCancelled,
    Told,
)
from gridengine.resources.demand import Demand
from gridengine.serialize.payload import Payload
from gridengine.status.snapshot import Snapshot
from gridengine.wire.messages import Message, Resumes, Waits

if TYPE_CHECKING:
    from gridengine.status.rows import Status


class Dispatcher:
    """Runs tasks on the workers of one scheduler, as its callers see it. Its methods may be called
    from any thread.

    A request is a struct, which a subclass carries to the dispatcher: to the queue of an I/O
    thread, through a runner's channel, over TCP, or nowhere, if this thread runs the calls.
    """

    slots = 1
    """How many calls run at a time, at most."""
    at_once = False
    """Whether calls have ended when `submit` returns."""
    call_slot: CallSlot | None = None
    """The slot of the call in which this dispatcher is used; None outside of calls."""
    output = ""
    """Where what calls print is found, as `Snapshot.output`, if another process has the state."""
    check_room: Callable[[int], object] | None = None
    """Raises an error if this many more calls may not be submitted; None if any number may."""
    new_id: Callable[[], int]
    """Returns an id for a task, unique for this dispatcher."""
    _wanted: dict[int, Wanted]
    """The results that were asked for by `want` and have no answer yet, by reference."""

    def _request(self, request: Request, /) -> None:
        """Carry a request to the dispatcher. Takes no lock: the garbage collector calls it too."""
        raise NotImplementedError

    def submit(self, function: Function, tasks: Sequence[Task], listener: Listener) -> None:
        """Run tasks. The listener receives the outcome of each of their calls once.

        Raises:
            ConfigurationError: the dispatcher is closed, or belongs to the process that this one
                was forked from; or no worker can hold a task's demand.
        """
        raise NotImplementedError

    @property
    def closed(self) -> bool:
        """Whether it was closed, and takes no more calls."""
        return False

    def check(self, demand: Demand) -> None:
        """Check that a worker can hold a demand, and that the demand can be pickled.

        Raises:
            ConfigurationError: no worker can; the text says what workers hold.
            PicklingError: a resource has a user's own class, which cannot be pickled.
            Exception: a user's own class raises it.
        """
        raise NotImplementedError

    def cancel(
        self,
        tasks: Iterable[int],
        number: int = signal.SIGTERM,
        calls: Iterable[tuple[int, int, int]] = (),
    ) -> None:
        """End tasks, and these calls of other tasks (a task, its first call, the one after the
        last). Calls that have not begun never run; running calls get the signal. The listener still
        receives the outcome of each call.
        """
        self._request(TasksCancelled(tuple(tasks), int(number), tuple(calls)))

    def recall(self, calls: Iterable[tuple[int, int, int]]) -> None:
        """Recall these calls (a task, its first call, the one after the last): those that have not
        begun are settled as `recalled`.
        """
        self._request(CallsRecalled(tuple(calls)))

    def catch_up(self) -> None:
        """Wait until all requests of this thread are decided and, for workers on this machine,
        carried out.
        """
        raise NotImplementedError

    def release(self, name: bytes) -> None:
        """Note that no new task can refer to this shared object. Takes no lock, as `_request`."""
        self._request(NamesForgotten((name,)))

    def want(self, task: int, index: int, reference: int, missing: Callable[[], object]) -> None:
        """Let a reference stand for the result of a call that was submitted before. If the
        dispatcher no longer has the result, it calls `missing`, once, in the thread that takes its
        answers; `missing` must see to it that `supply` is called, now or later. In either case
        `missing` is then dropped.
        """
        want = ResultWanted(task, index, reference)
        self._wanted[reference] = want, missing
        self._request(want)

    def supply(self, reference: int, data: ResultData) -> None:
        """Give the result that a reference stands for, if no call of this dispatcher makes it."""
        self._request(Supplied(reference, data))

    def tell(self, task: int, payload: Payload) -> None:
        """Tell the call in progress of a watched task something. Values arrive in their order, and
        nowhere if the call has ended; the listener is told of its end.
        """
        self._request(Told(task, payload))

    def release_references(self, references: Sequence[int]) -> None:
        """Note that no new task can refer to these results. Takes no lock, as `_request`."""
        self._request(NamesForgotten((), references))

    def detach(self, submitter: int) -> None:
        """Let this submitter's tasks go on when their call has ended; without a call do nothing."""

    def note_run(self, name: str, file: str, submitter: int) -> None:
        """Note that the calls of this submitter belong to a named run, so that the dispatcher can
        be found by the run's name. There is nothing to do where nobody looks for it, or where
        another process knows the name.
        """

    def is_durable(self, task: int) -> bool:
        """Return whether a task is on disk, where another process of the dispatcher finds it."""
        return False

    def snapshot(self) -> Snapshot:
        """Return the latest published state, at most some tenths of a second old. Where another
        process has the state, nearly all its counts are 0.
        """
        return Snapshot(workers=1, output=self.output)

    def status(self, most: int = 100) -> Status:
        """Return the present status, with at most `most` workers, runs and failures each.

        Raises:
            ConfigurationError: the dispatcher has been closed, or belongs to another process.
        """
        from gridengine.status.rows import Status  # few ask

        return Status(slots=self.slots, worker_count=1)

    def follow(self, tell: Callable[[Status | None], object], interval: float) -> object:
        """Call `tell` with the status: at once, then every `interval` seconds with the events
        since, and with None when there will be no more. `tell` must return at once. Return the
        argument for `unfollow`.

        Raises:
            GridEngineError: the dispatcher has been closed, or no longer answers.
            ValueError: there are too many followers.
        """
        tell(self.status())
        tell(None)
        return None

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
        raise NotImplementedError


class Releasable(Protocol):
    """A lock, or another object that wakes a waiting thread or task."""

    def release(self) -> None: ...


EXPIRED = (queue.Empty, TimeoutError, KeyboardInterrupt)
"""The exceptions that end a wait although the awaited calls have not ended."""


class _State(enum.Enum):
    """The states of a slot: the call holds it, has given it back, has asked for it again, or has
    ended.
    """

    HELD, GIVEN_BACK, ASKED_FOR, OVER = range(4)


class CallSlot:
    """The slot of one call. Several threads of the call, and tasks of its event loop, may wait at
    the same time. The call has no slot while at least one of them waits, because other threads may
    be waiting for that one.

    Args:
        runner: the number of the call's process.
        present_run: returns the run in progress.
        send: sends a message; takes no lock.
    """

    def __init__(
        self, runner: int, present_run: Callable[[], int], send: Callable[[Message], object]
    ) -> None:
        self._runner = runner
        self._present_run = present_run
        self._send = send
        self._lock = threading.Lock()
        self._state = _State.HELD
        self._waits = 0
        self._resuming: list[Releasable] = []
        self._error: BaseException | None = None
        self.run = 0
        """The run of the call that has given back the slot."""

    def give_back(self) -> None:
        """Note that one more thread or task begins to wait for nested calls."""
        with self._lock:
            self._waits += 1
            if self._state is _State.HELD:
                self._begin()

    def _begin(self) -> None:
        self.run = self._present_run()
        if self.run:
            self._state = _State.GIVEN_BACK
            self._send(Waits(self._runner, self.run))

    def take_again(self, waiter: Releasable) -> bool:
        """Note that one thread or task has stopped waiting. Return whether it must wait for the
        release of `waiter` before it goes on.
        """
        with self._lock:
            self._waits -= 1
            if self._waits or self._state in (_State.HELD, _State.OVER):
                return False
            self._resuming.append(waiter)
            if self._state is _State.GIVEN_BACK:
                self._state = _State.ASKED_FOR
                self._send(Resumes(self._runner, self.run))
            return True

    def check(self) -> None:
        """Raise, once, the reason why the call could not have its allocation back."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def resumed(self) -> None:
        """Note that the call has a slot again."""
        with self._lock:
            if self._state is _State.ASKED_FOR:
                self._hold()

    def refuse(self, error: BaseException) -> bool:
        """Note that the dispatcher refuses: either the call may not give back its slot, or it
        cannot have its allocation back. Return True in the first case; in the second, `check`
        raises this error.
        """
        with self._lock:
            refused_to_wait = self._state is _State.GIVEN_BACK
            if not refused_to_wait:
                self._error = error
            self._hold(again=False)
            return refused_to_wait

    def _hold(self, *, again: bool = True) -> None:
        self._state = _State.HELD
        resuming, self._resuming = self._resuming, []
        if again and self._waits:
            self._begin()
        for waiter in resuming:
            waiter.release()

    def close(self) -> None:
        """Note that the call has ended: nobody waits for its slot any more."""
        with self._lock:
            self._hold(again=False)
            self._state = _State.OVER


class WithoutSlot:
    """A context in which this thread waits for nested calls, without the call's slot, if there is
    one. The wait may end before the nested calls do (`expired`, or an exception in `EXPIRED`). Then
    the thread goes on at once, beside other calls, and gets a slot later, because the nested calls
    may take long.

    Not made by `contextlib.contextmanager`, which sets attributes of exceptions that may have none.

    Raises, at its end:
        NestingError, Exception: the call goes on without its allocation; the text says why.
    """

    def __init__(self, slot: CallSlot | None) -> None:
        self._slot = slot
        self.expired = False

    def __enter__(self) -> Self:
        if self._slot is not None:
            self._slot.give_back()
        return self

    def __exit__(self, kind: type[BaseException] | None, *more: object) -> None:
        if self._slot is None:
            return
        waiter = threading.Lock()
        waiter.acquire()
        expired = self.expired or (kind is not None and issubclass(kind, EXPIRED))
        if self._slot.take_again(waiter) and not expired:
            waiter.acquire()
        self._slot.check()
