"""The clock of every loop that waits: of a dispatcher, a worker and a client.

Every lease, beat, silence, grace time and poll interval of such a loop is a difference of two times
of its clock. A loop takes the clock as an argument, so that a test can pass a clock that stands
still until the test advances it (`tests/support/manual_clock.py`). A lease of a minute then takes
milliseconds, and no slow machine makes it run out early.

A loop still waits in `poll` for the real seconds that are left until its next deadline. With a
clock that stands still, the loop wakes up at that time, finds nothing due, and waits again.

Rejected: a `poll` of the clock's own, as trio's clock has. It would cost a Python call for each
wait. Instead, a clock wakes the loops that wait when its time jumps. Also rejected: patching `time`
in tests, which reaches no loop in another thread.

Runners are other processes and note times by the machine's clock; `Clock.at` converts such a time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Final, Protocol


class Clock(Protocol):
    """A monotonic time in seconds, from an arbitrary zero, and a way to be woken when the time
    jumps.
    """

    def monotonic(self) -> float:
        """Return the time, which never goes back. May be called from any thread."""

    def at(self, machine_seconds: float) -> float:
        """Convert a `time.monotonic` value that another process noted into this clock's time."""

    def waking(self, wake: Callable[[], object]) -> contextlib.AbstractContextManager[object]:
        """Return a context manager in which `wake` is called whenever the time jumps. The thread
        whose loop `wake` wakes must enter it.
        """


class SystemClock:
    """The machine's clock (`time.monotonic`), which never jumps."""

    monotonic = staticmethod(time.monotonic)  # the builtin itself: no Python frame for each call
    at = staticmethod(float)

    def waking(self, wake: Callable[[], object]) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()


SYSTEM_CLOCK: Final = SystemClock()
