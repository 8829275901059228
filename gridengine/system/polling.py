"""How a thread waits for descriptors, and how others wake it. See the room's own docstring."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeAlias

if sys.platform == "linux":
    from select import EPOLLIN, EPOLLOUT, epoll

    READABLE, WRITABLE = EPOLLIN, EPOLLOUT
    Polling: TypeAlias = epoll
    """Waits for several descriptors; registers them, and polls, as `select.epoll` does."""

    class Wakeup:
        """Wakes a thread that polls the descriptor `fd`.

        set: makes the descriptor readable, from any thread.
        clear: makes it unreadable. Raises `BlockingIOError` if it is not readable.
        """

        def __init__(self) -> None:
            self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self.set: Callable[[], object] = partial(os.eventfd_write, self.fd, 1)
            self.clear: Callable[[], object] = partial(os.eventfd_read, self.fd)
            self.close: Callable[[], object] = partial(os.close, self.fd)

else:
    from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector

    READABLE, WRITABLE = EVENT_READ, EVENT_WRITE

    class Wakeup:
        def __init__(self) -> None:
            self.fd, self._other = os.pipe()
            os.set_blocking(self.fd, False)
            os.set_blocking(self._other, False)
            self.clear: Callable[[], object] = partial(os.read, self.fd, 4096)
            self.close: Callable[[], object] = partial(_close_all, (self.fd, self._other))

        def set(self) -> None:
            with contextlib.suppress(BlockingIOError):  # it is full, thus readable
                os.write(self._other, b"\0")

    def _close_all(descriptors: Iterable[int]) -> None:
        for fd in descriptors:
            os.close(fd)

    class Polling(DefaultSelector):
        """Has the part of the interface of `select.epoll` that this package uses."""

        def poll(self, timeout: float = 0, maxevents: int = -1) -> list[tuple[int, int]]:
            ready = [(key.fd, events) for key, events in self.select(timeout)]
            return ready if maxevents < 0 else ready[:maxevents]


class Poller:
    """Calls a function for each descriptor that can be read or, on request, written."""

    def __init__(self) -> None:
        self._polling = Polling()
        self._callbacks: dict[int, Callable[[], None]] = {}

    def fileno(self) -> int:
        """Return a descriptor that is readable when `poll` has a function to call."""
        return self._polling.fileno()

    def register(self, fd: int, callback: Callable[[], None]) -> None:
        """Call this function whenever the descriptor is readable."""
        self._polling.register(fd, READABLE)
        self._callbacks[fd] = callback

    def unregister(self, fd: int) -> None:
        """Undo `register`. May be called twice."""
        if self._callbacks.pop(fd, None) is not None:
            self._polling.unregister(fd)

    def poll_writable(self, fd: int, wanted: bool) -> None:
        """Call the function also when the descriptor is writable, or no longer so."""
        self._polling.modify(fd, READABLE | (WRITABLE if wanted else 0))

    def poll(self, seconds: float = 0.0) -> None:
        """Call the functions that are due. Wait for the first one at most this many seconds."""
        for fd, _ in self._polling.poll(seconds):
            if fd in self._callbacks:
                self._callbacks[fd]()

    def close(self) -> None:
        """Call no more functions. May be called twice."""
        self._polling.close()
        self._callbacks.clear()
