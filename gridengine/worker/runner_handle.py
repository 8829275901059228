"""An agent's side of one runner: its channel, its output, its status block, and the runs it was
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
from operator import attrgetter
from typing import TypeAlias

import msgspec

from gridengine.serialize.payload import Payload
from gridengine.wire.channel import Channel
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.messages import CANCELLED, TIMEOUT, Allocate, Assignment, Cancel, Shortened
from gridengine.wire.socket_pairs import socket_pair
from gridengine.worker.batch_queue import AssignedRun, Batch, BatchQueue
from gridengine.worker.forkserver import ForkServer
from gridengine.worker.forkserver_process import RunnerDescriptors
from gridengine.worker.output import CallersSink, OutputReader
from gridengine.worker.output_excerpt import OutputExcerpt
from gridengine.worker.status_block import WORDS_SIZE, RunnerStatus, map_words
from gridengine.worker.stream_writer import StandardStreams

Place: TypeAlias = tuple[tuple[int, ...], tuple[int | str, ...]]
"""The machine's own numbers of processors and GPUs."""
ANYWHERE: Place = ((), ())
"""The place of calls that were allocated no certain ones."""
_LOOK_SECONDS = 0.05
_RUN = attrgetter("run")


class Ending(msgspec.Struct):
    """That a runner is being ended: why (as in `Crashed`), in which run and call, and when to kill
    it (monotonic seconds).
    """

    reason: str
    run: int
    index: int
    kill_at: float


class RunnerAllocation:
    """What calls are given, their batches that wait, and the runner that has one of them."""

    def __init__(self, message: Allocate, payload: Payload) -> None:
        self.message = message
        self.payload = payload
        self.place: Place = tuple(message.cores or ()), tuple(message.gpus or ())
        self.queue = BatchQueue()
        self.runner: RunnerHandle | None = None


