"""The words of memory that an agent and one of its runners share: where the runner is, and what the
agent wants of it.

Each word has one writer. Who writes one word and then reads another sees either what the other side
wrote before, or is seen by it: no lock is needed.
"""

from __future__ import annotations

import mmap

from gridengine.wire.messages import Assignment

RUN, INDEX, START, HOLD, CUT_RUN, CUT, BARRED_FROM, BARRED_TO, LATE, DATA, BACKGROUND = range(11)
"""The words, by who writes them.

The runner: `RUN` and `INDEX`, the run and the call in progress (run 0: none); `START`, when that
call began (nanoseconds of the monotonic clock; 0: no call with a time limit is in progress);
`DATA`, the bytes of data that the process had when it was new; `BACKGROUND`, whether calls have
left threads running.

The agent: `HOLD`, how many `Cancel` messages the runner is to read before it goes on; of the run
`CUT_RUN` the calls from `CUT` on, and the runs `BARRED_FROM` to `BARRED_TO`, are not to begin;
`LATE`, the `START` of the call that was found to be over its time limit.
"""
WORDS_SIZE = 11 * 8
MANY, STEP = 64, 16
"""In runs of more than `MANY` calls, quick ones, only every `STEP`th looks whether the rest was
recalled.
"""


def step_of(assignment: Assignment) -> int:
    """Return how many calls of a run are made between two looks whether the rest was recalled."""
    return (
        1 if assignment.stop - assignment.start <= MANY or assignment.timeout is not None else STEP
    )


def map_words(fd: int) -> memoryview:
    """Return the words in the shared memory of a descriptor, as unsigned 64-bit numbers."""
    return memoryview(mmap.mmap(fd, WORDS_SIZE)).cast("Q")
