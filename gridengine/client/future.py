"""`CallFuture`: the `concurrent.futures.Future` of a call, light while it waits, and unpickled by
whoever asks for its result.

A future of the standard library carries a condition, and with it a lock and two containers; most
are only ever asked for their result. So a promise makes its condition when somebody first waits for
it, registers with it or looks into it, as `wait`, `as_completed` and `asyncio.wrap_future` do.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures._base import CANCELLED_AND_NOTIFIED, FINISHED, LOGGER, PENDING, RUNNING
from typing import TYPE_CHECKING, Any

from gridengine.client.submission import Outcome, outcomes_of
from gridengine.dispatcher.core.tasks import CallsFinished, TaskMessage, TaskStarted
from gridengine.serialize.payload import Payload

if TYPE_CHECKING:
    from gridengine.client.batcher import Batcher
    from gridengine.client.functions import CallTemplate

DONE = frozenset({CANCELLED_AND_NOTIFIED, FINISHED})


class UndecodedResult:
    """What has settled together, as it came. The first promise whose result is asked for has all of
    it unpickled; each takes its own.
    """

    __slots__ = ("_event", "_lock", "_values", "failed")

    def __init__(self, event: CallsFinished) -> None:
        self.failed = event.raised or event.payload is None
        self._event: CallsFinished | None = event
        self._lock = threading.Lock()
        self._values: list[Any] = []

    def take(self, promise: CallFuture, place: int) -> None:
        """Put the result that has this place, or the error, into its promise."""
        with self._lock:
            if promise.held is not self:
                return
            if self._event is not None:
                values: list[Any] = []
                for outcome in outcomes_of(self._event):
                    values += (
                        outcome.values
                        if outcome.error is None
                        else [Failed(outcome.error)] * (outcome.stop - outcome.start)
                    )
                self._values, self._event = values, None
            promise.held, self._values[place] = self._values[place], None


class Failed:
    """Holds an exception in the place of a result."""

    __slots__ = ("error",)
    failed = True

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Done:
    """Stands for the end of calls whose results are kept elsewhere."""

    __slots__ = ()
    failed = False


class Waiters:
    """What a promise has once somebody waits for it.

    Who waits for it alone sleeps on a lock. To be woken by a condition takes two more switches of
    threads: it is notified while its own lock is held. There is one only for the functions of
    `concurrent.futures`, once they look in.
    """

    __slots__ = ("callbacks", "condition", "sleepers", "waiters")

    def __init__(self) -> None:
        self.condition: threading.Condition | None = None
        self.sleepers: list[threading.Lock] = []
        self.waiters: list[Any] = []
        self.callbacks: list[Callable[[Future[Any]], object]] = []

    def rouse(self) -> list[threading.Lock]:
        """Return whom to wake, by releasing their locks, once the intake's lock, which is held now,
        is free.
        """
        sleepers, self.sleepers = self.sleepers, []
        return sleepers


class CallFuture(Future[Any]):
    """A call's future. All that `concurrent.futures.Future` promises holds; `kill` besides ends a
    call that runs.

    `held` is the call until it has ended, then what settled with it (`UndecodedResult`), then its
    result. `work` is what it is a call of, then who runs it, then its place in what settled with
    it.
    """

    __slots__ = ("_state", "held", "home", "watch", "work")
    count = 1

    def __init__(self, home: Batcher, work: CallTemplate | None, call: Any) -> None:
        # Not the base's: its condition is what takes most of its time and memory.
        self.home = home
        self.work: Any = work
        self.held = call
        self.watch: Waiters | None = None
        self._state = PENDING

    @classmethod
    def failed(cls, home: Batcher, error: BaseException) -> CallFuture:
        """Return the promise of a call that could not be submitted."""
        promise = cls(home, None, Failed(error))
        promise._state = FINISHED
        return promise

    # What the base class and the functions beside it read

    def _watched(self) -> Waiters:
        """Return what is there for who waits; the intake's lock is held."""
        if self.watch is None:
            self.watch = Waiters()
        return self.watch

    def _looked_into(self) -> Waiters:
        """Return the same, with a condition."""
        watch = self.watch
        if watch is None or watch.condition is None:
            with self.home.lock:
                watch = self._watched()
                if watch.condition is None:
                    watch.condition = threading.Condition()
        return watch

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        condition = self._looked_into().condition
        assert condition is not None
        return condition

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        return self._looked_into().waiters

    @property
    def _done_callbacks(self) -> list[Callable[[Future[Any]], object]]:
        return self._looked_into().callbacks

    @property
    def _result(self) -> Any:  # type: ignore[override]
        held = self._unpacked()
        return None if isinstance(held, Failed) else held

    @property
    def _exception(self) -> BaseException | None:  # type: ignore[override]
        held = self._unpacked()
        return held.error if isinstance(held, Failed) else None

    def _unpacked(self) -> Any:
        if self._state != FINISHED:
            return None
        held = self.held
        if type(held) is UndecodedResult:
            held.take(self, self.work)
        return self.held

    # What users ask

    def cancel(self) -> bool:
        """Withdraw the call if it has not begun; return whether it is cancelled."""
        if self._state == RUNNING:
            self.home.recall(self)
        if self.withdraw(PENDING) and self.watch is not None:
            self.call_back()
        return self._state == CANCELLED_AND_NOTIFIED

    def withdraw(self, state: str) -> bool:
        """Cancel the call if this is its state, and wake who waits; return whether it was.
        Callbacks are left to who asked.
        """
        with self.home.lock:
            if self._state != state:
                return False
            if self.watch is None:
                self._cancelled()
                return True
        with self._condition:
            with self.home.lock:
                if self._state != state:
                    return False
                self._cancelled()
                sleepers = self._watched().rouse()
            for waiter in self._waiters:
                waiter.add_cancelled(self)
            self._condition.notify_all()
        wake(sleepers)
        return True

    def _cancelled(self) -> None:
        self._state = CANCELLED_AND_NOTIFIED
        self.held = self.work = None
        self.home.withdrew()

    def done(self) -> bool:
        """Return whether the call has ended or was cancelled."""
        return self._state in DONE

    def running(self) -> bool:
        """Return whether the call has been handed over and has not ended."""
        return self._state == RUNNING

    def cancelled(self) -> bool:
        """Return whether the call was cancelled."""
        return self._state == CANCELLED_AND_NOTIFIED

    def result(self, timeout: float | None = None) -> Any:
        """Return what the call returned, waiting for it up to `timeout` seconds.

        Raises:
            CancelledError: it was withdrawn before it began.
            TimeoutError: it has not ended by then.
            Exception: what it raised, with a `RemoteTraceback` as its `__cause__`.
            CallError, ClusterError: what kept it from ending.
        """
        if self._state != FINISHED:
            self._await(timeout)
        held = self.held
        if type(held) is UndecodedResult:
            held.take(self, self.work)
            held = self.held
        if type(held) is Failed:
            try:
                raise held.error
            finally:
                self = held = None  # type: ignore[assignment]  # the traceback would hold them, and they the exception
        return held

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception that `result` would raise, or None; waits and raises like `result`
        for all else.
        """
        if self._state != FINISHED:
            self._await(timeout)
        return self._exception

    def _await(self, timeout: float | None) -> None:
        if not self.await_end(timeout):
            raise FutureTimeoutError
        if self._state == CANCELLED_AND_NOTIFIED:
            raise CancelledError

    def await_end(self, timeout: float | None) -> bool:
        """Wait for the end; return whether it has come within `timeout` seconds."""
        sleeper = threading.Lock()
        sleeper.acquire()
        with self.home.lock:
            if self._state in DONE:
                return True
            watch = self._watched()
            watch.sleepers.append(sleeper)
        try:
            sleeper.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
        finally:
            with self.home.lock:
                if sleeper in watch.sleepers:
                    watch.sleepers.remove(sleeper)
        return self._state in DONE

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Have `fn(self)` called when the call has ended or was cancelled; at once if it has."""
        self.home.will_call_back()
        with self._condition:
            if self._state not in DONE:
                self._done_callbacks.append(fn)
                return
        call_safely(fn, self)

    # What becomes of it

    def settle(self, outcome: UndecodedResult | Failed | Done, place: int) -> bool:
        """Note the outcome of a promise that has a condition, and wake who waits; return whether
        callbacks are to be called.
        """
        with self._condition:
            with self.home.lock:
                self.held, self.work, self._state = outcome, place, FINISHED
                sleepers = self._watched().rouse()
            for waiter in self._waiters:
                (waiter.add_exception if outcome.failed else waiter.add_result)(self)
            self._condition.notify_all()
        wake(sleepers)
        return bool(self._done_callbacks)

    def call_back(self, logged: type[BaseException] = Exception) -> None:
        """Call what was registered by `add_done_callback`, all of it, whatever one raises; what is
        not logged is raised at the end.
        """
        watch = self._looked_into()
        callbacks, watch.callbacks = watch.callbacks, []
        with contextlib.ExitStack() as left:
            for callback in reversed(callbacks):
                left.callback(call_safely, callback, self, logged)

    def set_running_or_notify_cancel(self) -> bool:
        """Only who runs the call may say what becomes of it.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("the outcome of a call is set by the workers")

    def set_result(self, result: Any) -> None:
        """As `set_running_or_notify_cancel`.

        Raises:
            InvalidStateError: always.
        """
        raise InvalidStateError(f"the outcome of a call is set by the workers: {self!r}")

    def set_exception(self, exception: BaseException | None) -> None:
        """As `set_result`."""
        self.set_result(None)

    def __reduce__(self) -> Any:
        raise TypeError("a future cannot be pickled; pass its result")


class ChunkFuture(CallFuture):
    """Many calls of one function in one promise; its result is nothing, for what they return is
    asked for piece by piece.

    `held` is the payload of the calls while they wait, `first` the number of the first of them, for
    people.
    """

    __slots__ = ("_pace", "_pieces", "count", "first", "left", "load", "taken", "task")
    daemon = True

    def __init__(
        self, home: Batcher, work: CallTemplate, payload: Payload, count: int, first: int
    ) -> None:
        super().__init__(home, work, payload)
        self.first = first
        self.count = self.left = count
        self.task = self.load = self.taken = 0
        self._pace = work.pace
        self._pieces: dict[int, CallsFinished | Outcome] = {}
        self._looked_into()

    @property
    def calls(self) -> tuple[int, int, int]:
        """The task, and from where to where its calls are."""
        return self.task, 0, self.count

    def depart(self, task: int, load: int) -> None:
        """Note as which task the calls are handed over, and the load of each."""
        self.held, self.work = None, self
        self.task, self.load = task, load

    def settled(self, event: CallsFinished) -> None:
        """Take what has settled, in the I/O thread."""
        calls = event.stop - event.start
        if event.seconds is not None:
            self._pace.measured(calls, event.seconds)
        with self._condition:
            self._pieces[event.start] = event
            self.left -= calls
            self._condition.notify_all()
        if self.left:
            self.home.progressed(calls, self.load)
        else:
            self.home.forget(self.task)
            self.home.settled([self], Done(), calls, self.load)

    def began(self, event: TaskStarted) -> None:
        """Not asked for."""

    def noted(self, event: TaskMessage) -> None:
        """Not asked for."""

    def piece(self, start: int, timeout: float | None) -> Outcome:
        """Return what became of the calls from `start` to another; waits for it up to `timeout`
        seconds.

        It may be asked for again until it is taken.

        Raises:
            CancelledError: they were withdrawn.
            TimeoutError: it has not come by then.
        """
        with self._condition:
            if not self._condition.wait_for(
                lambda: start in self._pieces or self._state in DONE, timeout
            ):
                raise FutureTimeoutError
            piece = self._pieces.get(start)
        if piece is None:
            return Outcome(
                start,
                self.count,
                (),
                self.exception() or RuntimeError("these results have been taken"),
            )
        if isinstance(piece, Outcome):
            return piece
        if piece.recalled:
            raise CancelledError
        outcomes = outcomes_of(piece)
        with self._condition:
            self._pieces.update((one.start, one) for one in outcomes)
        return outcomes[0]

    def take(self, piece: Outcome) -> None:
        """Let go of what was given."""
        self.taken = piece.stop
        self._pieces.pop(piece.start, None)


def wake(sleepers: Sequence[threading.Lock]) -> None:
    """Wake who sleeps."""
    for sleeper in sleepers:
        sleeper.release()


def call_safely(
    callback: Callable[[Future[Any]], object],
    promise: CallFuture,
    logged: type[BaseException] = Exception,
) -> None:
    """Call a callback as the standard library does: what it raises is logged."""
    try:
        callback(promise)
    except logged:
        LOGGER.exception("exception calling callback for %r", promise)
