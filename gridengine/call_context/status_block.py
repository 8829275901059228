"""The status block: words of memory that an agent and a runner share, with the runner's position
and the agent's wishes.

Each word has one writer. Each side writes its own word and then reads the other's. So at least one
side sees the other's write, and no lock is needed.
"""

from __future__ import annotations

import mmap
from typing import Any

RUN, INDEX, START, HOLD, CUT_RUN, CUT, BARRED_FROM, BARRED_TO, LATE, DATA, BACKGROUND = range(11)
CALL_STEP, LISTENS, STOP_BY, STOP_NOW, UNTIL = range(11, 16)
"""The words, by writer.

The runner writes:

- `RUN` and `INDEX`: the run and the call in progress (run 0: none).
- `UNTIL`: the calls before this one may begin without another look at `CUT`.
- `START`: when that call began, in nanoseconds of the monotonic clock (0: no call with a time limit
  is in progress).
- `DATA`: the bytes of data that the process had when it was new.
- `BACKGROUND`: whether calls have left threads, processes, semaphores or exit handlers, which take
  time to end.
- `CALL_STEP`: which of several calls that are made as one is in progress, from 1; 0 for none.
- `LISTENS`: the last run of which a call has asked whether it must stop.

The agent writes:

- `HOLD`: how many `Cancel` messages the runner must have read before it goes on.
- `CUT_RUN`, `CUT`: the calls of the run `CUT_RUN` from `CUT` on must not begin.
- `BARRED_FROM`, `BARRED_TO`: the runs in this range must not begin. Runs have increasing numbers in
  each runner, so one range suffices. It only grows while the runner has yet to reach a run in it,
  and is lifted when the runner has skipped all of them.
- `LATE`: the `START` of the call that was found to be over its time limit.
- `STOP_BY`: when the worker leaves, in nanoseconds of the monotonic clock; 0 when that is not
  known.
- `STOP_NOW`: whether calls are to save their state and stop, however much time is left.
"""
WORDS_SIZE = 16 * 8


def map_words(fd: int) -> memoryview:
    """Map the status block of a descriptor, as unsigned 64-bit words."""
    return memoryview(mmap.mmap(fd, WORDS_SIZE)).cast("Q")


def _word(place: int) -> Any:
    """Return a property that reads this word of a `RunnerStatus`."""
    return property(lambda status: status.words[place])


class RunnerStatus:
    """The agent's view of the status block."""

    def __init__(self, words: memoryview) -> None:
        self.words = words
        self.first_barred = self.last_barred = 0
        """The range of barred runs; 0 when no run is barred."""

    run: int = _word(RUN)
    index: int = _word(INDEX)
    step: int = _word(CALL_STEP)
    call_began: int = _word(START)
    fresh_data: int = _word(DATA)
    """0 until the runner says so."""
    background: int = _word(BACKGROUND)

    @property
    def listens(self) -> bool:
        """Whether the run in progress has asked whether it must stop."""
        return bool(self.words[RUN]) and self.words[LISTENS] == self.words[RUN]

    def leave_by(self, stop_by: int, *, now: bool) -> None:
        """Tell calls when the worker leaves, in nanoseconds of the monotonic clock (0: not known),
        and whether to stop now.
        """
        self.words[STOP_BY], self.words[STOP_NOW] = stop_by, now

    def hold(self) -> None:
        """Make the runner read a `Cancel` message before it begins another run, or another call
        with a time limit.
        """
        self.words[HOLD] += 1

    def mark_late(self, began: int) -> None:
        """Mark the call that began at this time as failed, even if it returns."""
        self.words[LATE] = began

    def cut(self, run: int, stop: int) -> int:
        """End the run in progress before this call, if the runner has not reached it. Works once
        for each run. Return the first of the calls that the runner is certain not to begin.
        """
        if self.words[CUT_RUN] != run:
            self.words[CUT], self.words[CUT_RUN] = stop, run
        return max(self.words[CUT], self.words[UNTIL])

    def bar(self, first: int, last: int, current: int) -> None:
        """Bar the runs from `first` to `last`, which is the runner's last one. Runs that were
        barred before and come after the current run stay barred.
        """
        if self.last_barred > current:
            first, last = min(first, self.first_barred), max(last, self.last_barred)
        self.first_barred, self.last_barred = first, last
        self.words[BARRED_FROM], self.words[BARRED_TO] = first, last

    def unbar(self) -> None:
        """Bar no run. Call this only when the runner has no barred run left."""
        self.first_barred = self.last_barred = 0
        self.words[BARRED_TO], self.words[BARRED_FROM] = 0, 0

    def is_barred(self, run: int) -> bool:
        """Return whether a run is barred."""
        return self.first_barred <= run <= self.last_barred
