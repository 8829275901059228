"""Group single calls into tasks, many quick ones in one and slow ones alone, and limit how many of
them are handed over.

A call that finds workers idle is handed over at once, by the thread that submits it. Other calls
wait here, where they can be withdrawn without asking anybody. They are handed over in batches as
earlier calls settle: about as many as the workers do in some tenths of a second, by the present
duration of each function's calls. Calls with a priority do not wait here, because the dispatcher
orders them. Calls that were handed over but have not begun are recalled when they are cancelled,
and when quick calls have become slow.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gridengine.calls.interface import Dispatcher
from gridengine.client.batch import CallWindow, TaskOfCalls
from gridengine.client.executor_lifetime import Settlement, ended_by_close
from gridengine.client.future import MOST_CALLS, CallFuture
from gridengine.client.future_outcomes import RUNNING, WAITING, Done, Failed, UndecodedResult
from gridengine.client.hand_in import HandedTasks
from gridengine.client.initializer import Initializer
from gridengine.errors import UNNUMBERED, Cancelled, call_words
from gridengine.requests import CallsFinished
from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.workerless import RemoteScheduler
from gridengine.serialize.argument_snapshot import CallSnapshot

if TYPE_CHECKING:
    from gridengine.client.named_run_calls import RunCalls

RECALL_SECONDS = 1.0
"""Slow calls are recalled at most this often."""
MOST_BYTES = 64 * 1024
"""A batch is closed when its arguments have this many bytes."""


ENDLESS = 1 << 32
"""More slots than calls can be nested."""


class Batcher(Settlement, HandedTasks[TaskOfCalls]):
    """Takes calls from any thread, hands them over to a dispatcher, and gives futures their
    outcomes.

    Args:
        scheduler: kept alive until this was closed and all its calls have ended.
        ours: whether the scheduler is closed then.
        initializer: runs first in each process; once it has failed, no more calls are taken.
        most: how many calls are handed over at a time; None lets the window decide by their
            duration.
        daemon: whether the interpreter's exit ends the calls instead of waiting for them.
        detach: whether the calls go on when the call that submits them has ended; for nested calls.
        named_run: records the outcomes of the calls; closed with the executor.
    """

    _run: RunCalls | None = None

    def __init__(
        self,
        dispatcher: Dispatcher,
        scheduler: Scheduler,
        *,
        ours: bool,
        initializer: Initializer | None = None,
        most: int | None = None,
        daemon: bool = False,
        detach: bool = False,
        named_run: RunCalls | None = None,
    ) -> None:
        Settlement.__init__(self, dispatcher, scheduler, ours=ours, daemon=daemon)
        HandedTasks.__init__(self, dispatcher)
        self._initializer = initializer
        self._check_room = dispatcher.check_room
        self.submitter = dispatcher.new_id()
        """The submitter's number, which all calls share: by it they take turns with others."""
        self._waiting: deque[CallFuture] = deque()
        self._prioritised: deque[CallFuture] = deque()
        self._sources: dict[HandedTasks[Any], CallFuture] = {}
        """The maps and graphs that have not ended, each with its future."""
        self._unwanted: set[CallFuture] = set()
        """Calls to cancel if they come back unbegun."""
        # An inline dispatcher runs calls as they are submitted, and a call that submits others
        # waits for them itself. Detached calls go at once, because after the end of their parent
        # nobody may be there to hand over more.
        self._at_once = dispatcher.at_once or detach
        self._window = CallWindow(ENDLESS) if self._at_once else CallWindow(dispatcher.slots, most)
        # Elsewhere no call may be handed over beyond the window.
        self._may_overtake = most is None and not self._at_once
        if detach:
            dispatcher.detach(self.submitter)
        self._recalled_at = 0.0
        self._cancels = self._killed = self._asked = False
        self._handing_over = threading.RLock()
        self._taken: tuple[list[CallFuture], int] = [], 0
        """The calls that are being handed over, and the load of each in the window."""
        if named_run is not None:
            self.record_in(named_run, named_run)
        if isinstance(scheduler, RemoteScheduler):
            scheduler.submitters.add(self)

    def add(self, future: CallFuture) -> None:
        """Take a call."""
        if self._check_room is not None:
            self._check_room(len(self._waiting) + 1)
        with self.lock:
            self.check()
            self._open += 1  # first: after the append, a Ctrl-C would leave the call uncounted
            if self.tally is not None:
                self.tally.add(1)
            overtakes = future.template.options.priority and self._may_overtake
            (self._prioritised if overtakes else self._waiting).append(future)
        waiting = len(self._waiting)
        if overtakes or (
            type(future.call) is CallSnapshot and future.call.references and not self._at_once
        ):
            # The call cannot begin yet, and others like it are likely to follow at once.
            if not self._asked:
                self._asked = True
                self._helper.do(self._hand_over_gathered)
            return
        # Other calls gather until there are many, or until the next earlier calls have ended.
        if (
            self._at_once
            or waiting >= MOST_CALLS
            or self._window.takes_at_once(future.template, waiting)
        ):
            self.hand_over()

    def begin(
        self, source: HandedTasks[Any], end: CallFuture, calls: int = 0, futures: int = 0
    ) -> None:
        """Begin a map or graph: its calls are waited for, cancelled and killed with the others.

        end: a future to be settled once all calls have ended.
        calls: how many calls it has that are not counted by `count`.
        futures: how many of these have a future of their own, which `settle` or `cancel` settles.
        """
        with self.lock:
            self.check()
            self._sources[source] = end
            self._open += 1 + futures
        self.count(calls)

    def end(self, source: HandedTasks[Any]) -> None:
        """Note that all calls of a map or graph have ended. May be called again."""
        with self.lock:
            end = self._sources.pop(source, None)
        if end is not None:
            self.settle([end], Done())

    def count(self, calls: int) -> None:
        """Count calls of a map or graph for the progress display."""
        if self.tally is not None and calls:
            with self.lock:
                self.tally.add(calls)

    def count_ended(self, calls: int, *, failed: bool) -> None:
        """Count calls without futures that have ended."""
        if self.tally is not None:
            with self.lock:
                self.tally.end(calls, failed=failed)

    def _all_handed(self) -> list[tuple[int, int, int]]:
        """Return all tasks that were handed over and have not ended, with the ranges of calls."""
        with self.lock:
            sources = [self, *self._sources]
        return [task for source in sources for task in source.handed()]

    def cancel_waiting(self) -> None:
        """Take no more calls, and withdraw all calls that have not begun. Calls that a worker must
        give back first are withdrawn when they come back.
        """
        self.stop()
        with self._handing_over:
            with self.lock:
                self._cancels = True
            self.withdraw_waiting()
        self.dispatcher.recall(self._all_handed())

    def withdraw_waiting(self) -> None:
        with self._handing_over:
            with self.lock:
                waiting = [*self._prioritised, *self._waiting]
            for future in waiting:
                future.cancel()

    def recall(self, future: CallFuture) -> None:
        task, index = self._place_of(future)
        if not future.done():
            self._unwanted.add(future)
            self.dispatcher.recall([(task, index, index + 1)])
            self.dispatcher.catch_up()
            self._unwanted.discard(future)

    def _place_of(self, future: CallFuture) -> tuple[int, int]:
        with self._handing_over:  # the lock: another thread may be handing it over just now
            return divmod(future.place, MOST_CALLS)

    def is_durable(self, future: CallFuture) -> bool:
        if future.outcome is WAITING:
            return False
        task, _ = self._place_of(future)
        return future.done() or self.dispatcher.is_durable(task)

    def kill(self, future: CallFuture) -> bool:
        """End a call, whether it runs or waits; return whether it had not ended yet."""
        with self.lock:
            waits = future.outcome is WAITING
            if waits:
                future.outcome = RUNNING
        if waits:
            name = call_words(future.template.function.name, UNNUMBERED, 0)
            error = Cancelled(f"{name} was ended before it began")
            self.settle([future], Failed(error))
            return True
        task, index = self._place_of(future)
        if future.done():
            return False
        self.dispatcher.cancel((), signal.SIGKILL, [(task, index, index + 1)])
        return True

    def kill_all(self) -> None:
        """Take no more calls, and end all calls, running or not."""
        self.stop()
        with self._handing_over:
            with self.lock:
                self._killed = True
                waiting = [*self._prioritised, *self._waiting]
            for future in waiting:
                self.kill(future)
        self.dispatcher.cancel([task for task, _, _ in self._all_handed()], signal.SIGKILL)

    def _is_over(self) -> bool:
        # A Ctrl-C in `submit` may leave a call counted that is nowhere.
        return super()._is_over() or (
            self._killed and not any(one.handed() for one in (self, *self._sources))
        )

    def join(self, timeout: float | None = None) -> bool:
        ended = super().join(timeout)
        if ended and self._open:  # by `_killed`: the I/O thread may be at the last outcome
            self.dispatcher.catch_up()
        return ended

    # ---------------------------------------------------------------- handing over

    def hand_over(self) -> None:
        """Hand over waiting calls while the window has room. If another thread is handing over,
        return at once: that thread looks again before it leaves.
        """
        while self._prioritised or (self._waiting and self._window.load <= self._window.low):
            if not self._handing_over.acquire(blocking=False):
                return
            try:
                while (self._prioritised or self._waiting) and (batch := self._next_batch()):
                    self._send(batch)
            except BaseException as error:
                self._end_taken(error)
                raise
            finally:
                self._handing_over.release()

    def hand_over_all(self) -> None:
        """Hand over all waiting calls, whatever the window says."""
        with self._handing_over:
            try:
                while batch := self._next_batch(everything=True):
                    self._send(batch)
            except BaseException as error:
                self._end_taken(error)
                raise

    def _end_taken(self, error: BaseException) -> None:
        """End calls that were taken from the queue and have not reached the dispatcher: a Ctrl-C
        came in between, and is their outcome.
        """
        taken, load = self._taken
        self.settle(taken, Failed(error), load)

    def _hand_over_gathered(self) -> None:
        self._asked = False
        self.hand_over()

    def _next_batch(self, *, everything: bool = False) -> TaskOfCalls | None:
        """Take the calls of the next task from the front of the queue; None if none wait or the
        window is full, unless it takes `everything`.
        """
        window, overtakes = self._window, bool(self._prioritised)
        waiting = self._prioritised if overtakes else self._waiting
        with self.lock:
            while waiting and waiting[0].outcome is not WAITING:
                waiting.popleft()
            if not waiting:
                if not overtakes:
                    window.empty()
                return None
            template, call, load, room = waiting[0].template, waiting[0].call, 0, 1
            if type(call) is CallSnapshot and call.references:
                pass
            elif everything:
                room = MOST_CALLS
            elif overtakes:
                room = MOST_CALLS if window.travel_together(template) else 1
            else:
                load = window.load_of(template)
                room = window.room_for(template, load)
                if not room:
                    return None
            futures = self._take_waiting(waiting, min(room, MOST_CALLS))
            window.enter(len(futures), load)
            self._taken = futures, load
            if not (waiting or overtakes):
                window.empty()
        return TaskOfCalls(len(futures), len(futures), template, futures, load)

    def _take_waiting(self, waiting: deque[CallFuture], most: int) -> list[CallFuture]:
        """Take up to `most` calls like the first from the front of a queue, under the lock. A call
        that waits for the results of others comes alone.
        """
        taken: list[CallFuture] = []
        self._taken, size = (taken, 0), 0
        template = waiting[0].template
        while waiting and len(taken) < most and size < MOST_BYTES:
            future = waiting[0]
            if future.outcome is WAITING:
                if future.template is not template:
                    break
                if type(future.call) is CallSnapshot:
                    if taken and future.call.references:
                        break
                    size += future.call.size
                taken.append(future)
                future.outcome = RUNNING
            waiting.popleft()
        return taken

    def _send(self, batch: TaskOfCalls) -> None:
        """Submit a batch as one task. If that fails, the error is the outcome of its calls."""
        template, first, task = batch.template, batch.futures[0].call, None
        needs = not batch.load and type(first) is CallSnapshot
        calls: list[Any] = []
        bound: list[tuple[int, int]] = []
        try:
            for index, future in enumerate(batch.futures):
                calls.append(future.call)
                if future.waiters is not None and future.waiters.reference is not None:
                    bound.append((index, future.waiters.reference.number))
            task = template.task(
                template.joined(calls),
                batch.count,
                needed=first.references if needs else (),
                kept=tuple(bound),
            )
            # Before `submit`, because an outcome may arrive before it returns.
            for place, future in enumerate(batch.futures, task.id * MOST_CALLS):
                future.place = place
            self._handed[task.id] = batch
            if self._run is not None:
                self._run.expect_batch(task, batch.futures)
            self._submit(template.function, [task], self)
            self._taken = [], 0
        except BaseException as error:
            why = ended_by_close(error, self.dispatcher)
            self.settle(batch.futures, Failed(why), batch.load)
            if task is not None:
                self._handed.pop(task.id, None)
            if not isinstance(error, Exception):
                if task is not None:  # Ctrl-C may come after `submit`
                    self.dispatcher.cancel([task.id], signal.SIGKILL)
                raise

    # ---------------------------------------------------------------- outcomes, in the I/O thread

    def note_raised(self, event: CallsFinished) -> None:
        """If a call raised the failure of the initializer, take no more calls."""
        raised = event.payload if event.raised else None
        if raised is not None and self._initializer is not None and self.broken is None:
            self.broken = self._initializer.failure_in(raised)

    def abandoned(self) -> None:
        """Withdraw the calls that wait here: the call that submits them has ended."""
        self.withdraw_waiting()

    def _take_outcome(self, batch: TaskOfCalls, event: CallsFinished) -> None:
        """Learn from the duration of calls, and settle their futures."""
        self.note_raised(event)
        futures = batch.futures[event.start : event.stop]
        if event.seconds is not None:
            batch.template.pace.measured(len(futures), event.seconds)
            self._recall_slow(batch)
        elif event.recalled:
            futures = self._given_back(futures, batch, event.path)
        if futures:
            self.settle(futures, UndecodedResult(event), batch.load)

    def _given_back(
        self, futures: Sequence[CallFuture], batch: TaskOfCalls, path: Sequence[str]
    ) -> Sequence[CallFuture]:
        """Let recalled calls wait again, or cancel those that are unwanted. With a path, a call
        that they need was cancelled. Return the calls that count as ended because all calls were
        killed.
        """
        with self.lock:  # else `cancel_waiting` and `kill_all` could miss calls that wait again
            if self._killed:
                return futures
            unwanted = set(futures) if self._cancels or path else self._unwanted
            running = [one for one in futures if one.outcome is RUNNING]
            cancelled = [one for one in running if one in unwanted]
            again = [one for one in running if one not in unwanted]
            overtakes = batch.template.options.priority and self._may_overtake
            queue = self._prioritised if overtakes else self._waiting
            for future in reversed(again):  # to the front, in their order
                future.outcome = WAITING
                queue.appendleft(future)
            self._window.leave(len(again), batch.load)
        self.cancel(cancelled, batch.load, path)
        return ()

    def _recall_slow(self, batch: TaskOfCalls) -> None:
        """Recall calls that were handed over as quick ones and have not begun, if calls like them
        turn out to be slow.
        """
        template, window = batch.template, self._window
        if not window.is_too_full(template, batch.load):
            return
        now = time.monotonic()
        if now - self._recalled_at >= RECALL_SECONDS:
            self._recalled_at = now
            self.dispatcher.recall(
                [
                    (task, 0, one.count)
                    for task, one in list(self._handed.items())
                    if one.load and one.template is template
                ]
            )

    def _progress(self, calls: int, load: int, futures: int = 0) -> None:
        with self.lock:
            self._window.leave(calls, load)
            if futures:
                self._note_ended(futures)
            more = self._prioritised or (self._waiting and self._window.load <= self._window.low)
        if more:
            self._helper.do(self.hand_over)

    def _finish(self, *, wait: bool) -> None:
        super()._finish(wait=wait)
        if self._finished and self.tally is not None:
            tally, self.tally = self.tally, None
            tally.finish()
        if self._run is not None and self._finished:
            self._run.close()
