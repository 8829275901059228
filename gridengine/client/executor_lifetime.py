"""The end of calls and of executors: set the outcomes of futures, wake their waiters, and supply
the calls that need their results; close an executor after its last call, or at the interpreter's
exit.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Self

from gridengine.calls.interface import Dispatcher, WithoutSlot
from gridengine.client.dependencies import supply
from gridengine.client.future import CallFuture, CallSource
from gridengine.client.future_outcomes import (
    RUNNING,
    Done,
    FutureOutcome,
    Phase,
    UndecodedResult,
    is_failure,
)
from gridengine.client.log_relay import drain_logs
from gridengine.client.waiters import Waiters, release
from gridengine.dispatcher.thread_queues import HelperThread
from gridengine.errors import Cancelled, ConfigurationError
from gridengine.schedulers.base import Scheduler
from gridengine.serialize.references import Reference
from gridengine.threads import wait_for

log = logging.getLogger("gridengine")


class Lifetime(ABC):
    """Counts the calls that have not ended, and closes once there are none.

    Args:
        scheduler: kept alive until this was closed and all its calls have ended.
        ours: whether the scheduler is closed then.
        daemon: whether the interpreter's exit ends the calls instead of waiting for them.
    """

    def __init__(self, scheduler: Scheduler, *, ours: bool, daemon: bool) -> None:
        # A Ctrl-C in a wait for `_all_ended` may free it once too often: a plain lock would then be
        # free while another thread has it.
        self.lock = threading.RLock()
        """Held for moments, to change futures and this object, and never during a wait."""
        self._scheduler: Scheduler | None = scheduler
        self._ours = ours
        self._daemon = daemon
        self._owner = os.getpid()
        self._closed = False
        self._open = 0
        """How many calls have not ended; a submission counts as one."""
        self._all_ended = threading.Condition(self.lock)
        self._awaited = False
        """Whether any thread has waited for `_all_ended`; otherwise the end of the last call
        notifies nobody.
        """
        self.broken: str | None = None
        """Why no more calls can be made; None while they can."""
        self._finishing = threading.Lock()
        self._finished = self._finish_at_end = False
        self._helper = HelperThread("gridengine-helper")
        self._callbacks: HelperThread | None = None
        atexit.register(self._at_exit)

    def check(self) -> None:
        """Check that calls may be submitted.

        Raises:
            BrokenProcessPool: the initializer has failed.
            RuntimeError: this was closed.
            ConfigurationError: this belongs to the process that this one was forked from.
        """
        if self.broken is not None:
            # Imported here, because it imports much.
            from concurrent.futures.process import BrokenProcessPool

            raise BrokenProcessPool(self.broken)
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if self._owner != os.getpid():
            raise ConfigurationError(
                "this executor belongs to the process that this one was forked from",
                hint="make one after the fork",
            )

    def _note_ended(self, number: int) -> None:
        """Note, under the lock, that `number` calls have ended."""
        self._open -= number
        if not self._open:
            if self._awaited:
                self._all_ended.notify_all()
            if self._finish_at_end:
                self._helper.do(lambda: self._finish(wait=False))

    @abstractmethod
    def kill_all(self) -> None:
        """Take no more calls, and end all calls."""

    def stop(self) -> None:
        """Take no more calls."""
        with self.lock:
            self._closed = True

    def close(self, *, wait: bool) -> None:
        """Take no more calls; when all calls have ended, close the scheduler if it is ours. The
        garbage collector may call this, in any thread and at any point.
        """
        self._closed = True
        if not wait:
            self._helper.do(self._finish_soon)
        elif self._owner == os.getpid():
            self.join()
            self._finish(wait=True)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all calls have ended; return whether they have within `timeout` seconds."""
        self._awaited = True
        return wait_for(self._all_ended, self._is_over, timeout)

    def _is_over(self) -> bool:
        """Return, under the lock, whether all calls have ended."""
        return not self._open

    def _finish_soon(self) -> None:
        """Have the helper thread finish once all calls have ended. The thread exists already: from
        Python 3.12 on none can be started while the interpreter ends.
        """
        with self.lock:
            self._finish_at_end = bool(self._open)
        if not self._finish_at_end:
            self._finish(wait=False)

    def _finish(self, *, wait: bool) -> None:
        """Close everything that belongs to this object, once. Without `wait`, return at once if
        another thread is closing it: the helper thread must not wait for a thread that may wait for
        it.
        """
        if not self._finishing.acquire(blocking=wait):
            return
        try:
            if self._finished:
                return
            with self.lock:
                self._finished = True
            atexit.unregister(self._at_exit)
            for helper in (self._helper, self._callbacks):
                if helper is not None:
                    helper.end(wait=wait)
            scheduler, self._scheduler = self._scheduler, None
            if self._ours and scheduler is not None:
                scheduler.close()
            if wait:
                drain_logs()
        finally:
            self._finishing.release()

    def _at_exit(self) -> None:
        """Wait for all calls, as the standard library does, unless an exception ends Python."""
        if self._owner != os.getpid() or (
            getattr(sys, "last_value", None) is not None and not hasattr(sys, "ps1")
        ):
            return
        if self._daemon:
            self.kill_all()
        with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl-C, while the first is logged
            try:
                self.close(wait=True)
            except KeyboardInterrupt:  # the scheduler's own exit handler ends the remaining calls
                log.warning("interrupted while waiting for calls; they are ended")

    # ---------------------------------------------------------------- callbacks
    # They are user code, which may take long. So they have a thread of their own.

    def prepare_callbacks(self) -> None:
        """Make the thread in which callbacks are called."""
        with self.lock:
            if self._callbacks is None:
                self._callbacks = HelperThread("gridengine-callbacks")

    def call_back(self, act: Callable[[], object]) -> None:
        """Call a function in the thread of the callbacks. Call it here if this is that thread, or
        if that thread has ended.
        """
        self.prepare_callbacks()
        assert self._callbacks is not None
        with self.lock:
            elsewhere = not self._finished and not self.is_callback_thread()
            if elsewhere:
                self._callbacks.do(act)
        if not elsewhere:
            act()

    def do_soon(self, act: Callable[[], object]) -> None:
        """Call a function in the helper thread, or here if that thread has ended."""
        with self.lock:
            elsewhere = not self._finished
            if elsewhere:
                self._helper.do(act)
        if not elsewhere:
            act()

    def is_callback_thread(self) -> bool:
        """Return whether the caller runs in the thread of the callbacks."""
        return self._callbacks is not None and self._callbacks.is_current()


