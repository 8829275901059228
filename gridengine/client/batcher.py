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
from collections.abc import Mapping, Sequence

from gridengine.calls.interface import Dispatcher, without_slot
from gridengine.client.batch import Batch, Window
from gridengine.client.future import (
    CANCELLED,
    MOST_CALLS,
    RUNNING,
    WAITING,
    CallFuture,
    Done,
    Failed,
    FutureOutcome,
    Phase,
    UndecodedResult,
)
from gridengine.client.initializer import Initializer
from gridengine.client.outcomes import OutcomeRecorder
from gridengine.client.settlement import Settlement, ended_by_close
from gridengine.client.submission import HandedTask
from gridengine.dispatcher.core.tasks import CallsFinished
from gridengine.errors import UNNUMBERED, Cancelled, call_words
from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.workerless import RemoteScheduler
from gridengine.serialize.argument_snapshot import CallSnapshot
from gridengine.serialize.payload import Payload
from gridengine.serialize.references import numbers

RECALL_SECONDS = 1.0
"""Slow calls are recalled at most this often."""
MOST_BYTES = 64 * 1024
"""A batch is closed when its arguments have this many bytes."""


ENDLESS = 1 << 32
"""More slots than calls can be nested."""


class Batcher(Settlement):
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
    """

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
    ) -> None:
        super().__init__(dispatcher, scheduler, ours=ours, daemon=daemon)
        self._initializer = initializer
        self._check_room = dispatcher.check_room
        self.submitter = dispatcher.new_id()
        """The submitter's number, which all calls share: by it they take turns with others."""
        self._waiting: deque[CallFuture] = deque()
        self._prioritised: deque[CallFuture] = deque()
        self._handed: dict[int, Batch | HandedTask] = {}
        """All tasks that were handed over and have not ended, by their numbers: those whose calls
        have futures as a batch.
        """
        # An inline dispatcher runs calls as they are submitted, and a call that submits others
        # waits for them itself. Detached calls go at once, because after the end of their parent
        # nobody may be there to hand over more.
        self._at_once = dispatcher.at_once or detach
        self._window = Window(ENDLESS) if self._at_once else Window(dispatcher.slots, most)
        # Elsewhere no call may be handed over beyond the window.
        self._may_overtake = most is None and not self._at_once
        if detach:
            dispatcher.detach(self.submitter)
        self._recalled_at = 0.0
        self._cancels = self._killed = self._asked = self._hands_over_all = False
        self._handing_over = threading.RLock()
        self.recorder: OutcomeRecorder | None = None
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

    def begin(self, batches: Mapping[int, Batch]) -> None:
        """Begin a submission: its calls are waited for, cancelled and killed with the others. Its
        calls with a future of their own are batches of one, by task.
        """
        with self.lock:
            self.check()
            self._handed.update(batches)
            self._open += 1 + len(batches)
            if self.tally is not None and batches:
                self.tally.add(len(batches))

    def note_handed(self, tasks: Mapping[int, HandedTask]) -> None:
        """Note, before a submission hands them over, tasks whose calls have no futures.

        Raises:
            RuntimeError: the batcher is closed.
        """
        self.check()
        self._handed.update(tasks)
        if self.tally is not None:
            with self.lock:
                self.tally.add(sum(task.count for task in tasks.values()))

    def note_ended(self, task: int | None, calls: int, *, failed: bool) -> None:
        """Note that calls without futures have ended and, if it is given, their task."""
        if task is not None:
            self._handed.pop(task, None)
        if self.tally is not None:
            with self.lock:
                self.tally.end(calls, failed=failed)

    def settle(
        self, task: int, batch: Batch, outcome: FutureOutcome | Phase, path: Sequence[str] = ()
    ) -> None:
        """Give the call of a batch of one its outcome. With a path, the call was cancelled because
        a call that it needs was cancelled.
        """
        [future] = batch.futures
        self._handed.pop(task, None)
        if outcome is CANCELLED:
            self._cancel([future], 0, path)
        elif not isinstance(outcome, Phase):
            self._settle([future], outcome, 0)

    def end(self, future: CallFuture) -> None:
        """Note that all calls of a submission have ended, and settle its future."""
        self._settle([future], Done(), 0)

    def cancel_waiting(self) -> None:
        """Take no more calls, and withdraw all calls that have not begun. Calls that a worker must
        give back first are withdrawn when they come back.
        """
        self.stop()
        with self._handing_over:
            with self.lock:
                self._cancels = True
                handed = list(self._handed.items())
            self.withdraw_waiting()
        self.dispatcher.recall([(task, 0, one.count) for task, one in handed])

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all calls have ended; return whether they have within `timeout` seconds."""
        with without_slot(self.dispatcher.call_slot if self._open else None) as wait:
            wait.expired = not super().join(timeout)
        return not wait.expired

    def withdraw_waiting(self) -> None:
        with self._handing_over:
            with self.lock:
                waiting = [*self._prioritised, *self._waiting]
            for future in waiting:
                future.cancel()

    def recall(self, future: CallFuture) -> None:
        task, index, batch = self._find(future)
        if batch is not None:
            batch.unwanted.add(future)
            self.dispatcher.recall([(task, index, index + 1)])
            self.dispatcher.catch_up()
            batch.unwanted.discard(future)

    def _find(self, future: CallFuture) -> tuple[int, int, Batch | None]:
        with self._handing_over:  # the lock: another thread may be handing it over just now
            task, index = divmod(future.place, MOST_CALLS)
        batch = self._handed.get(task)
        return task, index, batch if type(batch) is Batch else None

    def note_cancelled(self) -> None:
        if self.tally is not None:
            self.tally.withdraw(1)
        self._note_ended(1)

    def is_durable(self, future: CallFuture) -> bool:
        if future.outcome is WAITING:
            return False
        task, _, batch = self._find(future)
        return future.done() or (batch is not None and self.dispatcher.is_durable(task))

    def kill(self, future: CallFuture) -> bool:
        """End a call, whether it runs or waits; return whether it had not ended yet."""
        with self.lock:
            waits = future.outcome is WAITING
            if waits:
                future.outcome = RUNNING
        if waits:
            name = call_words(future.template.function.name, UNNUMBERED, 0)
            error = Cancelled(f"{name} was ended before it began")
            self._settle([future], Failed(error), 0)
            return True
        task, index, batch = self._find(future)
        if batch is None or future.done():
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
                tasks = list(self._handed)
            for future in waiting:
                self.kill(future)
        self.dispatcher.cancel(tasks, signal.SIGKILL)

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
            finally:
                self._handing_over.release()

    def hand_over_all(self) -> None:
        """Hand over all waiting calls, whatever the window says."""
        with self._handing_over:
            self._hands_over_all = True
            try:
                while batch := self._next_batch():
                    self._send(batch)
            finally:
                self._hands_over_all = False

    def _hand_over_gathered(self) -> None:
        self._asked = False
        self.hand_over()

    def _next_batch(self) -> Batch | None:
        """Take the calls of the next task from the front of the queue; None if none wait or the
        window is full.
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
            elif self._hands_over_all or overtakes:
                room = MOST_CALLS
            else:
                load = window.load_of(template)
                room = window.room_for(template, load)
                if not room:
                    return None
            futures = self._take(waiting, min(room, MOST_CALLS))
            window.enter(len(futures), load)
            if not (waiting or overtakes):
                window.empty()
        return Batch(futures, load, self._on_event)

    def _take(self, waiting: deque[CallFuture], most: int) -> list[CallFuture]:
        """Take up to `most` calls like the first from the front of a queue, under the lock. A call
        that waits for the results of others comes alone.
        """
        taken: list[CallFuture] = []
        size = 0
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
                future.outcome = RUNNING
                taken.append(future)
            waiting.popleft()
        return taken

    def _send(self, batch: Batch) -> None:
        """Submit a batch as one task. If that fails, the error is the outcome of its calls."""
        template, id, first = batch.template, self.dispatcher.new_id(), batch.futures[0].call
        needs = not batch.load and type(first) is CallSnapshot
        bound: list[tuple[int, int]] = []
        try:
            payload = batch.payload()
            # Before `submit`, because an outcome may arrive before it returns.
            for place, future in enumerate(batch.futures, id * MOST_CALLS):
                future.place = place
                if future.waiters is not None and future.waiters.reference is not None:
                    bound.append((place % MOST_CALLS, future.waiters.reference.number))
            task = template.options.task(
                id,
                payload,
                len(batch.futures),
                template.form,
                first=UNNUMBERED,
                submitter=self.submitter,
                after=numbers(first.references) if needs else (),
                kept=tuple(bound),
            )
            self._handed[id] = batch
            if self.recorder is None:
                self.dispatcher.submit(template.function, [task], batch)
            else:
                self.recorder.submit(self.dispatcher, template.function, [task], batch)
        except BaseException as error:
            why = ended_by_close(error, self.dispatcher)
            for future in batch.running():
                self._settle([future], Failed(why), batch.load)
            self._handed.pop(id, None)
            if not isinstance(error, Exception):
                self.dispatcher.cancel([id], signal.SIGKILL)  # Ctrl-C may come after `submit`
                raise

    # ---------------------------------------------------------------- outcomes, in the I/O thread

    def note_raised(self, raised: Payload) -> None:
        """If a call raised the failure of the initializer, take no more calls."""
        if self._initializer is not None and self.broken is None:
            self.broken = self._initializer.failure_in(raised)

    def _on_event(self, batch: Batch, event: CallsFinished) -> None:
        """Handle the outcome of calls of a batch: learn from the duration, and settle the
        futures.
        """
        if event.raised and event.payload is not None:
            self.note_raised(event.payload)
        futures = batch.futures[event.start : event.stop]
        batch.unsettled -= len(futures)
        if not batch.unsettled:
            self._handed.pop(event.task, None)
        if event.seconds is not None:
            batch.template.pace.measured(len(futures), event.seconds)
            self._recall_slow(batch)
        elif event.recalled:
            futures = self._given_back(futures, batch, event.path)
        if futures:
            call = None if event.error is None else futures[0].call
            self._settle(futures, UndecodedResult(event, call), batch.load)

    def _given_back(
        self, futures: Sequence[CallFuture], batch: Batch, path: Sequence[str]
    ) -> Sequence[CallFuture]:
        """Let recalled calls wait again, or cancel those that are unwanted. With a path, a call
        that they need was cancelled. Return the calls that count as ended because all calls were
        killed.
        """
        with self.lock:  # else `cancel_waiting` and `kill_all` could miss calls that wait again
            if self._killed:
                return futures
            unwanted = set(futures if self._cancels or path else batch.unwanted)
            running = [one for one in futures if one.outcome is RUNNING]
            cancelled = [one for one in running if one in unwanted]
            again = [one for one in running if one not in unwanted]
            overtakes = batch.template.options.priority and self._may_overtake
            queue = self._prioritised if overtakes else self._waiting
            for future in reversed(again):  # to the front, in their order
                future.outcome = WAITING
                queue.appendleft(future)
            self._window.leave(len(again), batch.load)
        self._cancel(cancelled, batch.load, path)
        return ()

    def _recall_slow(self, batch: Batch) -> None:
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
                    if type(one) is Batch and one.template is template and one.load
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
        if self.recorder is not None and self._finished:
            self.recorder.close()
