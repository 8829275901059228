"""Where calls gather on their way to a hub: quick ones travel many together, a slow one alone, and only so far ahead of the work.

A call that finds workers idle is handed over at once, by the thread that submits it. The others wait here, where they can be withdrawn,
and are handed over in blocks as earlier ones settle: about as many as the workers do in some tenths of a second.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import pickle
import queue
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures._base import FINISHED, PENDING, RUNNING
from typing import TYPE_CHECKING, Any, cast

from gridengine import pickling
from gridengine.errors import Cancelled, ConfigurationError
from gridengine.events import Began, Note, Settled, Task
from gridengine.frozen import Frozen, frozen
from gridengine.lent import all_needed, needs_of
from gridengine.promise import Done, Failed, Packed, Promise, Stretch, wake
from gridengine.protocol import Payload
from gridengine.wares import Work

if TYPE_CHECKING:
    from gridengine.dispatcher import Hub

log = logging.getLogger("gridengine")

QUICK_SECONDS, SLOW_SECONDS = 0.05, 0.2
"""When half the window is done in less than the one the window grows; when that takes more than the other it shrinks."""
GROWTH = 4
LARGEST_WINDOW = 65_536
GATHER_WINDOW = 8
"""From so many calls for each slot on calls are quick, and travel together. Those that travel alone can be ended alone."""
MOST_CALLS = 1024
MOST_BYTES = 64 * 1024


class Errand:
    """Calls that were handed over as one task; is told what becomes of them."""

    __slots__ = ("_again", "_intake", "_left", "_payload", "_promises", "task", "work")

    daemon = True  # the intake itself sees to the interpreter's exit

    def __init__(self, intake: Intake, task: Task, work: Work, promises: Sequence[Promise]) -> None:
        self.task = task.id
        self.work = work
        self._left = len(promises)
        self._intake = intake
        self._promises = promises
        self._payload = task.payload
        self._again: dict[Promise, Any] = {}

    def settled(self, event: Settled) -> None:
        promises = self._promises[event.start : event.stop]
        self._left -= len(promises)
        if not self._left:
            self._intake.forget(self.task)
        again = [one for one in promises if one in self._again] if isinstance(event.error, Cancelled) else []
        if again:
            self._intake.take_back({one: self._again[one] for one in again}, self.work)
            promises = [one for one in promises if one not in self._again]
        self._intake.settled(promises, Packed(event), len(promises))

    def spare_all_but(self, victim: Promise) -> None:
        """Have the other calls of the task run again when the task is ended for the sake of one."""
        if len(self._promises) > 1:
            calls = pickling.load_calls(self._payload)
            self._again.update(
                (one, frozen(call, self.work.form)) for one, call in zip(self._promises, calls, strict=True) if one is not victim
            )
        self._again.pop(victim, None)

    def began(self, event: Began) -> None:
        """Not asked for."""

    def noted(self, event: Note) -> None:
        """Not asked for."""


class Intake:
    """Takes calls from any thread, hands them to a hub, and tells their promises what becomes of them.

    Args:
        close: is called once it was told to close and all its calls have ended.
        most: how many calls are handed over at a time; None is as the time they take suggests.
        daemon: the interpreter's exit ends its calls instead of waiting for them.
    """

    def __init__(self, hub: Hub, close: Callable[[], None], *, most: int | None = None, daemon: bool = False) -> None:
        self.lock = threading.Lock()
        """Held for moments, to change the state of promises and of this, and never while anything is waited for."""
        self.slots = hub.slots
        self._hub = hub
        self._close = close
        self._daemon = daemon
        self._owner = os.getpid()
        self._closed = False
        self._waiting: deque[Promise] = deque()
        self._open = 0
        self._in_flight = 0
        self._tasks: set[int] = set()
        self._window = self._smallest = 2 * hub.slots if most is None else most
        self._low = self._window - 1
        self._largest = max(LARGEST_WINDOW, self._smallest) if most is None else most
        self._limited = False
        self._done = 0
        self._measured_at = 0.0
        self._handing_over = threading.RLock()
        self._all_ended = threading.Condition(self.lock)
        self._finishing = threading.Lock()
        self._finished = False
        self._courier = Helper("gridengine-courier")
        self._caller: Helper | None = None
        atexit.register(self._at_exit)

    # ---------------------------------------------------------------- for those who submit

    def check(self) -> None:
        """Check that calls may be submitted.

        Raises:
            RuntimeError: it was closed.
            ConfigurationError: it belongs to the process that this one was forked from.
        """
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if self._owner != os.getpid():
            raise ConfigurationError("this executor belongs to the process that this one was forked from", hint="make one after the fork")

    def add(self, promise: Promise) -> None:
        """Take a call."""
        with self.lock:
            self.check()
            self._waiting.append(promise)
            self._open += 1
        # Later ones gather until there are many, or until the next of those before them have ended.
        if self._in_flight < self._smallest or len(self._waiting) >= MOST_CALLS:
            self.hand_over()

    def cancel_waiting(self) -> None:
        """Withdraw all that has not been handed over."""
        with self.lock:
            waiting = list(self._waiting)
        for promise in waiting:
            promise.cancel()

    def withdrew(self) -> None:
        """Note, under the lock, that a call that waited was withdrawn."""
        self._note_ended(1)

    def kill(self, promise: Promise) -> bool:
        """End a call, whether it runs or waits; return whether it had not ended yet."""
        with self.lock:
            waits = promise._state == PENDING
            if waits:
                promise._state = RUNNING
                self._in_flight += promise.count
        if not waits:
            with self._handing_over:  # somebody may be at it just now
                work = promise.work
        if waits:
            self.settled([promise], Failed(Cancelled("the call was ended before it began")), promise.count)
        elif isinstance(work, Errand):
            work.spare_all_but(promise)
            self._hub.cancel([work.task], signal.SIGKILL)
        return waits or isinstance(work, Errand)

    def drop(self, stretch: Stretch) -> None:
        """End the calls of a stretch that has been handed over, if they have not ended."""
        if not stretch.done():
            self._hub.cancel([stretch.task])

    def kill_all(self) -> None:
        """Take no more, and end all calls."""
        self.stop()
        with self._handing_over:
            with self.lock:
                waiting, tasks = list(self._waiting), list(self._tasks)
            for promise in waiting:
                self.kill(promise)
        self._hub.cancel(tasks, signal.SIGKILL)

    def stop(self) -> None:
        """Take no more."""
        with self.lock:
            self._closed = True

    def close(self, *, wait: bool) -> None:
        """Take no more; when all calls have ended, close what is ours. May be called by the collector, in any thread and at any point."""
        self._closed = True
        if not wait:
            self._courier.do(self._finish_soon)
        elif self._owner == os.getpid():
            self.join()
            self._finish()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all calls have ended; return whether they have within `timeout` seconds."""
        with self._all_ended:
            return self._all_ended.wait_for(lambda: not self._open, timeout)

    def _finish_soon(self) -> None:
        """Wait for the end in a thread of its own: the courier may be needed for getting there."""
        threading.Thread(target=self.close, kwargs={"wait": True}, name="gridengine-closing", daemon=True).start()

    def _finish(self) -> None:
        with self._finishing:
            if self._finished:
                return
            self._finished = True
            atexit.unregister(self._at_exit)
            for helper in (self._courier, self._caller):
                if helper is not None:
                    helper.end()
            self._close()

    def _at_exit(self) -> None:
        """Wait for all calls, as the standard library does, unless an exception ends the interpreter."""
        if self._owner != os.getpid() or (getattr(sys, "last_value", None) is not None and not hasattr(sys, "ps1")):
            return
        if self._daemon:
            self.kill_all()
        with contextlib.suppress(KeyboardInterrupt):  # another, while the first is told
            try:
                self.close(wait=True)
            except KeyboardInterrupt:  # of what has not ended yet the scheduler is closed next
                log.warning("interrupted while waiting for calls; they are ended")

    # ---------------------------------------------------------------- handing over

    def hand_over(self) -> None:
        """Hand over what waits, if there is room in the window. Who is at it looks again before leaving, so that others need not wait."""
        while self._waiting and self._in_flight <= self._low:
            if not self._handing_over.acquire(blocking=False):
                return
            try:
                self._adapt(time.monotonic())
                while self._waiting and (batch := self._next_batch()):
                    self._send(batch)
                self._limited = bool(self._waiting)
            finally:
                self._handing_over.release()

    def _adapt(self, now: float) -> None:
        """Have the window grow or shrink by the time in which half of it was done.

        The smallest is for slow calls: it is filled up whenever one has ended, any other when half of it has.
        """
        if self._limited and 2 * self._done < self._window:
            return
        if self._limited:
            spent = now - self._measured_at
            if spent < QUICK_SECONDS:
                self._window = min(GROWTH * self._window, self._largest)
            elif spent > SLOW_SECONDS:
                self._window = max(self._window // 2, self._smallest)
            self._low = self._window - 1 if self._window == self._smallest else self._window // 2
        self._done = 0
        self._measured_at = now

    def _next_batch(self) -> list[Promise]:
        """Take from the front of the queue what is to travel as one task."""
        batch: list[Promise] = []
        size = 0
        with self.lock:
            waiting, room = self._waiting, self._window - self._in_flight
            most = min(room, MOST_CALLS) if self._window >= GATHER_WINDOW * self.slots else min(room, 1)
            while waiting and len(batch) < most and size < MOST_BYTES:
                promise = waiting[0]
                if promise._state != PENDING:
                    waiting.popleft()
                    continue
                many = type(promise) is Stretch
                if batch and (promise.work is not batch[0].work or many):
                    break
                promise._state = RUNNING
                batch.append(waiting.popleft())
                if many:
                    break
                if type(promise.held) is Frozen:
                    size += promise.held.size
            self._in_flight += sum([promise.count for promise in batch])
        return batch

    def _send(self, batch: list[Promise]) -> None:
        first = batch[0]
        work: Work = first.work
        try:
            count, offset = (first.count, first.first) if isinstance(first, Stretch) else (len(batch), 0)
            task = work.limits.task(self._hub.new_id(), _payload(batch, work), count, work.form, first=offset)
            listener = first if isinstance(first, Stretch) else Errand(self, task, work, batch)
            for promise in batch:
                promise.held, promise.work = None, listener
            if isinstance(first, Stretch):
                first.task = task.id
            self._tasks.add(task.id)
            self._hub.submit(work.function, [task], listener)
        except BaseException as error:
            for promise in batch:
                if promise._state == RUNNING:
                    self.settled([promise], Failed(error), promise.count)
            if not isinstance(error, Exception):
                raise

    def take_back(self, calls: dict[Promise, Any], work: Work) -> None:
        """Have calls that were handed over wait again."""
        with self.lock:
            for promise, call in reversed(calls.items()):
                promise.held, promise.work, promise._state = call, work, PENDING
                self._waiting.appendleft(promise)
            self._in_flight -= len(calls)
        self._courier.do(self.hand_over)

    # ---------------------------------------------------------------- what becomes of calls, in the I/O thread

    def settled(self, promises: Sequence[Promise], outcome: Packed | Failed | Done, calls: int) -> None:
        """Give the outcome to promises, the last `calls` calls of which have ended with it."""
        watched, sleepers = [], []
        with self.lock:
            for place, promise in enumerate(promises):
                watch = promise.watch
                if watch is not None:
                    if watch.condition is not None:
                        watched.append((promise, place))
                        continue
                    sleepers += watch.rouse()
                promise.held = outcome
                promise.work = place
                promise._state = FINISHED
        for promise, place in watched:
            if promise.settle(outcome, place):
                self._call_back(promise)
        self.progressed(calls, len(promises))
        wake(sleepers)  # last: they want the interpreter's lock

    def forget(self, task: int) -> None:
        """Note that all calls of a task have ended."""
        self._tasks.discard(task)

    def progressed(self, calls: int, promises: int = 0) -> None:
        """Note that so many calls have ended, and with them all those of so many promises."""
        with self.lock:
            self._in_flight -= calls
            self._done += calls
            if promises:
                self._note_ended(promises)
            wake = self._waiting and self._in_flight <= self._low
        if wake:
            self._courier.do(self.hand_over)

    def _note_ended(self, promises: int) -> None:
        self._open -= promises
        if not self._open:
            self._all_ended.notify_all()

    def will_call_back(self) -> None:
        """Prepare for callbacks: user code, which may take its time, so that it has a thread of its own."""
        with self.lock:
            if self._caller is None:
                self._caller = Helper("gridengine-callbacks")

    def _call_back(self, promise: Promise) -> None:
        assert self._caller is not None
        self._caller.do(promise.call_back)


def _payload(batch: list[Promise], work: Work) -> Payload:
    held = batch[0].held
    if type(batch[0]) is Stretch:
        return cast("Payload", held)
    if len(batch) == 1 and type(held) is Frozen:
        return held.payload
    calls = [promise.held for promise in batch]
    payloads = [call.payload for call in calls if type(call) is Frozen]
    if payloads:
        payload = pickling.dump_calls(calls, form=work.form)
        needs = all_needed(*map(needs_of, payloads))
        return pickling.with_needs(payload, needs) if needs else payload
    return [pickle.dumps(calls, 5)]  # constants are none of the things that need our own pickler, which takes its time to begin


class Helper:
    """A thread that does what it is asked to, in order."""

    def __init__(self, name: str) -> None:
        self._requests: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self.do = self._requests.put
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Do what was asked before, and end."""
        self._requests.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _serve(self) -> None:
        while (request := self._requests.get()) is not None:
            try:
                request()
            except Exception:
                log.exception("a request failed; this is a fault of gridengine")
            del request
