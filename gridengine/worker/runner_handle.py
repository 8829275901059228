"""An agent's hold on one runner: its channel, its output, the words it shares, and the work it was
given.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import signal
from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from gridengine.serialize.payload import Payload
from gridengine.wire.channel import Channel
from gridengine.wire.messages import CANCELLED, TIMEOUT, Allocate, Assignment, Cancel, Shortened
from gridengine.wire.socket_pairs import socket_pair
from gridengine.worker.forkserver import Ends, ForkServer
from gridengine.worker.output import Kept, Outlets, Sink, Tap
from gridengine.worker.runner import (
    BACKGROUND,
    BARRED_FROM,
    BARRED_TO,
    CUT,
    CUT_RUN,
    DATA,
    HOLD,
    INDEX,
    LATE,
    RUN,
    START,
    WORDS_SIZE,
    map_words,
    step_of,
)

AssignedRun: TypeAlias = tuple[Assignment, Payload]
Allocation: TypeAlias = tuple[tuple[int, ...], tuple[int | str, ...]]
"""The machine's own numbers of processors and GPUs."""
NOWHERE: Allocation = ((), ())
"""What calls have that were given no certain ones."""
_LOOK_SECONDS = 0.05


class Ending(msgspec.Struct):
    """That a runner is being ended: why (as in `Crashed`), in which run and call, and when to stop
    asking (monotonic seconds).
    """

    reason: str
    run: int
    index: int
    kill_at: float


class RunnerAllocation:
    """What the calls of a lane are given, their batches that wait, and the runner that has one of
    them.
    """

    def __init__(self, lend: Allocate, payload: Payload) -> None:
        self.lend = lend
        self.payload = payload
        self.place: Allocation = tuple(lend.cores or ()), tuple(lend.gpus or ())
        self.queue: deque[deque[AssignedRun]] = deque()
        self.hand: RunnerHandle | None = None


