"""A clock that stands still until the test advances it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

PATIENCE = 120


@dataclass
class Loop:
    """A loop that waits by the clock, and the last time that it has read."""

    wake: Callable[[], object]
    seen: float


class ManualClock:
    """Begins at the machine's own time, since runners note by that when a call has begun.

    `advance` returns once every loop that waits by this clock has read the new time. Two steps may
    reach a loop as one, three never do.
    """

    def __init__(self, now: float | None = None) -> None:
        self._now = time.monotonic() if now is None else now
        self._read = threading.Condition()
        self._loops: dict[int, Loop] = {}

    def monotonic(self) -> float:
        with self._read:
            loop = self._loops.get(threading.get_ident())
            if loop is not None and loop.seen != self._now:
                loop.seen = self._now
                self._read.notify_all()
            return self._now

    @contextlib.contextmanager
    def waking(self, wake: Callable[[], object]) -> Iterator[None]:
        thread = threading.get_ident()
        with self._read:
            self._loops[thread] = Loop(wake, self._now)
        try:
            yield
        finally:
            with self._read:
                del self._loops[thread]
                self._read.notify_all()

    def advance(self, seconds: float) -> None:
        """Let time pass at once."""
        here = threading.get_ident()
        with self._read:
            self._now += seconds
            for loop in self._loops.values():
                loop.wake()
            assert self._read.wait_for(
                lambda: all(
                    loop.seen == self._now or thread == here for thread, loop in self._loops.items()
                ),
                PATIENCE,
            ), "a loop does not wake up"

    def advance_until(self, condition: Callable[[], object], step: float) -> None:
        """Let time pass, by steps, until something holds. What is done elsewhere at a step has a
        moment to come about before the next.
        """
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, "it does not come about however much time passes"
            self.advance(step)
            time.sleep(0.005)
