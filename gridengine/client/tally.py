"""How many calls of an executor there are, and how many have ended, for who shows its progress."""

from __future__ import annotations

from collections.abc import Callable


class Tally:
    """Counts calls from the first that is open to when none is, and then anew. Its methods are
    called under the lock of the batcher that it belongs to.

    Args:
        wake: called when there are open calls again.
        finish: called when there will be no more.
        restarts: whether it counts anew.
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
        """How many times it has begun to count."""
        self.watched = False
        """Whether who shows it looks, and need not be woken."""

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
        if begins and not self.watched:  # who stops to look says so before the last look
            self._wake()

    def end(self, count: int, *, failed: bool) -> None:
        """Count calls that have ended."""
        self.done += count
        self.failed += count * failed

    def withdraw(self, count: int) -> None:
        """Count calls that will not be made."""
        self.total -= count
