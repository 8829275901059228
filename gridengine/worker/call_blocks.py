"""Blocks of calls: how many calls a runner makes between two looks at the clock and at the calls
that the agent has taken back.

The two looks cost as much as ten calls that do nothing. So a block begins with one call, and the
next one has twice as many as long as blocks are quick.

A call may turn out to take long in the midst of a block. The agent need not wait for its end: it
takes back what comes after the block at once, since the status block says where the block ends
(`UNTIL`). Within some 10 ms the backstop thread ends the block after that call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gridengine.worker.status_block import CUT, CUT_RUN, RUN, UNTIL

_MOST_CALLS = 256
_QUICK_SECONDS = 0.0005
"""A block that takes less is followed by a larger one, and one that takes twice as long by a single
call.
"""


class CallBlocks:
    """Divides the calls of a run into blocks. `words` is the status block."""

    def __init__(self, words: memoryview) -> None:
        self._words = words
        self._present: list[Any] = []
        self._most = self._size = 1
        self._began = 0.0

    def begin_run(self, now: float, *, one_by_one: bool) -> None:
        """Begin a run at this time (monotonic seconds). one_by_one: each call is a block."""
        self._began = now
        self._most = 1 if one_by_one else _MOST_CALLS
        self._size = 1

    def next(self, calls: Sequence[Any], first: int, stop: int) -> list[Any] | None:
        """Return the next of a run's calls, from `first` on and all before `stop`; None if the
        agent has taken back `first`. They may become fewer while they are made.
        """
        words, end = self._words, min(first + self._size, stop)
        # Write, then look: the agent cuts, then reads this word. So at least one of the two sees
        # the other.
        words[UNTIL] = end
        if words[CUT_RUN] == words[RUN]:
            end = min(end, words[CUT])
            if end <= first:
                return None
        self._present = block = list(calls[first:end])
        return block

    def ended(self, now: float) -> None:
        """Note that the block has ended at this time (monotonic seconds)."""
        self._present.clear()
        seconds, self._began = now - self._began, now
        if seconds < _QUICK_SECONDS:
            self._size = min(2 * self._size, self._most)
        elif seconds > 2 * _QUICK_SECONDS:
            self._size = 1

    def look(self) -> None:
        """End the present block after the call in progress, if the agent has taken back calls of
        its run. Any thread may call this.
        """
        if self._words[CUT_RUN] == self._words[RUN]:
            self._present.clear()
