"""Calls functions for descriptors that are ready (epoll(7))."""

from __future__ import annotations

import select
from collections.abc import Callable


class Poller:
    """Calls a function for each descriptor that can be read or, on request, written."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[], None]] = {}

    def fileno(self) -> int:
        """Return a descriptor that is readable when `poll` has a function to call."""
        return self._epoll.fileno()

    def register(self, fd: int, callback: Callable[[], None]) -> None:
        """Call this function whenever the descriptor is readable."""
        self._epoll.register(fd, select.EPOLLIN)
        self._callbacks[fd] = callback

    def unregister(self, fd: int) -> None:
        """Undo `register`. May be called twice."""
        if self._callbacks.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def poll_writable(self, fd: int, wanted: bool) -> None:
        """Call the function also when the descriptor is writable, or no longer so."""
        self._epoll.modify(fd, select.EPOLLIN | (select.EPOLLOUT if wanted else 0))

    def poll(self, seconds: float = 0.0) -> None:
        """Call the functions that are due. Wait for the first one at most this many seconds."""
        for fd, _ in self._epoll.poll(seconds):
            if fd in self._callbacks:
                self._callbacks[fd]()

    def close(self) -> None:
        """Call no more functions. May be called twice."""
        self._epoll.close()
        self._callbacks.clear()
