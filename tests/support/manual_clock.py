"""A clock that stands still until a test advances it."""

from __future__ import annotations

import bisect
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

PATIENCE = 120
STEP = 0.25
"""So short that an agent does not take two steps at once for a time in which it was stopped."""


@dataclass
class Loop:
    """A loop that waits by the clock, and the last time that it has read."""

    wake: Callable[[], object]
    seen: float


class ManualClock:
    """Stands still until `advance`, which returns once every loop that waits by this clock has read
    the new time. Two steps may reach a loop as one, three never do.
    """

    def __init__(self, now: float = 1000.0) -> None:
        self._now = now
        self._read = threading.Condition()
        self._loops: dict[int, Loop] = {}
        self._advanced = [time.monotonic()]
        """When, by the machine's own clock, this was made to show each of the times below."""
        self._shown = [now]

    def monotonic(self) -> float:
        with self._read:
            loop = self._loops.get(threading.get_ident())
            if loop is not None and loop.seen != self._now:
                loop.seen = self._now
                self._read.notify_all()
            return self._now

    def at(self, machine_seconds: float) -> float:
        with self._read:
            return self._shown[max(0, bisect.bisect(self._advanced, machine_seconds) - 1)]

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
            self._advanced.append(time.monotonic())
            self._shown.append(self._now)
            for loop in self._loops.values():
                loop.wake()
            assert self._read.wait_for(
                lambda: all(
                    loop.seen == self._now or thread == here for thread, loop in self._loops.items()
                ),
                PATIENCE,
            ), "a loop does not wake up"

    def advance_until(self, condition: Callable[[], object], step: float = STEP) -> None:
        """Let time pass, in steps, until something holds."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, "it does not come about however much time passes"
            self.advance(step)
            time.sleep(0.002)  # what other processes do at that needs a moment
