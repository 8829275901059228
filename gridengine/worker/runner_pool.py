"""The runners of a worker and the batches that wait for them: which runner gets which batch, and
when a runner is started or ended.
"""

from __future__ import annotations

import math
import os
import signal
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from gridengine.display import log
from gridengine.errors import ProtocolError
from gridengine.serialize.payload import Buffer, Payload
from gridengine.system import data_bytes
from gridengine.system.polling import Poller
from gridengine.wire.channel import Channel
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.messages import CANCELLED, Allocate, Assign, Assignment, Message, large_inputs
from gridengine.wire.processes import allow_one_more_runner
from gridengine.worker.definition_store import DefinitionStore
from gridengine.worker.forkserver import ForkServer
from gridengine.worker.runner_handle import (
    ANYWHERE,
    AssignedRun,
    Batch,
    BatchQueue,
    Place,
    RunnerAllocation,
    RunnerHandle,
    take_out,
)
from gridengine.worker.runner_output import OutputReaders, Relay, RunOutput

NOTHING = Allocate(0, buffers=0)
"""The allocation of calls that request nothing."""
MOST_AHEAD_BYTES = 1 << 20
"""A batch larger than this is not given ahead: the agent keeps a copy of what it gives ahead."""
_TICK_SECONDS = 0.5
"""While a call has a time limit, `tick` wants to be called at least this often. When a call of
`tick` comes more than twice as late, this process was suspended.
"""
_LOOK_SECONDS = 0.05
_LONGEST_SECONDS = 3600.0
"""Between two calls of `tick`, at most. Of time limits further away no suspension is noticed."""
_SURPLUS_SECONDS = 1.0
"""How long surplus runners stay that replaced waiting calls: another may wait soon."""


class Connected(Protocol):
    """Anything with a channel to a runner. `stalled` says whether the channel has more to send than
    it takes now.
    """

    channel: Channel
    stalled: bool


