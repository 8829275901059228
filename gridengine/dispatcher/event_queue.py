"""Events for the I/O thread, which any thread may post."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterable

from gridengine.dispatcher.core.events import Event


class EventQueue:
    """Events in the order in which they were posted; wakes the I/O thread when it sleeps.

    Posting takes no lock, so that the garbage collector may do it at any point.
    """

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self.barriers: deque[threading.Event] = deque()
        """Each is set once all events posted before it have been handled."""
        self.sleeping = False
        """Whether the I/O thread waits, or is about to: then it must be woken."""
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """Polls as readable when the I/O thread is to wake."""
        self.drain = functools.partial(os.eventfd_read, self.fd)
        """Has the descriptor, which polls as readable, do so only when `wake` is called again."""
        # Not when the I/O thread ends: another may be about to wake it, and the number would be
        # another file's.
        weakref.finalize(self, os.close, self.fd).atexit = False

    def post(self, event: Event) -> None:
        """Add an event."""
        self.events.append(event)
        if self.sleeping:
            os.eventfd_write(self.fd, 1)

    def extend(self, events: Iterable[Event]) -> None:
        """Add events; the I/O thread sees the first of them after the last has been added."""
        self.events.extend(events)
        if self.sleeping:
            self.wake()

    def barrier(self) -> threading.Event:
        """Return what is set once all that this thread has posted has been handled."""
        done = threading.Event()
        self.barriers.append(done)
        if self.sleeping:
            self.wake()
        return done

    def wake(self) -> None:
        """Wake the I/O thread, from any thread."""
        os.eventfd_write(self.fd, 1)