class WithBlock(ABC):
    """An executor or actor, shut down at the end of its `with` or `async with` block."""

    _lifetime: Lifetime

    @abstractmethod
    def shutdown(self, wait: bool = True) -> None:
        """Take no more calls, and wait for those that were made."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object
    ) -> None:
        """Shut down, and wait for the calls; after a Ctrl-C, here too, end them instead."""
        if isinstance(error, KeyboardInterrupt):
            self._lifetime.kill_all()
        try:
            self.shutdown(wait=True)
        except KeyboardInterrupt:
            self._lifetime.kill_all()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object
    ) -> None:
        """Leave the block as `__exit__` does, in a task of asyncio or trio: other tasks run
        meanwhile. A task that is cancelled ends the calls, as a Ctrl-C does.
        """
        from gridengine.client.loop_tasks import in_thread, is_cancellation  # few need it

        if isinstance(error, KeyboardInterrupt) or is_cancellation(error):
            self._lifetime.kill_all()
        await in_thread(self.shutdown, self._lifetime.kill_all)


def ended_by_close(error: BaseException, dispatcher: Dispatcher) -> BaseException:
    """Return the error of calls that a dispatcher has refused. If it has been closed meanwhile,
    they are cancelled, as the calls that it had.
    """
    if isinstance(error, ConfigurationError) and dispatcher.closed:
        return Cancelled(error.message, hint=error.hint)
    return error


class CallTally:
    """Counts calls. Counting begins with the first open call, ends when no call is open, and then
    begins anew. All methods are called under the lock of the tally's batcher.

    Args:
        wake: called when there are open calls again.
        finish: called when there will be no more calls.
        restarts: whether the numbers begin at zero each time.
    """

    __slots__ = ("_restarts", "_wake", "done", "failed", "finish", "number", "total", "watched")

    def __init__(
        self, wake: Callable[[], object], finish: Callable[[], object], *, restarts: bool
    ) -> None:
        self._wake = wake
        self.finish = finish
        self._restarts = restarts
        self.total = self.done = self.failed = 0
        self.number = 0
        """How many times counting has begun."""
        self.watched = False
        """Whether the display is looking by itself, and need not be woken."""

    @property
    def is_open(self) -> bool:
        """Whether there are calls that have not ended."""
        return self.done < self.total

    def add(self, count: int) -> None:
        begins = self.done >= self.total
        if begins:
            self.number += 1
            if self._restarts:
                self.total = self.done = self.failed = 0
        self.total += count
        if begins and not self.watched:
            self._wake()

    def end(self, count: int, *, failed: bool) -> None:
        """Count calls that have ended."""
        self.done += count
        self.failed += count * failed

    def withdraw(self, count: int) -> None:
        """Count calls that will not be made."""
        self.total -= count


class Settlement(Lifetime):
    """The settlement of calls handed over to a dispatcher; see `Lifetime` for the rest."""

    def __init__(
        self, dispatcher: Dispatcher, scheduler: Scheduler, *, ours: bool, daemon: bool
    ) -> None:
        super().__init__(scheduler, ours=ours, daemon=daemon)
        self.dispatcher = dispatcher
        self.tally: CallTally | None = None
        """Counts the calls, if a progress display wants to know."""

    @abstractmethod
    def _place_of(self, future: CallFuture) -> tuple[int, int]:
        """Return the task that a call was handed over in, and the call's index there."""

    @abstractmethod
    def _progress(self, calls: int, load: int, futures: int = 0) -> None:
        """Note that `calls` calls have ended, each of this load, and that `futures` futures have
        outcomes.
        """

    def join(self, timeout: float | None = None) -> bool:
        with WithoutSlot(self.dispatcher.call_slot if self._open else None) as wait:
            wait.expired = not super().join(timeout)
        return not wait.expired

    def note_cancelled(self) -> None:
        if self.tally is not None:
            self.tally.withdraw(1)
        self._note_ended(1)

    # ---------------------------------------------------------------- outcomes, in the I/O thread

    def cancel(
        self, futures: Sequence[CallFuture], load: int = 0, path: Sequence[str] = ()
    ) -> None:
        """Cancel calls that were handed over, each of this load, and have not begun. With a path, a
        call that they need was cancelled.
        """
        with self.lock:
            self._open += 1  # keeps the callback thread alive until the callbacks are passed to it
        for future in futures:
            self._unless_held(future, functools.partial(self._withdraw, future, path))
        self._progress(len(futures), load, 1)

    def settle(self, futures: Sequence[CallFuture], outcome: FutureOutcome, load: int = 0) -> None:
        """Give an outcome to those futures that have none; each call has this load."""
        with_condition, called, awaited, locks, ended = [], [], [], [], 0
        with self.lock:
            for future in futures:
                if future.outcome is not RUNNING:
                    continue
                ended += 1
                waiters = future.waiters
                if waiters is not None:
                    if waiters.condition is not None:
                        # Settled below, without this lock: a condition must be taken before it.
                        with_condition.append(future)
                        continue
                    locks += waiters.take_locks()
                    if waiters.callbacks:
                        called.append(future)
                    if waiters.reference is not None or waiters.acts:
                        awaited.append(future)
                future.outcome = outcome
                future.call = None
            if self.tally is not None and type(outcome) is not Done:
                self.tally.end(ended, failed=is_failure(outcome))
        for future in awaited:
            self.pass_on(future, outcome)
        for future in called:
            self._call_back(future)
        self._progress(ended, load, ended - len(with_condition))
        for future in with_condition:
            self._unless_held(future, functools.partial(self._settle_and_notify, future, outcome))
        release(locks)  # last: the threads that wake compete for the interpreter's lock

    def _settle_and_notify(self, future: CallFuture, outcome: FutureOutcome) -> None:
        future.settle(outcome)
        self._call_back(future)
        with self.lock:
            self._note_ended(1)

    def _call_back(self, future: CallFuture) -> None:
        if future.waiters is not None and future.waiters.callbacks:
            assert self._callbacks is not None
            # The calls are still counted as open here, so the thread lives until it gets these
            # callbacks.
            self._callbacks.do(functools.partial(future.call_back, BaseException))

    # ---------------------------------------------------------------- results that others need

    def bind_reference(self, future: CallFuture, reference: Reference) -> bool:
        with self.lock:
            if future.outcome is not RUNNING:
                return _note_reference(future, reference)
        # `_place_of` takes the lock of handing over, which comes before this one. So the future is
        # asked again.
        task, index = self._place_of(future)
        with self.lock:
            bound, running = _note_reference(future, reference), future.running()
        if running:
            source = CallSource(future)
            act = functools.partial(supply, source, reference, self.dispatcher)
            wait = functools.partial(source.when_done, act)
            missing = functools.partial(self.do_soon, wait)
            self.dispatcher.want(task, index, reference.number, missing)
        return bound

    def when_done(self, future: CallFuture, act: Callable[[], object]) -> None:
        with self.lock:
            if not future.done():
                future.waiters = future.waiters or Waiters()
                future.waiters.acts.append(act)
                return
        act()

    def pass_on(self, future: CallFuture, outcome: FutureOutcome | Phase) -> None:
        waiters = future.waiters
        assert waiters is not None
        with self.lock:
            acts, waiters.acts = waiters.acts, []
        passed_on = type(outcome) is UndecodedResult and not outcome.recalled
        if waiters.reference is not None and not passed_on:
            source = CallSource(future)
            acts.append(functools.partial(supply, source, waiters.reference, self.dispatcher))
        for act in acts:
            self.do_soon(act)

    def _withdraw(self, future: CallFuture, path: Sequence[str]) -> None:
        if future.withdraw(RUNNING, path):
            self._call_back(future)

    def _unless_held(self, future: CallFuture, act: Callable[[], None]) -> None:
        """Call a function that changes a future: here, or in the callback thread if another thread
        holds the future's condition. A thread that was interrupted in `concurrent.futures.wait`
        holds it for ever, and other futures must not wait for it.
        """
        condition = None if future.waiters is None else future.waiters.condition
        if condition is None:
            act()
        elif condition.acquire(blocking=False):
            try:
                act()
            finally:
                condition.release()
        else:
            self.call_back(act)


def _note_reference(future: CallFuture, reference: Reference) -> bool:
    """Note, under the lock, that other calls need the result of a call; return False if the call
    has ended.
    """
    if future.done():
        return False
    future.waiters = future.waiters or Waiters()
    future.waiters.reference = reference
    return True
