"""`Newest`: hands a thread the newest value, where values may come faster than it takes them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Newest(Generic[T]):
    """Holds the newest value. Its methods may be called from any thread.

    Args:
        merge: makes one value of an untaken value and a new one.
    """

    def __init__(self, merge: Callable[[T, T], T]) -> None:
        self._merge = merge
        self._changed = threading.Condition()
        self._held: T | None = None
        self._over = False

    def put(self, one: T | None) -> None:
        """Hold this value; None says that no more values come."""
        with self._changed:
            if one is None:
                self._over = True
            else:
                self._held = one if self._held is None else self._merge(self._held, one)
            self._changed.notify_all()

    def get(self) -> T | None:
        """Wait for a value and return it; None when no more values come."""
        with self._changed:
            self._changed.wait_for(lambda: self._held is not None or self._over)
            one, self._held = self._held, None
            return one
