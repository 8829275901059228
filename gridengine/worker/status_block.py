"""The words of memory that an agent and one of its runners share: where the runner is, and what the
agent wants of it.

Each word has one writer. Who writes one word and then reads another sees either what the other side
wrote before, or is seen by it: no lock is needed.
"""

from __future__ import annotations

import mmap

RUN, INDEX, START, HOLD, CUT_RUN, CUT, BARRED_FROM, BARRED_TO, LATE, DATA, BACKGROUND = range(11)
CALL_STEP = 11
"""The words, by who writes them.

The runner: `RUN` and `INDEX`, the run and the call in progress (run 0: none); `START`, when that
call began (nanoseconds of the monotonic clock; 0: no call with a time limit is in progress);
`DATA`, the bytes of data that the process had when it was new; `BACKGROUND`, whether calls have
left something for which it takes time to end; `CALL_STEP`, which of several calls that are made as
one is in progress, from 1; 0 when none is.

The agent: `HOLD`, how many `Cancel` messages the runner is to read before it goes on; of the run
`CUT_RUN` the calls from `CUT` on, and the runs `BARRED_FROM` to `BARRED_TO`, are not to begin;
`LATE`, the `START` of the call that was found to be over its time limit.
"""
WORDS_SIZE = 12 * 8


def map_words(fd: int) -> memoryview:
    """Return the words in the shared memory of a descriptor, as unsigned 64-bit numbers."""
    return memoryview(mmap.mmap(fd, WORDS_SIZE)).cast("Q")


class RunnerStatus:
    """The status block as the agent has it."""

    def __init__(self, words: memoryview) -> None:
        self.words = words
        self.first_barred = self.last_barred = 0
        """The runs that are barred; 0 when none is."""

    @property
    def run(self) -> int:
        """The run in progress; 0 is none."""
        return self.words[RUN]

    @property
    def index(self) -> int:
        """The call in progress."""
        return self.words[INDEX]

    @property
    def step(self) -> int:
        """Which of several calls that are made as one is in progress, from 1; 0 when none is."""
        return self.words[CALL_STEP]

    @property
    def call_began(self) -> int:
        """When the call in progress began, in nanoseconds of the monotonic clock; 0 when none with
        a time limit is in progress.
        """
        return self.words[START]

    @property
    def fresh_data(self) -> int:
        """The bytes of data that the process had when it was new; 0 while that is not known."""
        return self.words[DATA]

    @property
    def background(self) -> bool:
        """Whether calls have left what the process does, or waits for, before it ends: threads,
        processes, semaphores.
        """
        return bool(self.words[BACKGROUND])

    def hold(self) -> None:
        """Have the runner read a `Cancel` message before it begins another run, or another call
        with a time limit.
        """
        self.words[HOLD] += 1

    def mark_late(self, began: int) -> None:
        """Have the call that began then count as failed, even if it comes back."""
        self.words[LATE] = began

    def cut(self, run: int, stop: int) -> None:
        """Have a run end at this call, if it has got no further; for each run once."""
        if self.words[CUT_RUN] != run:
            self.words[CUT], self.words[CUT_RUN] = stop, run

    def bar(self, first: int, last: int, current: int) -> None:
        """Have the runner not begin the runs that it has from one to another, the last that it has,
        nor those barred before that come after the present one.
        """
        if self.last_barred > current:
            first, last = min(first, self.first_barred), max(last, self.last_barred)
        self.first_barred, self.last_barred = first, last
        self.words[BARRED_FROM], self.words[BARRED_TO] = first, last

    def unbar(self) -> None:
        """Bar no run. For when the runner has none of them any more."""
        self.first_barred = self.last_barred = 0
        self.words[BARRED_TO], self.words[BARRED_FROM] = 0, 0

    def is_barred(self, run: int) -> bool:
        """Return whether the runner is not to begin a run."""
        return self.first_barred <= run <= self.last_barred