class RunnerHandle:
    """One runner, as its agent has it.

    Args:
        id: the agent's own number for it.
        place: the processors and GPUs that it keeps to for all its life.
        nursery: forks it; the outcome is told by the nursery's events.
        outlets: where its standard output and error are passed on to.

    Raises:
        OSError: no descriptors, or no nursery, left.
    """

    def __init__(
        self, id: int, fork_server: ForkServer, outlets: Outlets, place: Allocation
    ) -> None:
        self.id = id
        self.place = place
        self.allocation: RunnerAllocation | None = None
        """The lane that it works for now."""
        self.lent = 0
        """The lane of which it was told."""
        self._fork_server = fork_server
        self.pid = 0
        self.backlog: deque[AssignedRun] = deque()
        """The rest of its batch, which it has not got yet."""
        self.given: dict[int, Assignment] = {}
        """The runs it was given and has not ended, in their order."""
        self.last_ended = 0
        """The run that it ended last; the words may still name it."""
        self.answered: dict[int, int] = {}
        """Of runs it has answered in part: the index of the first call not answered."""
        self.cancelled: dict[int, int] = {}
        """The runs it was given that are to be ended, and by which signal."""
        self.defined: set[bytes] = set()
        self.outdated = False
        """Whether it may have loaded modules that have changed since."""
        self.ending: Ending | None = None
        self.spoke = False
        self.dead = False
        self._shortened = 0
        self._excused: tuple[tuple[int, int], float] = (0, 0), 0.0
        """Which call is excused for how many seconds."""
        self.stalled = False
        """Whether its channel has more to send than it takes now."""
        mine: list[int] = []
        theirs: list[int] = []
        try:
            for _ in range(2):
                reading, writing = os.pipe()
                mine.append(reading)
                theirs.append(writing)
            ours, its = socket_pair()
            words = os.memfd_create("gridengine-runner")
            theirs += [its.detach(), words]
            os.ftruncate(words, WORDS_SIZE)
            self._words = map_words(words)
            fork_server.fork(
                id, Ends(stdout=theirs[0], stderr=theirs[1], channel=theirs[2], words=theirs[3])
            )
        except BaseException:
            for fd in mine:
                os.close(fd)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        self.channel = Channel(ours)
        self.taps = tuple(Tap(fd, outlet) for fd, outlet in zip(mine, outlets, strict=True))

    @property
    def run(self) -> int:
        """The run in progress; 0 is none."""
        return self._words[RUN]

    @property
    def index(self) -> int:
        """The call in progress."""
        return self._words[INDEX]

    @property
    def call_began(self) -> int:
        """When the call in progress began, in nanoseconds of the monotonic clock; 0 when none with
        a time limit is in progress.
        """
        return self._words[START]

    @property
    def fresh_data(self) -> int:
        """The bytes of data that its process had when it was new; 0 while it has not said."""
        return self._words[DATA]

    @property
    def background(self) -> bool:
        """Whether calls that it has made have left threads, or processes, running that it waits for
        before it ends.
        """
        return bool(self._words[BACKGROUND])

    def excuse(self, seconds: float) -> None:
        """Have so many seconds not count against the time limit of the call in progress: nobody
        could run or look meanwhile.
        """
        key = (self.run, self.call_began)
        before = self._excused[1] if self._excused[0] == key else 0.0
        self._excused = key, before + seconds

    def hold(self) -> None:
        """Have the runner hear a `Cancel` message before it begins another run, or another call
        with a time limit.
        """
        self._words[HOLD] += 1

    def time_limit(self) -> float:
        """Return the limit in seconds of the run in progress, or the least of those it has;
        infinite when there is none.
        """
        current = self.given.get(self.run)
        limits = [current] if current is not None else self.given.values()
        return min(
            (assignment.timeout for assignment in limits if assignment.timeout is not None),
            default=math.inf,
        )

    def take_back(self, runs: set[int]) -> tuple[list[int], Shortened | None]:
        """Take back of these runs what the runner has not begun: whole runs, and the rest of the
        one in progress.

        Where it may have begun meanwhile it says itself, later, what it did not do.
        """
        current, index = self.run, self.index
        if current not in self.given or self.ending is not None or self.cancelled:
            return [], None
        later = [run for run in self.given if run > current]
        if later and runs.issuperset(later):
            self._words[BARRED_FROM], self._words[BARRED_TO] = later[0], later[-1]
        shortened = self._cut(current, index) if current in runs else None
        if not runs.issuperset(later) or self.run != current:
            later = []
        for run in later:
            del self.given[run]
        return later, shortened

    def _cut(self, run: int, index: int) -> Shortened | None:
        """Have the run in progress end where the runner next looks; None when it may have got there
        meanwhile, or has no more.

        If it has got there in time to see that, it says so. If not, it is in a call when this is
        next tried, and is sure to see it then.
        """
        assignment = self.given[run]
        step = step_of(assignment)
        stop = assignment.start + ((index - assignment.start) // step + 1) * step
        if stop >= assignment.stop or self._shortened == run:
            return None
        if self._words[CUT_RUN] != run:
            self._words[CUT], self._words[CUT_RUN] = stop, run
        if self.run != run or self.index >= stop:
            return None
        self._shortened = run
        self.given[run] = msgspec.structs.replace(assignment, stop=stop)
        return Shortened(run, stop)

    def forget(self, run: int) -> None:
        """Note that a run has ended, whatever way."""
        del self.given[run]
        self.last_ended = run
        self.answered.pop(run, None)
        self.cancelled.pop(run, None)

    def end(self, reason: str, number: int, kill_at: float) -> None:
        """Signal the runner and its process group; kill it when it has not ended by `kill_at`
        (monotonic seconds).
        """
        self.ending = Ending(
            reason, self.run, self.index, math.inf if number == signal.SIGKILL else kill_at
        )
        self._signal(number)

    def dismiss(self, kill_at: float) -> None:
        """Have a runner without work end when its threads have; kill it when it has not by
        `kill_at` (monotonic seconds).
        """
        self.ending = Ending(CANCELLED, self.run, self.index, kill_at)
        self.channel.end()

    def kill(self) -> None:
        """Kill the runner, whatever it is at."""
        if self.ending is not None:
            self.ending.kill_at = math.inf
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(OSError):  # a nursery that is gone shows when its events are read
            self._fork_server.signal(self.id, number)

    def press(self, now: float, grace_seconds: float) -> float:
        """End what is due (`now` in monotonic seconds), and return after how many seconds to look
        again.
        """
        if self.ending is not None:
            if now >= self.ending.kill_at:
                self.kill()
            return self.ending.kill_at - now
        if self.cancelled:
            # It may have begun a run just when it was to be dropped, and not have noticed in time.
            if self.run in self.cancelled:
                self.end(CANCELLED, self.cancelled[self.run], now + grace_seconds)
            return _LOOK_SECONDS
        return self._time(now, grace_seconds) if self.given else math.inf

    def _time(self, now: float, grace_seconds: float) -> float:
        """End the call in progress if it is over its time limit, else return how many seconds it
        has left at least.
        """
        limit, run, began = self.time_limit(), self.run, self.call_began
        excused = self._excused[1] if self._excused[0] == (run, began) else 0.0
        left = limit + excused - (now - began * 1e-9) if began else limit
        if left > 0:
            return left
        self.hold()
        if (self.run, self.call_began) == (run, began):
            self._words[LATE] = began
            self.end(TIMEOUT, signal.SIGTERM, now + grace_seconds)
            return grace_seconds
        self.channel.send(Cancel([], 0))  # it has ended just now: let the runner go on
        return limit

    def keep_output(self, limit: int, also: Sequence[Sink] = ()) -> None:
        """Keep from here on what it writes, and not what it wrote before, and pass it on there too:
        to one for each stream.
        """
        self.take_output()
        for tap, sink in itertools.zip_longest(self.taps, also):
            tap.kept, tap.also = Kept(limit), sink

    def take_output(self) -> list[bytes]:
        """Return what was kept of its standard output and error up to now, and keep no more."""
        contents = []
        for tap in self.taps:
            tap.drain()
            tap.let_go()
            contents.append(tap.kept.content() if tap.kept is not None else b"")
            tap.kept = tap.also = None
        return contents

    def accused(self) -> tuple[int, int] | None:
        """Return the run and call in which it died; None when it was in none that is not
        answered.
        """
        run, index = self.run, self.index
        if self.ending is not None and self.ending.run == run:
            index = self.ending.index
        if run not in self.given and run not in (0, self.last_ended):
            # User code has overwritten the words; it was in the first run that has not ended.
            run = next(iter(self.given), 0)
            index = self.answered.get(run, self.given[run].start) if run else 0
        assignment = self.given.get(run)
        if (
            assignment is None
            or not self.answered.get(run, assignment.start) <= index < assignment.stop
        ):
            return None
        return run, index

    def close(self) -> None:
        """Close what is held for it."""
        self.channel.close()
        for tap in self.taps:
            tap.close()
