"""Strides of calls: how many calls a runner makes between two looks at the clock and at the calls
that the agent has taken back.

The two looks cost as much as ten calls that do nothing. So a stride begins with one call, and the
next one has twice as many as long as strides are quick.

A call may turn out to take long in the midst of a stride. The calls behind it must be taken back
while it is in progress. Hence the backstop thread ends the present stride every 10 ms (`look`). The
status block says where the present stride ends (`UNTIL`): the agent takes back what comes after.
"""

from __future__ import annotations

import threading

from gridengine.call_context.status_block import CUT, CUT_RUN, INDEX, RUN, UNTIL

_MOST_CALLS = 256
_QUICK_SECONDS = 0.0005
"""A quicker stride is followed by a larger one; one of twice that time, by a single call."""


class CallStrides:
    """Divides the calls of a run into strides. `words` is the status block."""

    def __init__(self, words: memoryview) -> None:
        self._words = words
        self._lock = threading.Lock()
        self.stop = 0
        """Where the present stride ends. The runner notes a call (`INDEX`), then looks here, then
        makes the call; the backstop thread writes here, then looks which call is noted. So at least
        one of the two sees the other.
        """
        self._most = self._size = 1
        self._began = 0.0

    def begin_run(self, now: float, *, one_by_one: bool) -> None:
        """Begin a run at this time (monotonic seconds). one_by_one: each call is a stride."""
        self._began = now
        self._most = 1 if one_by_one else _MOST_CALLS
        self._size = 1

    def begin(self, first: int, stop: int) -> bool:
        """Begin the stride that begins with call `first` of the run and ends before `stop`. Return
        False if the agent has taken back that call.
        """
        words, end = self._words, min(first + self._size, stop)
        with self._lock:
            # Write, then look: the agent cuts, then reads this word. So at least one of the two
            # sees the other.
            words[UNTIL] = end
            if words[CUT_RUN] == words[RUN]:
                end = min(end, words[CUT])
            self.stop = end
        return first < end

    def ended(self, now: float) -> None:
        """Note that the stride has ended at this time (monotonic seconds)."""
        seconds, self._began = now - self._began, now
        if seconds < _QUICK_SECONDS:
            self._size = min(2 * self._size, self._most)
        elif seconds > 2 * _QUICK_SECONDS:
            self._size = 1

    def look(self) -> None:
        """End the present stride after the call in progress. For the backstop thread."""
        words = self._words
        with self._lock:
            stop = words[INDEX] + 1
            if stop < self.stop:
                self.stop = stop
                if words[INDEX] < stop:
                    words[UNTIL] = stop
