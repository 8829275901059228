"""`CallFuture`: the `concurrent.futures.Future` of a call. It is small while it waits, and its
result is unpickled by whoever asks for it.

A future of the standard library has a condition, and with it a lock and two containers; most are
only ever asked for their result. So this future makes its condition when somebody first waits for
it, registers with it or looks into it, as `wait`, `as_completed` and `asyncio.wrap_future` do.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures._base import FINISHED, LOGGER
from time import monotonic
from typing import Any, Final, Protocol

from msgspec import field

from gridengine.calls.interface import Dispatcher, Releasable, WithoutSlot
from gridengine.client.dependencies import Found, pickled, unread
from gridengine.client.future_outcomes import (
    CANCELLED,
    RUNNING,
    WAITING,
    Failed,
    FutureOutcome,
    Phase,
    UndecodedResult,
    is_failure,
)
from gridengine.client.hand_in import TaskMaker
from gridengine.client.outcomes import cancelled_error, path_from
from gridengine.client.waiters import RegisteredWaiters, Waiters, release
from gridengine.dispatcher.core.calls import Pace
from gridengine.display import html_table
from gridengine.errors import UNNUMBERED, Cancelled, call_words, short_repr, trim
from gridengine.requests import ResultData
from gridengine.serialize.argument_snapshot import CallSnapshot, is_constant
from gridengine.serialize.encoding import with_needs
from gridengine.serialize.payload import FULL, Payload, PayloadAtWorker
from gridengine.serialize.references import Reference, ResultHolder
from gridengine.serialize.shared_objects import needs_of
from gridengine.threads import in_pieces

MOST_CALLS: Final = 1024
"""At most this many calls travel as one task."""


class FutureBatcher(Protocol):
    """The part of a batcher that its futures use."""

    dispatcher: Dispatcher
    lock: threading.RLock

    def prepare_callbacks(self) -> None:
        """Make the thread in which callbacks are called."""

    def call_back(self, act: Callable[[], object]) -> None:
        """Call a function in the thread of the callbacks."""

    def is_callback_thread(self) -> bool:
        """Return whether the caller runs in the thread of the callbacks."""

    def is_durable(self, future: CallFuture) -> bool:
        """Return whether the dispatcher's journal has a call, durably, or the call has ended."""

    def bind_reference(self, future: CallFuture, reference: Reference) -> bool:
        """Bind the result of a call to a reference; return False if the call has ended."""

    def when_done(self, future: CallFuture, act: Callable[[], object]) -> None:
        """Call a function once a call has ended; now if it has."""

    def pass_on(self, future: CallFuture, outcome: FutureOutcome | Phase) -> None:
        """Supply the calls that need the result of a call that has ended, unless the dispatcher did
        so itself.
        """

    def recall(self, future: CallFuture) -> None:
        """Take back a call that was handed over, if it has not begun."""

    def withdraw_waiting(self) -> None:
        """Withdraw all calls that were not handed over."""

    def note_cancelled(self) -> None:
        """Note, under the lock, that a waiting call was cancelled."""


class CallTemplate(TaskMaker, frozen=True, eq=False, kw_only=True):
    """Makes tasks of single calls; those of one template may travel together."""

    batcher: FutureBatcher
    pace: Pace = field(default_factory=Pace)

    def snapshot(self, call: Any, needed: tuple[Reference, ...] = ()) -> Any:
        """Return a single call as it waits until it is handed over: itself if its arguments cannot
        change, else a `CallSnapshot`. `needed` are the references in its function.

        Raises:
            PicklingError: see `pickled`.
        """
        form = self.form
        if not needed and is_constant(call if form != FULL else (*call[0], *call[1].values())):
            return call
        taken = CallSnapshot(self.pickled([call]))
        taken.references = *self.introduce(taken.payload), *needed
        return taken

    def joined(self, calls: list[Any]) -> Payload:
        """Return the payload of single calls that `snapshot` has returned."""
        if len(calls) == 1:
            [call] = calls
            return call.payload if type(call) is CallSnapshot else [pickle.dumps(calls, 5)]
        needs = [needs_of(call.payload) for call in calls if type(call) is CallSnapshot]
        if not needs:  # they are constants
            return [pickle.dumps(calls, 5)]
        payload = self.pickled(calls)
        return with_needs(payload, *needs) if any(needs) else payload