class RunnerHandle:
    """One runner, as its agent has it.

    Args:
        id: the agent's own number for it.
        fork_server: forks it; whether it could is one of the fork server's events.
        streams: where its standard output and error are passed on to.
        place: the processors and GPUs that it keeps to for all its life.

    Raises:
        OSError: no descriptors, or no fork server, left.
    """

    def __init__(
        self,
        id: int,
        fork_server: ForkServer,
        streams: StandardStreams,
        place: Place,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self.id = id
        self.place = place
        self.allocation: RunnerAllocation | None = None
        """The allocation that it has a batch of."""
        self.told_allocation = 0
        """The allocation that it was sent last."""
        self._fork_server = fork_server
        self.pid = 0
        self.backlog: Batch = deque()
        """The rest of its batch, which was not sent to it yet."""
        self.given: dict[int, Assignment] = {}
        """The runs it was given and has not ended, by number: in the order of their beginnings."""
        self.ahead: dict[int, AssignedRun] = {}
        """Of these, those of a batch that it was given before it had ended the one before."""
        self._to_skip: set[int] = set()
        """The runs that were taken back and that it has not come to yet."""
        self._maybe_barred = False
        """Whether runs were barred when some of them may have begun."""
        self.recalled: set[int] = set()
        """The runs that the dispatcher wants back, of which some may have begun."""
        self.last_ended = 0
        """The run that it ended last; the words may still name it."""
        self.answered: dict[int, int] = {}
        """Of runs it has answered in part: the index of the first call not answered."""
        self.cancelled: dict[int, int] = {}
        """The runs it was given that are to be ended, and by which signal."""
        self.waits_in = 0
        """The run whose call waits for calls that it has made; 0 when none does."""
        self.defined: set[bytes] = set()
        self.outdated = False
        """Whether it may have loaded modules that have changed since."""
        self.ending: Ending | None = None
        self.has_answered = False
        self.dead = False
        self._shortened = 0
        self._excused: tuple[tuple[int, int], float] = (0, 0), 0.0
        """Which call is excused for how many seconds."""
        self.stalled = False
        """Whether its channel has more to send than it takes now."""
        ours: list[int] = []
        theirs: list[int] = []
        try:
            for _ in range(2):
                reading, writing = os.pipe()
                ours.append(reading)
                theirs.append(writing)
            mine, its = socket_pair()
            theirs += [its.detach(), os.memfd_create("gridengine-runner")]
            os.ftruncate(theirs[3], WORDS_SIZE)
            self.status = RunnerStatus(map_words(theirs[3]))
            fork_server.fork(
                id,
                RunnerDescriptors(
                    stdout=theirs[0], stderr=theirs[1], channel=theirs[2], words=theirs[3]
                ),
            )
        except BaseException:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        self.channel = Channel(mine, takes_blocks=True)
        self.outputs = tuple(
            OutputReader(fd, stream) for fd, stream in zip(ours, streams, strict=True)
        )

    def extend_time_limit(self, seconds: float) -> None:
        """Have so many seconds not count against the time limit of the call in progress: nobody
        could run or look meanwhile.
        """
        key = (self.status.run, self.status.call_began)
        before = self._excused[1] if self._excused[0] == key else 0.0
        self._excused = key, before + seconds

    def time_limit(self) -> float:
        """Return the limit in seconds of the run in progress, or the least of those it has;
        infinite when there is none.
        """
        current = self.given.get(self.status.run)
        limits = [current] if current is not None else self.given.values()
        return min(
            (assignment.timeout for assignment in limits if assignment.timeout is not None),
            default=math.inf,
        )

    @property
    def is_settled(self) -> bool:
        """Whether nobody is ending it, or any of its runs."""
        return self.ending is None and not self.cancelled and not self.dead

    def leave_allocation(self) -> None:
        """Have it work for no allocation."""
        if self.allocation is not None:
            self.allocation.runner = None
            self.allocation = None

    def give(self, assignments: Sequence[Assignment], batch: Batch) -> None:
        """Note the runs that it is given now: those of a batch."""
        runs = list(map(_RUN, assignments))
        if self.given:
            self.ahead = dict(zip(runs, batch, strict=True))
        self.given.update(zip(runs, assignments, strict=True))

    def recall(self, runs: set[int]) -> tuple[list[int], list[AssignedRun], Shortened | None]:
        """Take back what the runner has not begun: whole runs, and the rest of the one in progress.

        Return those of `runs`, the others, which are to be given to somebody again, and where the
        one in progress ends. Where it may have begun meanwhile the runner says itself, later, what
        it did not do.
        """
        current, index = self.status.run, self.status.index
        if current not in self.given or self.ending is not None or self.dead:
            return [], [], None
        # It drops itself, and reports, what is cancelled, before it looks at what is barred.
        later = [run for run in self.given if run > current and run not in self.cancelled]
        asked = [run for run in later if run in runs]
        others = [self.ahead.get(run) for run in later if run not in runs]
        if not all(others):
            asked = []
        if asked:
            self.status.bar(later[0], later[-1], current)
        shortened = self._cut(current, index) if current in runs else None
        if not asked:
            return [], [], shortened
        if self.status.run != current:
            self.recalled.update(asked)
            self._maybe_barred = True
            return [], [], shortened
        self._drop(later)
        return asked, [work for work in others if work], shortened

    def take_ahead(self) -> list[AssignedRun]:
        """Take back the batch that it was given ahead, if it has not begun it, to give it to
        another.
        """
        current = self.status.run
        if not self.can_give_ahead or current not in self.given or current in self.ahead:
            return []
        self.status.bar(min(self.ahead), max(self.ahead), current)
        current = self.status.run
        if current not in self.given or current in self.ahead:
            self._maybe_barred = True
            return []
        batch = list(self.ahead.values())
        self._drop(list(self.ahead))
        return batch

    @property
    def can_give_ahead(self) -> bool:
        """Whether it may have a batch that can still be taken back."""
        return bool(self.ahead) and not self._maybe_barred and self.is_settled

    @property
    def is_skipping(self) -> bool:
        """Whether it has still to come to runs that it is not to begin."""
        return bool(self._to_skip) or self._maybe_barred

    def may_begin(self, run: int) -> bool:
        """Whether it can be given a run: one that was taken back from it only once it has skipped
        all that it was to skip.
        """
        if run > self.status.last_barred:
            return True
        if self.is_skipping:
            return False
        self.status.unbar()
        return True

    def skipped(self, runs: Sequence[int]) -> None:
        """Note that it has come to runs that were taken back."""
        self._to_skip.difference_update(runs)

    def _drop(self, runs: Sequence[int]) -> None:
        self._to_skip.update(runs)
        for run in runs:
            del self.given[run]
            self.ahead.pop(run, None)

    def _cut(self, run: int, index: int) -> Shortened | None:
        """Have the run in progress end after its present call; None when it may have begun the
        next meanwhile, or has no more.

        If it has got there in time to see that, it says so. If not, it is in a call when this is
        next tried, and is sure to see it then.
        """
        assignment = self.given[run]
        stop = index + 1
        if stop >= assignment.stop or self._shortened == run:
            return None
        self.status.cut(run, stop)
        if self.status.run != run or self.status.index >= stop:
            return None
        self._shortened = run
        self.given[run] = msgspec.structs.replace(assignment, stop=stop)
        return Shortened(run, stop)

    def forget(self, run: int) -> AssignedRun | None:
        """Note that a run has ended, whatever way; return it if it was given ahead and can be given
        to another.
        """
        del self.given[run]
        self.last_ended = run
        self.answered.pop(run, None)
        self.cancelled.pop(run, None)
        work = self.ahead.pop(run, None)
        if run in self.recalled:
            self.recalled.remove(run)
            work = None
        if not self.given:
            self._maybe_barred = False
        elif self.ahead and not self._maybe_barred and len(self.given) == len(self.ahead):
            self.ahead = {}  # it has ended the batch before, and so begins this one
        return work

    @property
    def takes_ahead(self) -> bool:
        """Whether it may be given another batch before it has ended the one that it has."""
        return (
            bool(self.given)
            and not self.ahead
            and not self._maybe_barred
            and not self.backlog
            and not self.outdated
            and not self.waits_in
            and self.is_settled
            and not next(iter(self.given.values())).watched
        )

    def end(self, reason: str, number: int, kill_at: float) -> None:
        """Signal the runner and its process group; kill it when it has not ended by `kill_at`
        (monotonic seconds).
        """
        self.ending = Ending(
            reason,
            self.status.run,
            self.status.index,
            math.inf if number == signal.SIGKILL else kill_at,
        )
        self._signal(number)

    def dismiss(self, kill_at: float) -> None:
        """Have a runner without work end when its threads have; kill it when it has not by
        `kill_at` (monotonic seconds).
        """
        self.ending = Ending(CANCELLED, self.status.run, self.status.index, kill_at)
        self.channel.end()

    def kill(self) -> None:
        """Kill the runner, whatever it is at."""
        if self.ending is not None:
            self.ending.kill_at = math.inf
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(OSError):  # one that is gone shows when its events are read
            self._fork_server.signal(self.id, number)

    def enforce_deadlines(self, now: float, grace_seconds: float) -> float:
        """End what is due (`now` in monotonic seconds), and return after how many seconds to look
        again.
        """
        if self.ending is not None:
            if now >= self.ending.kill_at:
                self.kill()
            return self.ending.kill_at - now
        if self.cancelled:
            # It may have begun a run just when it was to be dropped, and not have noticed in time.
            if self.status.run in self.cancelled:
                self.status.hold()  # lest it is in another by the time that the signal arrives
                if self.status.run in self.cancelled:
                    self.end(CANCELLED, self.cancelled[self.status.run], now + grace_seconds)
                else:
                    self.channel.send(Cancel([], 0))  # it has noticed: let it go on
                return _LOOK_SECONDS
            # until it reads of that it may be long in a call of another run
            return min(_LOOK_SECONDS, self._enforce_time_limit(now, grace_seconds))
        return self._enforce_time_limit(now, grace_seconds) if self.given else math.inf

    def _enforce_time_limit(self, now: float, grace_seconds: float) -> float:
        """End the call in progress if it is over its time limit, else return how many seconds it
        has left at least.
        """
        limit, run, began = self.time_limit(), self.status.run, self.status.call_began
        excused = self._excused[1] if self._excused[0] == (run, began) else 0.0
        left = limit + excused - (now - self._clock.at(began * 1e-9)) if began else limit
        if left > 0:
            return left
        self.status.hold()
        if (self.status.run, self.status.call_began) == (run, began):
            self.status.mark_late(began)
            self.end(TIMEOUT, signal.SIGTERM, now + grace_seconds)
            return grace_seconds
        self.channel.send(Cancel([], 0))  # it has ended just now: let the runner go on
        return limit

    def keep_output(self, limit: int, also: Sequence[CallersSink] = ()) -> None:
        """Keep from here on what it writes, and not what it wrote before, and pass it on there too:
        to one for each stream.
        """
        self.take_output()
        for output, sink in itertools.zip_longest(self.outputs, also):
            output.excerpt, output.also = OutputExcerpt(limit), sink

    def take_output(self) -> list[bytes]:
        """Return what was kept of its standard output and error up to now, and keep no more."""
        return [output.take_excerpt() for output in self.outputs]

    def failed_call(self) -> tuple[int, int] | None:
        """Return the run and call in which it died; None when it was in none that is not
        answered.
        """
        run, index = self.status.run, self.status.index
        assignment = self.given.get(run)
        once = assignment is not None and assignment.once
        if self.ending is not None and self.ending.run == run and not once:
            index = self.ending.index
        barred = self.status.is_barred(run)  # and so it only skips it
        if run not in self.given and run not in (0, self.last_ended) and not barred:
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
        for output in self.outputs:
            output.close()