class RunnerPool:
    """Up to `slots` runners and their work.

    A runner has one batch at a time. While more batches than runners exist, it also has the next
    one ahead, so that it need not wait between the two. A runner whose call waits for nested calls
    takes no slot.

    Args:
        poller: calls when a runner's channel can be read.
        definitions: the definitions that runners are sent before they need them.
        spare: how many idle runners stay.
        grace_seconds: between the signal that asks a runner to end and SIGKILL.
        output_bytes, relay, clock: as those of the `Agent`.
    """

    def __init__(
        self,
        fork_server: ForkServer,
        poller: Poller,
        definitions: DefinitionStore,
        readers: OutputReaders,
        *,
        slots: int,
        spare: int,
        grace_seconds: float,
        output_bytes: int,
        relay: Relay | None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self.fork_server = fork_server
        self._poller = poller
        self._definitions = definitions
        self._readers = readers
        self._slots = slots
        self._spare = spare
        self.grace_seconds = grace_seconds
        self._output_bytes = output_bytes
        self._relay = relay
        self._queue = BatchQueue()
        """The batches of calls that request nothing."""
        self._allocations: dict[int, RunnerAllocation] = {}
        self.held_back: dict[int, BatchQueue] = {}
        """The batches that wait for results of other workers (`pulls`), by allocation."""
        self.runners: dict[int, RunnerHandle] = {}
        self.idle: list[RunnerHandle] = []
        self._ahead: dict[int, RunnerHandle] = {}
        """The runners that were given a batch ahead, and may still have it."""
        self._leaving: set[int] = set()
        """The idle runners that were ended to make room."""
        self._waiting: set[int] = set()
        """The runners whose calls wait for nested calls."""
        self._more = 0
        """How many runners are allowed beyond `slots`: as many as have waited at a time lately."""
        self._less_at = 0.0
        self.on_readable: Callable[[RunnerHandle], None] = lambda runner: None
        """Called with a runner whose channel can be read."""
        self.on_removed: Callable[[RunnerHandle], object] = lambda runner: None
        """Called with each runner that has ended."""
        self._leaves = (0, False)
        """When the worker ends, as runners were told by `leave_by`."""
        self._last_id = 0
        self._ticked = math.inf
        self.broken = ""
        """Why nothing can be run any more; empty while runs can begin."""

    # Allocations and queues

    def allocate(self, message: Allocate, payload: Payload) -> None:
        """Add an allocation whose core and GPU numbers are the machine's own."""
        self._allocations[message.allocation] = RunnerAllocation(message, payload)

    def allocations(self) -> list[int]:
        return list(self._allocations)

    def release(self, allocations: list[int]) -> None:
        """Forget allocations; nothing more will be assigned to them."""
        for number in allocations:
            self._allocations.pop(number, None)
        self.assign_queued()

    def enqueue(self, batch: Batch, allocation: int) -> None:
        """Queue a batch to be run.

        Raises:
            ProtocolError: there is no such allocation.
        """
        if not allocation:
            self._queue.append(batch)
        elif allocation in self._allocations:
            self._allocations[allocation].queue.append(batch)
        else:
            raise ProtocolError(f"allocation {allocation} is not this worker's")
        self.assign_queued()

    def enqueue_again(self, runner: RunnerHandle, batch: list[AssignedRun]) -> None:
        """Put runs that a runner was given and has not begun at the front of their queue."""
        if batch:
            self._queue_of(runner).appendleft(deque(batch))
            self.assign_queued()

    def _queue_of(self, runner: RunnerHandle) -> BatchQueue:
        return self._queue if runner.allocation is None else runner.allocation.queue

    def _queues(self) -> list[BatchQueue]:
        allocated = (one.queue for one in self._allocations.values())
        return [*self.held_back.values(), self._queue, *allocated]

    def take_queued(self, runs: set[int]) -> list[int]:
        """Take these runs out of all queues and backlogs; return those that were there."""
        taken = [run for queue in self._queues() for run in queue.take_out(runs)]
        for runner in self.runners.values():
            taken += take_out(runner.backlog, runs)
        return taken

    def take_all_queued(self) -> list[int]:
        """Empty all queues; return the runs that were in them."""
        queues = self._queues()
        taken = [assignment.run for queue in queues for batch in queue for assignment, _ in batch]
        for queue in queues:
            queue.clear()
        return taken

    def clear(self) -> None:
        """Drop all queued batches and all allocations."""
        self.held_back.clear()
        self._queue.clear()
        self._allocations.clear()

    # Giving work to runners

    def assign_queued(self) -> None:
        """Give queued batches to idle runners, and to new ones if there may be more. Give busy
        runners one batch each ahead.
        """
        if self.broken:
            return
        lacking = 0
        for allocation in self._allocations.values():
            if allocation.queue:
                if allocation.runner is not None:
                    self._give_ahead(allocation.runner, allocation.queue)
                else:
                    lacking += not self._begin(allocation, allocation.queue)
        # Without allocations `_begin` says whether there is a slot: counting them takes longer.
        while self._queue and (not self._allocations or self._has_plain_slot()):
            if not self._begin(None, self._queue):
                lacking += 1
                break
        if lacking and any(runner.is_skipping for runner in self.idle):
            lacking = 0  # these idle runners can begin the batch soon, so none must make room
        spare = self._spare + self._more
        while self.idle and (lacking > len(self._leaving) or len(self.idle) > spare):
            self._end_idle(self.idle.pop(0))
        if self._queue:
            for runner in self.runners.values():
                if runner.allocation is None and self._queue:
                    self._give_ahead(runner, self._queue)
        elif self._ahead and (self.idle or self._may_grow()):
            self._take_from_busy()

    def _may_grow(self) -> bool:
        """Whether one more runner may be started."""
        return len(self.runners) < self._slots + self._more

    def _has_plain_slot(self) -> bool:
        """Whether the allocations leave a slot for calls that request nothing."""
        busy = (
            sum(
                runner.allocation is None and runner.id not in self._leaving
                for runner in self.runners.values()
            )
            - len(self.idle)
            - len(self._waiting)
        )
        return busy + sum(one.message.slots for one in self._allocations.values()) < self._slots

    def _take_from_busy(self) -> None:
        """Take batches that busy runners were given ahead, and give them to idle runners."""
        for runner in self._holders_of_spare_batches():
            if (self._allocations and not self._has_plain_slot()) or not (
                any(one.place == ANYWHERE for one in self.idle) or self._may_grow()
            ):
                return
            if batch := runner.take_ahead():
                self._queue.append(deque(batch))
                self._begin(None, self._queue)

    def _holders_of_spare_batches(self) -> list[RunnerHandle]:
        self._ahead = {id: runner for id, runner in self._ahead.items() if runner.ahead}
        return [
            runner
            for runner in self._ahead.values()
            if runner.allocation is None and runner.can_give_ahead
        ]

    def _begin(self, allocation: RunnerAllocation | None, queue: BatchQueue) -> bool:
        """Give the first batch of a queue to a runner. Return whether a runner was there for it."""
        place = ANYWHERE if allocation is None else allocation.place
        runner = self._take_idle(place, queue[0][0][0]) or self._start_runner(place)
        if runner is None:
            return False
        runner.allocation = allocation
        if allocation is not None:
            allocation.runner = runner
            if runner.told_allocation != allocation.message.allocation:
                runner.told_allocation = allocation.message.allocation
                self.send(runner, allocation.message, allocation.payload)
        elif runner.told_allocation:
            runner.told_allocation = 0
            self.send(runner, NOTHING)
        runner.backlog = queue.popleft()
        self._give_backlog(runner)
        return True

    def _take_idle(self, place: Place, first: Assignment) -> RunnerHandle | None:
        """Return an idle runner at this place that can begin this run, or None.

        Two kinds of idle runners are ended instead: those that have loaded modules which have
        changed, and those whose heap has grown by half of the run's memory limit, which leaves too
        little of it.
        """
        for runner in self.idle[::-1]:
            if runner.place != place or not runner.may_begin(first.run):
                continue
            self.idle.remove(runner)
            if not runner.outdated and (
                not first.memory
                or data_bytes(runner.pid) - runner.status.fresh_data <= first.memory // 2
            ):
                return runner
            self._end_idle(runner)
        return None

    def _end_idle(self, runner: RunnerHandle) -> None:
        self._leaving.add(runner.id)
        kill_at = self._clock.monotonic() + self.grace_seconds
        if runner.status.background:
            runner.dismiss(kill_at)
        else:
            runner.end(CANCELLED, signal.SIGTERM, kill_at)

    def _start_runner(self, place: Place) -> RunnerHandle | None:
        if not self._may_grow():
            return None
        self._last_id += 1
        allow_one_more_runner(len(self.runners))
        try:
            runner = RunnerHandle(
                self._last_id, self.fork_server, self._readers.streams, place, self._clock
            )
        except OSError as error:
            self.stop_growing(error.errno or 0)
            return None
        log()  # imported while the runner starts: later no descriptor may be left for that
        stop_by, now = self._leaves
        runner.status.leave_by(stop_by, now=now)
        self.runners[runner.id] = runner
        self._poller.register(runner.channel.fileno(), partial(self.on_readable, runner))
        for output in runner.outputs:
            self._readers.add(output)
        for name in self._definitions.shared():
            self.define_to(runner, name)
        return runner

    def stop_growing(self, number: int) -> None:
        """Go on with the present runners: the system refused one more, with this error number."""
        self._more = len(self._waiting)
        self._slots = len(self.runners) - self._more
        if not self._slots:
            self.broken = f"no runner can be started: {os.strerror(number)}"
        else:
            log().warning(
                "no more than %d processes can be started (%s): further calls wait for these",
                self._slots,
                os.strerror(number),
            )

    def _give_backlog(self, runner: RunnerHandle) -> None:
        """Give a runner the next runs of its batch. A watched run goes alone, so that output
        written meanwhile is its own.
        """
        backlog = runner.backlog
        portion = deque([backlog.popleft()])
        watched = portion[0][0].watched
        while backlog and not watched and not backlog[0][0].watched:
            portion.append(backlog.popleft())
        if watched:
            relay, run = self._relay, portion[0][0].run
            runner.record_output(
                self._output_bytes,
                [] if relay is None else [RunOutput(relay, run, stream) for stream in (1, 2)],
            )
        self._give(runner, portion)

    def _give_ahead(self, runner: RunnerHandle, queue: BatchQueue) -> None:
        """Give a busy runner the first batch of a queue as its next one, unless the batch must not
        wait there.
        """
        batch = queue[0]
        if (
            runner.takes_ahead
            and runner.may_begin(batch[0][0].run)
            and batch[0][0].run > next(reversed(runner.given))
            and not any(assignment.watched or assignment.memory for assignment, _ in batch)
            and sum(len(buffer) for _, payload in batch for buffer in payload) <= MOST_AHEAD_BYTES
        ):
            self._give(runner, queue.popleft())
            self._ahead[runner.id] = runner

    def _give(self, runner: RunnerHandle, batch: Batch) -> None:
        assignments, buffers, defined = [], list[Buffer](), runner.defined
        for assignment, payload in batch:
            if assignment.function not in defined:
                self.define_to(runner, assignment.function)
            if assignment.inputs:
                for name in large_inputs(assignment):
                    self.define_to(runner, name)
            assignments.append(assignment)
            buffers += payload
        runner.give(assignments, batch)
        self.send(runner, Assign(assignments), buffers)

    def define_to(self, runner: RunnerHandle, name: bytes) -> None:
        """Send a runner the definition of a function or shared object, once."""
        if name not in runner.defined:
            runner.defined.add(name)
            self.send(runner, *self._definitions.messages[name])

    def send(self, runner: Connected, message: Message, payload: Payload = ()) -> None:
        """Send a runner a message. Never waits."""
        if runner.channel.send(message, payload) is runner.stalled:
            self.note_stall(runner, stalled=not runner.stalled)

    def note_stall(self, runner: Connected, *, stalled: bool) -> None:
        """Poll a full channel for writing from now on, or no longer."""
        if stalled != runner.stalled and not runner.channel.ended:
            runner.stalled = stalled
            self._poller.poll_writable(runner.channel.fileno(), stalled)

    # Runners that answer, wait or end

    def end_run(self, runner: RunnerHandle, run: int) -> None:
        """Note that a runner has ended a run, and give it the next batch ahead."""
        runner.forget(run)
        if run == runner.waits_in:
            self.end_waiting(runner, 0)
        if runner.given and not runner.ahead and (queue := self._queue_of(runner)):
            self._give_ahead(runner, queue)

    def go_on(self, runner: RunnerHandle) -> None:
        """Give a runner that has ended all its runs the next ones; or end it, if requested."""
        if runner.given or runner.dead:
            return
        if runner.ending is not None:
            runner.kill()
        elif runner.backlog:
            self._give_backlog(runner)
        else:
            if runner.allocation is not None:
                runner.leave_allocation()
            self.idle.append(runner)
            if self._queue or self._allocations or self._ahead or len(self.idle) > self._spare:
                self.assign_queued()

    def begin_waiting(self, runner: RunnerHandle, run: int) -> None:
        """Note that a call of this run waits for nested calls: its runner takes no slot."""
        runner.waits_in = run
        self._waiting.add(runner.id)
        self._more = max(self._more, len(self._waiting))
        runner.leave_allocation()

    def end_waiting(self, runner: RunnerHandle, allocation: int) -> RunnerAllocation | None:
        """Let a runner whose call has waited go on, in this allocation (0: none). Return the
        allocation if the runner must be told of it.

        Raises:
            ProtocolError: there is no such allocation.
        """
        runner.waits_in = 0
        self._waiting.discard(runner.id)
        self._less_at = self._clock.monotonic() + _SURPLUS_SECONDS
        if not allocation:
            return None
        if allocation not in self._allocations:
            raise ProtocolError(f"allocation {allocation} is not this worker's")
        runner.allocation = given = self._allocations[allocation]
        given.runner, runner.place = runner, given.place
        if runner.told_allocation == allocation:
            return None
        runner.told_allocation = allocation
        return given

    def remove(self, runner: RunnerHandle) -> None:
        """Forget a runner that has ended."""
        runner.leave_allocation()
        self._waiting.discard(runner.id)
        self._leaving.discard(runner.id)
        del self.runners[runner.id]
        self._ahead.pop(runner.id, None)
        if runner in self.idle:
            self.idle.remove(runner)
        self.unregister(runner)
        for output in runner.outputs:
            self._readers.remove(output)
        runner.take_output()
        runner.close()
        self.on_removed(runner)

    def unregister(self, runner: RunnerHandle) -> None:
        """Stop reading a runner's channel."""
        self._poller.unregister(runner.channel.fileno())

    def leave_by(self, stop_by: int, *, now: bool) -> None:
        """Tell calls, present and future ones, when the worker leaves; with `now`, tell them to
        stop. A later call may change the time, but cannot take either back.
        """
        known, told = self._leaves
        self._leaves = stop_by or known, now or told
        for runner in self.runners.values():
            runner.status.leave_by(self._leaves[0], now=self._leaves[1])

    def give_up(self, why: str) -> None:
        """Run nothing any more, because the fork server is gone."""
        self.broken = why
        self._poller.unregister(self.fork_server.fileno())

    def tick(self, now: float) -> float:
        """Enforce deadlines that have passed (`now` in monotonic seconds), and return after how
        many seconds to call this again.
        """
        lost = now - self._ticked - 2 * _TICK_SECONDS
        if lost > 0:  # this process or the machine was suspended, and perhaps the runners too
            for runner in self.runners.values():
                runner.extend_time_limit(lost)
        grace = self.grace_seconds
        waits = [runner.enforce_deadlines(now, grace) for runner in self.runners.values()]
        timed = min(waits, default=math.inf) < _LONGEST_SECONDS
        self._ticked = now if timed else math.inf
        if timed:
            waits.append(_TICK_SECONDS)
        if self._more > len(self._waiting):
            if now >= self._less_at:
                self._more = len(self._waiting)
                self.assign_queued()
            else:
                waits.append(self._less_at - now)
        if self._ahead and (self.idle or self._may_grow()) and self._holders_of_spare_batches():
            self.assign_queued()
            waits.append(_LOOK_SECONDS)
        return min([_LONGEST_SECONDS, *waits])