class CallFuture(Future[Any], ResultHolder):
    """A call's future. It keeps all promises of `concurrent.futures.Future`.

    `call` is the call's argument or arguments until it has ended; after a cancellation because of
    another call, it is the path that the cancellation took. `place` says where the call was handed
    over: the task's number, times `MOST_CALLS`, plus the call's index in the task. `outcome` is a
    `Phase`, an `UndecodedResult`, a `Failed`, or the value. `waiters` is None as long as nobody
    waits.
    """

    __slots__ = ("call", "outcome", "place", "template", "waiters")

    def __init__(self, template: CallTemplate, call: Any, outcome: Any = WAITING) -> None:
        # The base class's `__init__` is not called: most of its time and memory goes into the
        # condition.
        self.template = template
        self.call = call
        self.place = 0
        self.outcome: Any = outcome
        self.waiters: Waiters | None = None

    # The attributes that the base class and the functions of its module read

    @property
    def _state(self) -> str:  # type: ignore[override]
        outcome = self.outcome
        return outcome._value_ if type(outcome) is Phase else FINISHED

    def _with_condition(self) -> Waiters:
        """Return the waiters, with a condition."""
        waiters = self.waiters
        if waiters is None or waiters.condition is None:
            # A future whose condition is held is settled in that thread.
            self.template.batcher.prepare_callbacks()
            with self.template.batcher.lock:
                waiters = self.waiters = self.waiters or Waiters()
                if waiters.condition is None:
                    waiters.registered = RegisteredWaiters(self.template.batcher.dispatcher)
                    waiters.condition = threading.Condition()
        return waiters

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        condition = self._with_condition().condition
        assert condition is not None
        return condition

    @property
    def _waiters(self) -> Any:  # type: ignore[override]
        return self._with_condition().registered

    @property
    def _done_callbacks(self) -> list[Callable[[Future[Any]], object]]:
        return self._with_condition().callbacks

    @property
    def _result(self) -> Any:  # type: ignore[override]
        outcome = self._decoded()
        return None if isinstance(outcome, Failed) else outcome

    @property
    def _exception(self) -> BaseException | None:  # type: ignore[override]
        outcome = self._decoded()
        return outcome.error if isinstance(outcome, Failed) else None

    def _decode(self, outcome: UndecodedResult) -> None:
        with outcome.lock:
            if self.outcome is outcome:
                self.outcome = outcome.take(self.place % MOST_CALLS, self.template.function.name)

    def _decoded(self) -> Any:
        outcome = self.outcome
        if type(outcome) is UndecodedResult:
            self._decode(outcome)
            outcome = self.outcome
        return None if type(outcome) is Phase else outcome

    # The interface for users

    def _repr_html_(self) -> str:
        outcome = self.outcome
        state = outcome._value_.lower() if type(outcome) is Phase else "done"
        if type(outcome) is not Phase and is_failure(outcome):
            state = "failed"
        call = call_words(self.template.function.name, UNNUMBERED, 0)
        error = outcome.error if type(outcome) is Failed else None
        return html_table(call, [("state", state), ("error", error and short_repr(error))])

    def cancel(self) -> bool:
        """Withdraw the call if it has not begun; return whether it is cancelled."""
        withdrawn = self.withdraw(WAITING)
        if self.outcome is RUNNING:  # another thread may have handed it over just now
            self.template.batcher.recall(self)
            withdrawn = self.withdraw(WAITING)
        if withdrawn and self.waiters is not None:
            self.call_back()
        return self.outcome is CANCELLED

    def withdraw(self, phase: Phase, path: Sequence[str] = ()) -> bool:
        """Cancel the call and wake its waiters, if the call is in this phase; return whether it
        was. With a path, a call that it needs was cancelled. The caller must call the callbacks.
        """
        with self.template.batcher.lock:
            if self.outcome is not phase:
                return False
            if self.waiters is None:
                self._note_cancelled(path)
                return True
        # The condition comes before the batcher's lock, as for the functions of
        # `concurrent.futures`, which hold it while they look at the future.
        with self._condition:
            with self.template.batcher.lock:
                if self.outcome is not phase:
                    return False
                self._note_cancelled(path)
                locks = self._with_condition().take_locks()
            for waiter in self._waiters:
                waiter.add_cancelled(self)
            self._condition.notify_all()
        self.template.batcher.pass_on(self, CANCELLED)
        release(locks)
        return True

    def _note_cancelled(self, path: Sequence[str]) -> None:
        self.outcome, self.call = CANCELLED, path
        self.template.batcher.note_cancelled()

    @property
    def acknowledged(self) -> bool:
        """Whether the call will be made even if this process and its dispatcher are killed and the
        dispatcher is restarted: a stand-alone dispatcher's journal has the call, durably, or the
        call has ended.
        """
        return self.done() or self.template.batcher.is_durable(self)

    def done(self) -> bool:
        """Return whether the call has ended or was cancelled."""
        return self.outcome is not WAITING and self.outcome is not RUNNING

    def running(self) -> bool:
        """Return whether the call has been handed over and has not ended."""
        return self.outcome is RUNNING

    def cancelled(self) -> bool:
        """Return whether the call was withdrawn before it began, or killed."""
        outcome = self.outcome
        if type(outcome) is UndecodedResult:
            event = outcome.event
            if event is not None:
                return isinstance(event.error, Cancelled)
            outcome = self._decoded()  # another future has unpickled the event
        if type(outcome) is Failed:  # a `Cancelled` that the call itself raised does not count
            raised = outcome.event is not None and outcome.event.raised
            return isinstance(outcome.error, Cancelled) and not raised
        return outcome is CANCELLED

    def result(self, timeout: float | None = None) -> Any:
        """Return the call's return value; wait for it up to `timeout` seconds.

        Raises:
            CancelledError: the call was withdrawn before it began, or a call that it needs was
                cancelled, which a note names.
            TimeoutError: the call has not ended in time.
            Exception: the call raised it; its `__cause__` is a `RemoteTraceback`.
            CallError, ClusterError: the reason why the call could not end.
        """
        outcome = self.outcome
        if type(outcome) is Phase:
            try:
                self._await(timeout)
            except BaseException as error:  # a Ctrl-C
                trim(error)
                raise
            outcome = self.outcome
        if type(outcome) is UndecodedResult:
            self._decode(outcome)
            outcome = self.outcome
        if type(outcome) is Failed:
            try:
                # Without the traceback of an earlier `result`.
                raise outcome.error.with_traceback(None)
            except BaseException as error:
                trim(error)
                raise
            finally:
                # Break a cycle: the traceback refers to these variables, and they to the exception.
                self = outcome = None  # type: ignore[assignment]
        return outcome

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception that `result` would raise for the call, or None; otherwise waits and
        raises like `result`.
        """
        if type(self.outcome) is Phase:
            try:
                self._await(timeout)
            except BaseException as error:  # a Ctrl-C
                trim(error)
                raise
        return self._exception

    def _await(self, timeout: float | None) -> None:
        """Wait for the end of the call, and for its result if that has stayed at a worker; raise an
        error if the time runs out or the call was cancelled.
        """
        deadline = None if timeout is None else monotonic() + timeout
        if not self.await_end(timeout):
            raise FutureTimeoutError
        if self.outcome is CANCELLED:
            raise cancelled_error(self.call, self.template.function.name)
        if deadline is not None:  # a result that stayed at its worker must be fetched in time
            here = threading.Event()
            if self._comes(here.set) and not in_pieces(here.wait, deadline - monotonic()):
                raise FutureTimeoutError

    def _comes(self, act: Callable[[], object]) -> bool:
        """If the result has stayed at its worker, have it fetched and `act` called once it is here.
        Return False if there is nothing to fetch.
        """
        outcome = self.outcome
        event = outcome.event if type(outcome) is UndecodedResult else None
        payload = None if event is None else event.payload
        return (
            type(payload) is PayloadAtWorker
            and payload.when_here is not None
            and payload.when_here(act)
        )

    def await_end(self, timeout: float | None) -> bool:
        """Wait for the end of the call; return whether it has ended within `timeout` seconds."""
        lock = threading.Lock()
        lock.acquire()
        if not self._release_at_end(lock):
            return True
        slot = self.template.batcher.dispatcher.call_slot
        try:
            if slot is None or (timeout is not None and timeout <= 0):
                return in_pieces(functools.partial(lock.acquire, True), timeout)
            with WithoutSlot(slot) as wait:
                wait.expired = not in_pieces(functools.partial(lock.acquire, True), timeout)
            return not wait.expired
        finally:
            self._forget_waiter(lock)

    def _release_at_end(self, waiter: Releasable) -> bool:
        """Have this released when the call ends; return False if the call has ended."""
        with self.template.batcher.lock:
            if self.outcome is not WAITING and self.outcome is not RUNNING:
                return False
            self.waiters = self.waiters or Waiters()
            self.waiters.locks.append(waiter)
            return True

    def _forget_waiter(self, waiter: Releasable) -> None:
        """Forget a lock that was not released."""
        waiters = self.waiters
        with self.template.batcher.lock:
            if waiters is not None and waiter in waiters.locks:
                waiters.locks.remove(waiter)

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait in a task of asyncio or trio for the value of `result`. If the task is cancelled
        meanwhile, the call is withdrawn if it has not begun, as by `asyncio.wrap_future`.
        """
        if not self.done():
            yield from self.ended().__await__()
        outcome = self.outcome
        if type(outcome) is UndecodedResult and outcome.is_at_worker:
            yield from self._here().__await__()
        if self.outcome is CANCELLED:
            from gridengine.client.loop_tasks import cancellation_type

            name = self.template.function.name
            raise cancelled_error(self.call, name, cancellation_type())
        return self.result()

    async def _here(self) -> None:
        """If the result has stayed at its worker, wait until it has been fetched."""
        from gridengine.client.loop_tasks import task_waiter

        waiter = task_waiter()
        if self._comes(waiter.release):
            await waiter.wait()

    async def ended(self) -> None:
        """Wait for the end of the call; a cancellation withdraws it, see `__await__`."""
        from gridengine.client.loop_tasks import task_waiter, task_without_slot

        waiter = task_waiter()
        if self._release_at_end(waiter):
            try:
                async with task_without_slot(self.template.batcher.dispatcher.call_slot):
                    await waiter.wait()
            except BaseException:
                self._forget_waiter(waiter)
                # In another thread, because it may have to wait.
                self.template.batcher.call_back(self.cancel)
                raise

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Call `fn(self)` when the call has ended or was cancelled; at once if it has."""
        self.template.batcher.prepare_callbacks()
        with self.template.batcher.lock:
            if not self.done():
                self.waiters = self.waiters or Waiters()
                self.waiters.callbacks.append(fn)
                return
        call_safely(fn, self)

    def _find_source(self) -> Found:
        return self, CallSource(self)

    # The end of the call

    def settle(self, outcome: FutureOutcome) -> None:
        """Set the outcome of a future that has a condition, and wake its waiters."""
        with self._condition:
            with self.template.batcher.lock:
                self.outcome, self.call = outcome, None
                locks = self._with_condition().take_locks()
            for waiter in self._waiters:
                (waiter.add_exception if outcome.failed else waiter.add_result)(self)
            self._condition.notify_all()
        self.template.batcher.pass_on(self, outcome)
        release(locks)

    def call_back(self, logged: type[BaseException] = Exception) -> None:
        """Call all callbacks, whatever one of them raises. Exceptions that are not `logged` are
        raised at the end.
        """
        waiters = self._with_condition()
        callbacks, waiters.callbacks = waiters.callbacks, []
        with contextlib.ExitStack() as stack:
            for callback in reversed(callbacks):
                stack.callback(call_safely, callback, self, logged)

    def set_running_or_notify_cancel(self) -> bool:
        """Refuse: only the workers set the outcome of a call.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("the outcome of a call is set by the workers")

    def set_result(self, result: Any) -> None:
        """Refuse, like `set_running_or_notify_cancel`.

        Raises:
            InvalidStateError: always.
        """
        raise InvalidStateError(f"the outcome of a call is set by the workers: {self!r}")

    def set_exception(self, exception: BaseException | None) -> None:
        self.set_result(None)

    def __reduce__(self) -> Any:
        refusal = TypeError(
            "a future can be pickled only among a call's arguments; elsewhere use its result()"
        )
        vars(refusal)["refused"] = self  # the error names the future, not a part of it
        raise refusal


