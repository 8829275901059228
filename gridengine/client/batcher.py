"""Where calls gather on their way to a hub: quick ones travel many together, a slow one alone, and
only so far ahead of the work.

A call that finds workers idle is handed over at once, by the thread that submits it. The others
wait here, where they can be withdrawn without asking anybody, and are handed over in blocks as
earlier ones settle: about as many as the workers do in some tenths of a second, by what the calls
of each function take now. What was handed over and has not begun is taken back when it is
cancelled, or when calls that were quick have become slow.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
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
from typing import TYPE_CHECKING, cast

from gridengine.client.functions import CallTemplate
from gridengine.client.future import CallFuture, ChunkFuture, Done, Failed, UndecodedResult, wake
from gridengine.dispatcher.core.tasks import CallsFinished, TaskMessage, TaskStarted
from gridengine.errors import Cancelled, ConfigurationError
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload
from gridengine.serialize.shared_objects import all_needed, needs_of
from gridengine.serialize.snapshot import CallSnapshot

if TYPE_CHECKING:
    from gridengine.dispatcher.interface import Dispatcher

log = logging.getLogger("gridengine")

AHEAD_SECONDS = 0.2
"""How much is handed over: what all slots do in this time, but two calls for each slot at least."""
UNIT = 1 << 20
"""The load of a slot for that time. The load of a call is its part of it: half of it while nobody
knows what the call takes.
"""
LARGEST_WINDOW, LARGEST_SHARE = 65_536, 16
"""So many calls are handed over at most, or so many for each slot."""
GATHER_SECONDS, GATHER_RATE = 0.025, 2000
"""Calls that take less, or of which all slots do more in a second, travel together. Those that
travel alone can be ended alone.
"""
MOST_AT_ONCE = 8
"""While slots may be idle a quick call is handed over at once, but for each so many that are on
their way one has to wait for others.
"""
RECALL_SECONDS = 1.0
"""How often calls are taken back, at most, for having become slow."""
MOST_CALLS = 1024
MOST_BYTES = 64 * 1024


class BatchListener:
    """Calls that were handed over as one task; is told what becomes of them."""

    __slots__ = ("_batcher", "_left", "_promises", "_unwanted", "_victims", "load", "task", "work")

    daemon = True  # the intake itself sees to the interpreter's exit

    def __init__(
        self,
        batcher: Batcher,
        task: int,
        work: CallTemplate,
        promises: Sequence[CallFuture],
        load: int,
    ) -> None:
        self.task = task
        self.work = work
        self.load = load
        """That of each call."""
        self._left = len(promises)
        self._batcher = batcher
        self._promises = promises
        self._victims: set[CallFuture] = set()
        self._unwanted: set[CallFuture] = set()

    @property
    def calls(self) -> tuple[int, int, int]:
        """The task, and from where to where its calls are."""
        return self.task, 0, len(self._promises)

    def settled(self, event: CallsFinished) -> None:
        promises = self._promises[event.start : event.stop]
        self._left -= len(promises)
        if not self._left:
            self._batcher.forget(self.task)
        if event.seconds is not None:
            self.work.pace.measured(len(promises), event.seconds)
            self._batcher.lighten(self)
        elif event.recalled:
            promises = self._batcher.given_back(promises, self._unwanted, self)
        elif self._victims and isinstance(event.error, Cancelled):
            self._batcher.take_back([one for one in promises if one not in self._victims], self)
            promises = [one for one in promises if one in self._victims]
        if promises:
            self._batcher.settled(promises, UndecodedResult(event), len(promises), self.load)

    def spare_all_but(self, victim: CallFuture) -> None:
        """Have the other calls of the task run again when the task is ended for the sake of one."""
        self._victims.add(victim)

    def withdraw(self, promise: CallFuture, dispatcher: Dispatcher) -> None:
        """Have a call cancelled if it has not begun."""
        place = self._promises.index(promise)
        self._unwanted.add(promise)
        dispatcher.recall([(self.task, place, place + 1)])
        dispatcher.catch_up()
        self._unwanted.discard(promise)

    def began(self, event: TaskStarted) -> None:
        """Not asked for."""

    def noted(self, event: TaskMessage) -> None:
        """Not asked for."""


class Batcher:
    """Takes calls from any thread, hands them to a hub, and tells their promises what becomes of
    them.

    Args:
        close: is called once it was told to close and all its calls have ended.
        most: how many calls are handed over at a time; None is as the time they take suggests.
        daemon: the interpreter's exit ends its calls instead of waiting for them.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        close: Callable[[], None],
        *,
        most: int | None = None,
        daemon: bool = False,
    ) -> None:
        self.lock = threading.Lock()
        """Held for moments, to change the state of promises and of this, and never while anything
        is waited for.
        """
        self.slots = dispatcher.slots
        self._dispatcher = dispatcher
        self._close = close
        self._daemon = daemon
        self._owner = os.getpid()
        self._closed = False
        self._waiting: deque[CallFuture] = deque()
        self._open = 0
        self._in_flight = 0
        self._tasks: dict[int, BatchListener | ChunkFuture] = {}
        self._submitter = 0
        self._most = most
        self._smallest = 2 * dispatcher.slots if most is None else most
        self._capacity = UNIT * dispatcher.slots if most is None else most
        self._least_load = max(
            1, self._capacity // max(LARGEST_WINDOW, LARGEST_SHARE * dispatcher.slots)
        )
        self._load = 0
        self._low = self._capacity - 1
        """Below which load more is handed over."""
        self._gather_seconds = min(
            max(GATHER_SECONDS, dispatcher.slots / GATHER_RATE), AHEAD_SECONDS / 2
        )
        self._lightened_at = 0.0
        self._cancels = self._killed = False
        self._handing_over = threading.RLock()
        self._all_ended = threading.Condition(self.lock)
        self._finishing = threading.Lock()
        self._finished = self._finish_then = False
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
            raise ConfigurationError(
                "this executor belongs to the process that this one was forked from",
                hint="make one after the fork",
            )

    def add(self, promise: CallFuture) -> None:
        """Take a call."""
        work: CallTemplate = promise.work  # once it waits, another thread may hand it over
        with self.lock:
            self.check()
            self._waiting.append(promise)
            self._open += 1
        waiting, in_flight = len(self._waiting), self._in_flight
        at_once = in_flight < self._smallest and (
            MOST_AT_ONCE * waiting >= in_flight or not self._travel_together(work)
        )
        # The others gather until there are many, or until the next of those before them have ended.
        if at_once or waiting >= MOST_CALLS:
            self.hand_over()

    def cancel_waiting(self) -> None:
        """Take no more, and withdraw all that has not begun. What workers have to give back first
        is withdrawn when they do.
        """
        self.stop()
        with self._handing_over:
            with self.lock:
                self._cancels = True
                waiting, tasks = list(self._waiting), list(self._tasks.values())
            for promise in waiting:
                promise.cancel()
        self._dispatcher.recall([one.calls for one in tasks])

    def recall(self, promise: CallFuture) -> None:
        """Withdraw a call that was handed over, if it has not begun."""
        with self._handing_over:  # somebody may be at it just now
            errand = promise.work
        if isinstance(errand, BatchListener):
            errand.withdraw(promise, self._dispatcher)

    def withdrew(self) -> None:
        """Note, under the lock, that a call that waited was withdrawn."""
        self._note_ended(1)

    def kill(self, promise: CallFuture) -> bool:
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
            self.settled(
                [promise], Failed(Cancelled("the call was ended before it began")), promise.count, 0
            )
        elif isinstance(work, BatchListener):
            work.spare_all_but(promise)
            self._dispatcher.cancel([work.task], signal.SIGKILL)
        return waits or isinstance(work, BatchListener)

    def drop(self, stretch: ChunkFuture) -> None:
        """End the calls of a stretch that has been handed over, if they have not ended."""
        if not stretch.done():
            self._dispatcher.cancel([stretch.task])

    def kill_all(self) -> None:
        """Take no more, and end all calls."""
        self.stop()
        with self._handing_over:
            with self.lock:
                self._killed = True
                waiting, tasks = list(self._waiting), list(self._tasks)
            for promise in waiting:
                self.kill(promise)
        self._dispatcher.cancel(tasks, signal.SIGKILL)

    def stop(self) -> None:
        """Take no more."""
        with self.lock:
            self._closed = True

    def close(self, *, wait: bool) -> None:
        """Take no more; when all calls have ended, close what is ours. May be called by the
        collector, in any thread and at any point.
        """
        self._closed = True
        if not wait:
            self._courier.do(self._finish_soon)
        elif self._owner == os.getpid():
            self.join()
            self._finish(wait=True)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all calls have ended; return whether they have within `timeout` seconds."""
        with self._all_ended:
            return self._all_ended.wait_for(lambda: not self._open, timeout)

    def _finish_soon(self) -> None:
        """Have the courier finish once all calls have ended. From Python 3.12 on no thread could be
        started for it at the very end.
        """
        with self.lock:
            self._finish_then = bool(self._open)
        if not self._finish_then:
            self._finish(wait=False)

    def _finish(self, *, wait: bool) -> None:
        """Close what is ours, once. The courier does so without waiting for who is at it, and who
        may wait for the courier.
        """
        if not self._finishing.acquire(blocking=wait):
            return
        try:
            if self._finished:
                return
            with self.lock:
                self._finished = True
            atexit.unregister(self._at_exit)
            for helper in (self._courier, self._caller):
                if helper is not None:
                    helper.end(wait=wait)
            self._close()
        finally:
            self._finishing.release()

    def _at_exit(self) -> None:
        """Wait for all calls, as the standard library does, unless an exception ends the
        interpreter.
        """
        if self._owner != os.getpid() or (
            getattr(sys, "last_value", None) is not None and not hasattr(sys, "ps1")
        ):
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
        """Hand over what waits, if there is room in the window. Who is at it looks again before
        leaving, so that others need not wait.
        """
        while self._waiting and self._load <= self._low:
            if not self._handing_over.acquire(blocking=False):
                return
            try:
                while batch := self._next_batch():
                    self._send(*batch)
            finally:
                self._handing_over.release()

    def _load_of(self, work: CallTemplate) -> int:
        """Return the load of one call, by what calls like it take now."""
        seconds = work.pace.seconds
        if self._most is not None:
            return 1
        if seconds is None or seconds >= AHEAD_SECONDS / 2:
            return UNIT // 2
        return max(self._least_load, int(UNIT * seconds / AHEAD_SECONDS))

    def _travel_together(self, work: CallTemplate) -> bool:
        if self._most is not None:
            return self._most >= self.slots * AHEAD_SECONDS / GATHER_SECONDS
        return work.pace.seconds is not None and work.pace.seconds <= self._gather_seconds

    def _next_batch(self) -> tuple[list[CallFuture], int] | None:
        """Take from the front of the queue what is to travel as one task, and the load of each of
        its calls.
        """
        with self.lock:
            waiting = self._waiting
            while waiting and waiting[0]._state != PENDING:
                waiting.popleft()
            if not waiting:
                self._low = self._capacity - 1
                return None
            work = waiting[0].work
            load, room = self._load_of(work), self._capacity - self._load
            if room < load:
                # Slow calls are handed over one by one as others end, quick ones when half of what
                # was handed over has ended.
                self._low = (
                    self._capacity - load
                    if load >= UNIT // 2 or self._most is not None
                    else self._capacity // 2
                )
                return None
            batch = self._take(
                work, min(room // load, MOST_CALLS) if self._travel_together(work) else 1
            )
            calls = sum([promise.count for promise in batch])
            self._in_flight += calls
            self._load += calls * load
        return batch, load

    def _take(self, work: CallTemplate, most: int) -> list[CallFuture]:
        """Take from the front of the queue up to so many calls like the first; the lock is held."""
        batch: list[CallFuture] = []
        size, waiting = 0, self._waiting
        while waiting and len(batch) < most and size < MOST_BYTES:
            promise = waiting[0]
            if promise._state != PENDING:
                waiting.popleft()
                continue
            many = type(promise) is ChunkFuture
            if batch and (promise.work is not work or many):
                break
            promise._state = RUNNING
            batch.append(waiting.popleft())
            if many:
                break
            if type(promise.held) is CallSnapshot:
                size += promise.held.size
        return batch

    def _send(self, batch: list[CallFuture], load: int) -> None:
        first = batch[0]
        work: CallTemplate = first.work
        try:
            id = self._dispatcher.new_id()
            self._submitter = self._submitter or id
            count, offset = (
                (first.count, first.first) if isinstance(first, ChunkFuture) else (len(batch), 0)
            )
            task = work.limits.task(
                id, _payload(batch, work), count, work.form, first=offset, submitter=self._submitter
            )
            if isinstance(first, ChunkFuture):
                first.depart(id, load)
                listener: BatchListener | ChunkFuture = first
            else:
                listener = BatchListener(self, id, work, batch, load)
                for promise in batch:
                    promise.work = listener
            self._tasks[id] = listener
            self._dispatcher.submit(work.function, [task], listener)
        except BaseException as error:
            for promise in batch:
                if promise._state == RUNNING:
                    self.settled([promise], Failed(error), promise.count, load)
            if not isinstance(error, Exception):
                raise

    def take_back(self, promises: Sequence[CallFuture], errand: BatchListener) -> None:
        """Have calls that were handed over wait again, before all others."""
        with self.lock:
            for promise in reversed(promises):
                promise.work, promise._state = errand.work, PENDING
                self._waiting.appendleft(promise)
            self._in_flight -= len(promises)
            self._load -= len(promises) * errand.load
        self._courier.do(self.hand_over)

    def given_back(
        self, promises: Sequence[CallFuture], unwanted: set[CallFuture], errand: BatchListener
    ) -> Sequence[CallFuture]:
        """Cancel calls that came back before they began, or have them wait again; return those that
        have ended for having been killed.
        """
        if self._killed:
            return promises
        cancelled = [one for one in promises if self._cancels or one in unwanted]
        for promise in cancelled:
            if promise.withdraw(RUNNING) and promise.watch is not None and promise.watch.callbacks:
                self._call_back(promise)
        self.progressed(len(cancelled), errand.load)
        again = [one for one in promises if one not in unwanted] if not self._cancels else []
        if again:
            self.take_back(again, errand)
        return ()

    def lighten(self, errand: BatchListener) -> None:
        """When calls turn out to be slow that were taken for quick ones, take back what was handed
        over of them and has not begun.
        """
        slow = UNIT // 2
        if (
            errand.load >= slow // 4
            or self._most is not None
            or self._load_of(errand.work) < slow
            or self._in_flight <= self._smallest
        ):
            return
        now = time.monotonic()
        if now - self._lightened_at >= RECALL_SECONDS:
            self._lightened_at = now
            tasks = [
                one
                for one in list(self._tasks.values())
                if isinstance(one, BatchListener) and one.work is errand.work
            ]
            self._dispatcher.recall([one.calls for one in tasks])

    # ---------------------------------------------------------------- what becomes of calls, in the
    # I/O thread

    def settled(
        self,
        promises: Sequence[CallFuture],
        outcome: UndecodedResult | Failed | Done,
        calls: int,
        load: int,
    ) -> None:
        """Give the outcome to promises, the last `calls` calls of which, of this load each, have
        ended with it.
        """
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
        self.progressed(calls, load, len(promises))
        wake(sleepers)  # last: they want the interpreter's lock

    def forget(self, task: int) -> None:
        """Note that all calls of a task have ended."""
        self._tasks.pop(task, None)

    def progressed(self, calls: int, load: int, promises: int = 0) -> None:
        """Note that so many calls of this load have ended, and with them all those of so many
        promises.
        """
        with self.lock:
            self._in_flight -= calls
            self._load -= calls * load
            if promises:
                self._note_ended(promises)
            wake = self._waiting and self._load <= self._low
        if wake:
            self._courier.do(self.hand_over)

    def _note_ended(self, promises: int) -> None:
        self._open -= promises
        if not self._open:
            self._all_ended.notify_all()
            if self._finish_then:
                self._courier.do(lambda: self._finish(wait=False))

    def will_call_back(self) -> None:
        """Prepare for callbacks: user code, which may take its time, so that it has a thread of its
        own.
        """
        with self.lock:
            if self._caller is None:
                self._caller = Helper("gridengine-callbacks")

    def _call_back(self, promise: CallFuture) -> None:
        assert self._caller is not None
        self._caller.do(
            functools.partial(promise.call_back, BaseException)
        )  # the thread must live for the callbacks that follow

    def call_back(self, act: Callable[[], object]) -> None:
        """Have something done in the thread of the callbacks, at once if this is it; here once that
        has ended.
        """
        self.will_call_back()
        assert self._caller is not None
        with self.lock:
            elsewhere = not self._finished and not self.calls_back_here()
            if elsewhere:
                self._caller.do(act)
        if not elsewhere:
            act()

    def calls_back_here(self) -> bool:
        """Return whether this is the thread of the callbacks."""
        return self._caller is not None and self._caller.is_here()


def _payload(batch: list[CallFuture], work: CallTemplate) -> Payload:
    held = batch[0].held
    if type(batch[0]) is ChunkFuture:
        return cast("Payload", held)
    if len(batch) == 1 and type(held) is CallSnapshot:
        return held.payload
    calls = [promise.held for promise in batch]
    payloads = [call.payload for call in calls if type(call) is CallSnapshot]
    if payloads:
        payload = pickling.dump_calls(calls, form=work.form)
        needs = all_needed(*map(needs_of, payloads))
        return pickling.with_needs(payload, needs) if needs else payload
    return [
        pickle.dumps(calls, 5)
    ]  # constants are none of the things that need our own pickler, which takes its time to begin


class Helper:
    """A thread that does what it is asked to, in order."""

    def __init__(self, name: str) -> None:
        self._requests: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self.do = self._requests.put
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def end(self, *, wait: bool) -> None:
        """Do what was asked before, and end."""
        self._requests.put(None)
        if wait and not self.is_here():
            self._thread.join()

    def is_here(self) -> bool:
        """Return whether this is its thread."""
        return threading.current_thread() is self._thread

    def _serve(self) -> None:
        while (request := self._requests.get()) is not None:
            try:
                request()
            except BaseException:  # what ends a thread must not end the requests that follow
                log.exception("a request failed; this is a fault of gridengine")
            del request
