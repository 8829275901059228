"""Set the outcomes of futures, wake their waiters, and supply the calls that need their results.
Count the calls of an executor for its progress display.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Sequence

from gridengine.calls.interface import Dispatcher
from gridengine.client.batch import Batch
from gridengine.client.dependencies import CallSource, supply
from gridengine.client.future import (
    RUNNING,
    CallFuture,
    Done,
    FutureBatcher,
    FutureOutcome,
    Phase,
    UndecodedResult,
    Waiters,
    is_failure,
    release,
)
from gridengine.schedulers.base import Scheduler
from gridengine.serialize.references import Reference


class Tally:
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
        if begins and not self.watched:  # a display clears `watched` before its last look
            self._wake()

    def end(self, count: int, *, failed: bool) -> None:
        """Count calls that have ended."""
        self.done += count
        self.failed += count * failed

    def withdraw(self, count: int) -> None:
        """Count calls that will not be made."""
        self.total -= count


class Settlement(FutureBatcher):
    """The settlement of calls that were handed over to a dispatcher; see `Lifetime` for the
    rest.
    """

    def __init__(
        self, dispatcher: Dispatcher, scheduler: Scheduler, *, ours: bool, daemon: bool
    ) -> None:
        super().__init__(scheduler, ours=ours, daemon=daemon)
        self.dispatcher = dispatcher
        self.tally: Tally | None = None
        """Counts the calls, if a progress display wants to know."""

    @abstractmethod
    def _find(self, future: CallFuture) -> tuple[int, int, Batch | None]:
        """Return the task that a call was handed over in, the call's index there, and the batch,
        which is None if all its calls have ended.
        """

    @abstractmethod
    def _progress(self, calls: int, load: int, futures: int = 0) -> None:
        """Note that `calls` calls of this load have ended, and that `futures` futures have
        outcomes.
        """

    # ---------------------------------------------------------------- outcomes, in the I/O thread

    def _cancel(self, futures: Sequence[CallFuture], load: int, path: Sequence[str]) -> None:
        """Cancel calls that were handed over, each of this load, and have not begun."""
        with self.lock:
            self._open += 1  # keeps the callback thread alive until the callbacks are passed to it
        for future in futures:
            self._unless_held(future, functools.partial(self._withdraw, future, path))
        self._progress(len(futures), load, 1)

    def _settle(self, futures: Sequence[CallFuture], outcome: FutureOutcome, load: int) -> None:
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
        # `_find` takes the lock of handing over, which comes before this one. So the future is
        # asked again.
        task, index, _ = self._find(future)
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
