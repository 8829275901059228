"""The agent's side of one runner (`RunnerHandle`): its channel, its output, its status block, and
the runs that it was given. And queues of batches that wait for a runner (`BatchQueue`).
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import signal
from collections import deque
from collections.abc import Sequence, Set
from operator import attrgetter
from typing import TypeAlias

import msgspec

from gridengine.call_context.status_block import WORDS_SIZE, RunnerStatus, map_words
from gridengine.output.stream_writer import OutputExcerpt, StandardStreams
from gridengine.serialize.payload import Payload
from gridengine.system import nameless_memory
from gridengine.wire.channel import Channel, socket_pair
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.messages import CANCELLED, TIMEOUT, Allocate, Assignment, Cancel, Shortened
from gridengine.worker.forkserver import ForkServer, RunnerDescriptors
from gridengine.worker.runner_output import OutputReader, RunOutput

AssignedRun: TypeAlias = tuple[Assignment, Payload]
Batch: TypeAlias = deque[AssignedRun]


class BatchQueue(deque[Batch]):
    """Batches in the order in which they begin. One whose runs were all taken out disappears."""

    def take_out(self, runs: Set[int]) -> list[int]:
        """Remove these runs from the queue; return the ones that were in it."""
        taken = [run for batch in self for run in take_out(batch, runs)]
        if taken:
            left = [batch for batch in self if batch]
            self.clear()
            self.extend(left)
        return taken


def take_out(batch: Batch, runs: Set[int]) -> list[int]:
    """Remove these runs from a batch; return the ones that were in it."""
    taken = [assignment.run for assignment, _ in batch if assignment.run in runs]
    if taken:
        left = [work for work in batch if work[0].run not in runs]
        batch.clear()
        batch.extend(left)
    return taken


Place: TypeAlias = tuple[tuple[int, ...], tuple[int | str, ...]]
"""The machine's own numbers of processors and GPUs."""
ANYWHERE: Place = ((), ())
"""The place of calls whose allocation names no processors or GPUs."""
_LOOK_SECONDS = 0.05
_RUN = attrgetter("run")


class RunnerEnding(msgspec.Struct):
    """A runner is being ended: for which reason (as in `Crashed`), in which run and call, and when
    to kill it (monotonic seconds).
    """

    reason: str
    run: int
    index: int
    kill_at: float


class RunnerAllocation:
    """An allocation at this worker: its message, its queued batches, and its runner."""

    def __init__(self, message: Allocate, payload: Payload) -> None:
        self.message = message
        self.payload = payload
        self.place: Place = tuple(message.cores or ()), tuple(message.gpus or ())
        self.queue = BatchQueue()
        self.runner: RunnerHandle | None = None


