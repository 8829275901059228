"""The clock of the loops that wait: of a dispatcher, a worker and a client.

Every lease, beat, silence, grace time and poll interval of such a loop is a difference of two times
of its clock. A loop takes the clock as an argument, so that a test can hand in one that stands
still until the test advances it (`tests/support/manual_clock.py`): a lease of a minute then takes
milliseconds, and no slow machine makes it run out early.

A loop still waits in `poll`, for as many real seconds as are left until its next deadline. With a
clock that stands still it wakes up then, finds nothing due, and waits again. So a clock needs no
`poll` of its own, which would cost a Python call for each wait: it wakes the loop when it jumps.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Final, Protocol


class Clock(Protocol):
    """The time, in seconds from a point that means nothing, and who is told when it jumps."""

    def monotonic(self) -> float:
        """Return the time, which never goes back. May be called from any thread."""

    def at(self, machine_seconds: float) -> float:
        """Return the time that this clock showed when `time.monotonic` showed that, by which
        another process has noted when something happened.
        """

    def waking(self, wake: Callable[[], object]) -> contextlib.AbstractContextManager[object]:
        """Have `wake` called whenever the time jumps, while the block runs. It is entered by the
        thread whose loop that wakes.
        """


class SystemClock:
    """The machine's own (`time.monotonic`), which never jumps."""

    monotonic = staticmethod(time.monotonic)  # the builtin itself: a call of it is no Python call
    at = staticmethod(float)

    def waking(self, wake: Callable[[], object]) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()


SYSTEM_CLOCK: Final = SystemClock()
