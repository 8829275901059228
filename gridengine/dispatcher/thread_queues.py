"""Threads that wait for other threads: a queue of events that wakes its reader, and a thread that
runs functions one after the other.
"""

from __future__ import annotations

import logging
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from gridengine.system.polling import Wakeup

E = TypeVar("E")


class EventQueue(Generic[E]):
    """Events in the order in which they were posted. Wakes the thread that reads them if it sleeps.

    Posting takes no lock, so that the garbage collector may post at any point.
    """

    def __init__(self) -> None:
        self.events: deque[E] = deque()
        self.barriers: deque[Callable[[], object]] = deque()
        """Functions, each to be called once all events posted before it have been handled."""
        self.sleeping = False
        """Whether the I/O thread sleeps, or is about to, and has yet to be woken by a poster."""
        wakeup = Wakeup()
        self.fd = wakeup.fd
        """Polls as readable when the I/O thread must wake."""
        self.drain, self._set = wakeup.clear, wakeup.set
        """Makes the descriptor, which polls as readable, stop until `wake` is called again."""
        self._waking: deque[None] = deque()
        """An item for each thread that is writing to the descriptor."""
        self._closed = False
        self._closer = weakref.finalize(self, wakeup.close)
        self._closer.atexit = False

    def post(self, event: E) -> None:
        """Add an event."""
        self.events.append(event)
        if self.sleeping:
            # In this order: from here on other posters need not wake it too; it sets `sleeping`
            # itself when it sleeps again.
            self.sleeping = False
            try:
                self.wake()
            except BaseException:  # a Ctrl-C, perhaps before it did; no other poster would
                self.wake()
                raise

    def extend(self, events: Iterable[E]) -> None:
        """Add events; the I/O thread sees the first of them only after the last has been added."""
        self.events.extend(events)
        if self.sleeping:
            self.wake()

    def barrier(self) -> threading.Event:
        """Return an event that is set once everything this thread has posted has been handled."""
        done = threading.Event()
        self.ask(done.set)
        return done

    def ask(self, act: Callable[[], object]) -> None:
        """Have the I/O thread call a function once all that this thread has posted is handled."""
        self.barriers.append(act)
        if self.sleeping:
            self.wake()

    def wake(self) -> None:
        """Wake the I/O thread, from any thread. Once closed, this does nothing."""
        self._waking.append(None)
        try:
            if not self._closed:
                self._set()
        finally:
            self._waking.pop()

    def close(self) -> None:
        """Close the descriptor; its reader has ended.

        If a thread is writing to it at this moment, the garbage collector closes it with the queue:
        its number could otherwise become that of another file, into which the thread would write.
        """
        self._closed = True  # before the look: a thread that adds its item later reads this
        if not self._waking:
            self._closer()


log = logging.getLogger("gridengine")


class HelperThread:
    """A thread that calls functions in order; `do` adds one."""

    def __init__(self, name: str) -> None:
        self._requests: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self.do = self._requests.put
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def end(self, *, wait: bool, seconds: float | None = None) -> None:
        """Call the remaining functions, and end. With `wait`, return once the thread has ended, or
        after `seconds`.
        """
        self._requests.put(None)
        if wait and not self.is_current():
            self._thread.join(seconds)

    def is_current(self) -> bool:
        """Return whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def _serve(self) -> None:
        while (request := self._requests.get()) is not None:
            try:
                request()
            except BaseException:  # later requests must run even after a SystemExit
                log.exception("a request failed; this is a fault of gridengine")
            del request