class RunnerHandle:
    """The agent's record of one runner.

    Args:
        id: the agent's own number for the runner.
        fork_server: forks the runner; an event of the fork server says whether it could.
        streams: where the runner's standard output and error are written.
        place: the processors and GPUs that the runner uses for all its life.

    Raises:
        OSError: no descriptors are left, or the fork server is gone.
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
        """The allocation whose batch the runner has."""
        self.told_allocation = 0
        """The number of the last allocation that the runner was sent."""
        self._fork_server = fork_server
        self.pid = 0
        self.backlog: Batch = deque()
        """The runs of the present batch that were not sent to the runner yet."""
        self.given: dict[int, Assignment] = {}
        """The runs that the runner was sent and has not ended, by number, in the order in which
        they begin.
        """
        self.ahead: dict[int, AssignedRun] = {}
        """The `given` runs of the next batch, which was sent before the present one had ended."""
        self._to_skip: set[int] = set()
        """The runs that were taken back and that the runner has not reached yet."""
        self._maybe_barred = False
        """Whether runs were barred at a moment when the runner may have begun some of them."""
        self.recalled: set[int] = set()
        """The runs that the dispatcher recalls, some of which may have begun."""
        self.last_ended = 0
        """The run that ended last; the status block may still name it."""
        self.answered: dict[int, int] = {}
        """For runs that are answered in part: the index of the first unanswered call."""
        self.cancelled: dict[int, int] = {}
        """The given runs that are to be ended, each with its signal."""
        self.waits_in = 0
        """The run whose call waits for nested calls; 0 when none does."""
        self.defined: set[bytes] = set()
        self.outdated = False
        """Whether the runner may have loaded modules that have changed since."""
        self.ending: RunnerEnding | None = None
        self.has_answered = False
        self.dead = False
        self._excused: tuple[tuple[int, int], float] = (0, 0), 0.0
        """A call, as (run, beginning), and the seconds that do not count against its time limit."""
        self.stalled = False
        """Whether the channel has more to send than it takes now."""
        self.status, self.channel, pipes = _fork(id, fork_server)
        self.outputs = tuple(map(OutputReader, pipes, streams))

    def extend_time_limit(self, seconds: float) -> None:
        """Do not count this many seconds against the time limit of the call in progress: this
        process was suspended, and perhaps the runner too.
        """
        key = (self.status.run, self.status.call_began)
        before = self._excused[1] if self._excused[0] == key else 0.0
        self._excused = key, before + seconds

    def time_limit(self) -> float:
        """Return the time limit in seconds of the run in progress, or the smallest of the given
        runs when none is in progress; infinite when there is none.
        """
        current = self.given.get(self.status.run)
        limits = [current] if current is not None else self.given.values()
        return min(
            (assignment.timeout for assignment in limits if assignment.timeout is not None),
            default=math.inf,
        )

    @property
    def is_settled(self) -> bool:
        """Whether neither the runner nor any of its runs is being ended."""
        return self.ending is None and not self.cancelled and not self.dead

    def leave_allocation(self) -> None:
        """Detach the runner from its allocation."""
        if self.allocation is not None:
            self.allocation.runner = None
            self.allocation = None

    def give(self, assignments: Sequence[Assignment], batch: Batch) -> None:
        """Record the runs of a batch that is being sent to the runner."""
        runs = list(map(_RUN, assignments))
        if self.given:
            self.ahead = dict(zip(runs, batch, strict=True))
        self.given.update(zip(runs, assignments, strict=True))

    def recall(self, runs: set[int]) -> tuple[list[int], list[AssignedRun], Shortened | None]:
        """Take back everything that the runner has not begun: whole runs, and the rest of the run
        in progress.

        Return the numbers of the runs among `runs` that were taken back, the other runs that were
        taken back with them and must be queued again, and where the run in progress now ends. A run
        that may have begun at this very moment is in none of these: the runner reports later which
        calls it did not make.
        """
        current, index = self.status.run, self.status.index
        if current not in self.given or self.ending is not None or self.dead:
            return [], [], None
        # The runner itself drops and reports cancelled runs, before it looks at barred ones.
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
        """Take back the batch that the runner was given ahead, unless it may have begun, to give
        the batch to another runner.
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
        """Whether the runner may have a batch ahead that can still be taken back."""
        return bool(self.ahead) and not self._maybe_barred and self.is_settled

    @property
    def is_skipping(self) -> bool:
        """Whether the runner has yet to reach runs that were taken back from it."""
        return bool(self._to_skip) or self._maybe_barred

    def may_begin(self, run: int) -> bool:
        """Return whether the runner can be given this run. A run that was taken back from it can be
        given again only after the runner has skipped all barred runs.
        """
        if run > self.status.last_barred:
            return True
        if self.is_skipping:
            return False
        self.status.unbar()
        return True

    def skipped(self, runs: Sequence[int]) -> None:
        """Note that the runner has reached and skipped these runs."""
        self._to_skip.difference_update(runs)

    def _drop(self, runs: Sequence[int]) -> None:
        self._to_skip.update(runs)
        for run in runs:
            del self.given[run]
            self.ahead.pop(run, None)

    def _cut(self, run: int, index: int) -> Shortened | None:
        """End the run in progress after its present call, or as soon after as the runner looks.
        Return where it ends, if that is sooner than was known.

        The runner looks after each stride of quick calls. If one of them takes long after all, the
        next attempt takes back the calls behind it.
        """
        assignment = self.given[run]
        if index + 1 >= assignment.stop:
            return None
        stop = self.status.cut(run, index + 1)
        if self.status.run != run or stop >= assignment.stop:
            return None
        self.given[run] = msgspec.structs.replace(assignment, stop=stop)
        return Shortened(run, stop)

    def forget(self, run: int) -> AssignedRun | None:
        """Note that a run has ended, in whatever way. Return the run's work if it was given ahead
        and can be given to another runner.
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
            self.ahead = {}  # the batch before has ended, so the runner begins this one
        return work

    @property
    def takes_ahead(self) -> bool:
        """Whether the runner may be given another batch before it has ended its present one."""
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
        """Signal the runner and its process group. Kill it when it has not ended by `kill_at`
        (monotonic seconds).
        """
        self.ending = RunnerEnding(
            reason,
            self.status.run,
            self.status.index,
            math.inf if number == signal.SIGKILL else kill_at,
        )
        self._signal(number)

    def dismiss(self, kill_at: float) -> None:
        """Let an idle runner end when its threads have ended. Kill it when it has not ended by
        `kill_at` (monotonic seconds).
        """
        self.ending = RunnerEnding(CANCELLED, self.status.run, self.status.index, kill_at)
        self.channel.end()

    def kill(self) -> None:
        """Kill the runner, whatever it is doing."""
        if self.ending is not None:
            self.ending.kill_at = math.inf
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(OSError):  # a dead fork server shows when its events are read
            self._fork_server.signal(self.id, number)

    def enforce_deadlines(self, now: float, grace_seconds: float) -> float:
        """Enforce deadlines that have passed (`now` in monotonic seconds), and return after how
        many seconds to look again.
        """
        if self.ending is not None:
            if now >= self.ending.kill_at:
                self.kill()
            return self.ending.kill_at - now
        if self.cancelled:
            # The runner may have begun a run at the moment of its cancellation, without noticing.
            if self.status.run in self.cancelled:
                self.status.hold()  # else it may be in another run when the signal arrives
                if self.status.run in self.cancelled:
                    self.end(CANCELLED, self.cancelled[self.status.run], now + grace_seconds)
                else:
                    self.channel.send(Cancel([], 0))  # the run has ended: let the runner go on
                return _LOOK_SECONDS
            # Until the runner reads the `Cancel`, it may be in a long call of another run.
            return min(_LOOK_SECONDS, self._enforce_time_limit(now, grace_seconds))
        return self._enforce_time_limit(now, grace_seconds) if self.given else math.inf

    def _enforce_time_limit(self, now: float, grace_seconds: float) -> float:
        """End the call in progress if it is over its time limit. Otherwise return how many seconds
        it has left, at least.
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
        self.channel.send(Cancel([], 0))  # the call has ended just now: let the runner go on
        return limit

    def record_output(self, limit: int, also: Sequence[RunOutput] = ()) -> None:
        """Record the runner's output from here on, without its earlier output. Also pass it on to
        these sinks, one for each stream.
        """
        self.take_output()
        for output, sink in itertools.zip_longest(self.outputs, also):
            output.excerpt, output.also = OutputExcerpt(limit), sink

    def take_output(self) -> list[bytes]:
        """Return the recorded standard output and error, and stop recording."""
        return [output.take_excerpt() for output in self.outputs]

    def failed_call(self) -> tuple[int, int] | None:
        """Return the run and call in which the runner died; None if in no unanswered call."""
        run, index = self.status.run, self.status.index
        assignment = self.given.get(run)
        once = assignment is not None and assignment.once
        if self.ending is not None and self.ending.run == run and not once:
            index = self.ending.index
        barred = self.status.is_barred(run)  # the runner was only skipping this run
        if run not in self.given and run not in (0, self.last_ended) and not barred:
            # User code has overwritten the status block; the runner was in its first unended run.
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
        """Close the runner's channel and pipes."""
        self.channel.close()
        for output in self.outputs:
            output.close()


def _fork(id: int, fork_server: ForkServer) -> tuple[RunnerStatus, Channel, list[int]]:
    """Have a runner forked. Return its status block, the agent's end of its channel, and the read
    ends of its output pipes.

    Raises:
        OSError: no descriptors are left, or the fork server is gone.
    """
    ours: list[int] = []
    theirs: list[int] = []
    try:
        for _ in range(2):
            reading, writing = os.pipe()
            ours.append(reading)
            theirs.append(writing)
        mine, its = socket_pair()
        theirs.append(its.detach())
        theirs.append(nameless_memory("gridengine-runner"))
        os.ftruncate(theirs[3], WORDS_SIZE)
        status = RunnerStatus(map_words(theirs[3]))
        stdout, stderr, channel, words = theirs
        fork_server.fork(id, RunnerDescriptors(channel, stdout, stderr, words))
    except BaseException:
        for fd in ours:
            os.close(fd)
        raise
    finally:
        for fd in theirs:
            os.close(fd)
    return status, Channel(mine, takes_blocks=True, keeps_descriptors=True), ours