class CallSource:
    """The future of a call of ours."""

    def __init__(self, future: CallFuture) -> None:
        self._future = future

    def bind_reference(self, reference: Reference, dispatcher: Dispatcher) -> bool:
        """Tell the dispatcher which call it is, if the dispatcher runs it."""
        batcher = self._future.template.batcher
        return batcher.dispatcher is dispatcher and batcher.bind_reference(self._future, reference)

    def when_done(self, act: Callable[[], object]) -> None:
        """Call the function in a thread of the batcher's, or here if the call has ended."""
        self._future.template.batcher.when_done(self._future, act)

    def data(self) -> ResultData:
        """Return the call's outcome, still pickled if it can be forwarded without re-pickling."""
        future = self._future
        outcome, name = future.outcome, future.template.function.name
        if outcome is CANCELLED:
            return ResultData(cancelled=True, path=path_from(future.call or (), name))
        event = outcome.event if type(outcome) in (UndecodedResult, Failed) else None
        data = None if event is None else unread(event, future.place % MOST_CALLS, name)
        if data is None:
            error = future.exception()
            data = pickled(future.outcome, error, name)
        return data


def call_safely(
    callback: Callable[[Future[Any]], object],
    future: CallFuture,
    logged: type[BaseException] = Exception,
) -> None:
    """Call a callback as the standard library does: its exceptions are logged."""
    try:
        callback(future)
    except logged:
        LOGGER.exception("exception calling callback for %r", future)
