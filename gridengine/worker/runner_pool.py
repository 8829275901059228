"""The runners of a worker, and the batches that wait for them: who is given what, and when a runner
is started or ended.
"""

from __future__ import annotations

import logging
import math
import os
import signal
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from gridengine.errors import ProtocolError
from gridengine.serialize.payload import Buffer, Payload
from gridengine.wire.channel import Channel
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.messages import (
    CANCELLED,
    Allocate,
    Assign,
    Assignment,
    Message,
    large_inputs,
)
from gridengine.wire.open_files import allow_one_more_runner
from gridengine.worker.batch_queue import AssignedRun, Batch, BatchQueue, take_out
from gridengine.worker.definition_store import DefinitionStore
from gridengine.worker.forkserver import ForkServer
from gridengine.worker.memory_limit import data_bytes
from gridengine.worker.output import OutputReaders
from gridengine.worker.output_relay import Relay, RunOutput
from gridengine.worker.poller import Poller
from gridengine.worker.runner_handle import (
    ANYWHERE,
    Place,
    RunnerAllocation,
    RunnerHandle,
)

log = logging.getLogger("gridengine")

NOTHING = Allocate(0, buffers=0)
"""What calls that ask for nothing are given."""
MOST_AHEAD_BYTES = 1 << 20
"""Of larger batches none is given ahead: what is ahead is kept here too."""
_TICK_SECONDS = 0.5
"""While a call has a time limit `tick` wants to be called at least that often; when it comes twice
as late this process was stopped.
"""
_LOOK_SECONDS = 0.05
_KEPT_SECONDS = 1.0
"""For so long runners that took the place of calls that waited are kept: the next may wait soon."""


class Connected(Protocol):
    """What has a channel to a runner; `stalled` is whether it has more to send than it takes."""

    channel: Channel
    stalled: bool


class RunnerPool:
    """Up to `slots` runners and their work. A runner has one batch at a time and, while there are
    more than runners, the next one ahead: so it need not wait between the two. One whose call waits
    for calls that it has made takes no slot.

    Args:
        fork_server: where runners are forked.
        poller: calls `on_readable`.
        definitions: what runners are sent before they need it.
        readers: read what runners print.
        on_readable: called with a runner when there is something to read from its channel.
        spare: how many runners with nothing to do are kept.
        grace_seconds: between the signal that asks a runner to end and SIGKILL.
        output_bytes: how much of each of a watched run's standard output and error is kept.
        relay: where what watched runs write is passed on to, too, or alone.
        clock: the agent's.
    """

    def __init__(
        self,
        fork_server: ForkServer,
        poller: Poller,
        definitions: DefinitionStore,
        readers: OutputReaders,
        on_readable: Callable[[RunnerHandle], None],
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
        self._on_readable = on_readable
        self._slots = slots
        self._spare = spare
        self.grace_seconds = grace_seconds
        self._output_bytes = output_bytes
        self._relay = relay
        self._queue = BatchQueue()
        """The batches of calls that ask for nothing."""
        self._allocations: dict[int, RunnerAllocation] = {}
        self.runners: dict[int, RunnerHandle] = {}
        self.idle: list[RunnerHandle] = []
        self._ahead: dict[int, RunnerHandle] = {}
        """Those that were given a batch ahead, and may have it still."""
        self._leaving: set[int] = set()
        """The runners that were ended while they had nothing to do, to make room."""
        self._waiting: set[int] = set()
        """The runners whose calls wait for others."""
        self._more = 0
        """How many runners there may be besides: as many as have waited lately."""
        self._less_at = 0.0
        self.on_removed: Callable[[RunnerHandle], object] = lambda runner: None
        """Called with each runner that is no more."""
        self._last_id = 0
        self._ticked = math.inf
        self.broken = ""
        """Why nothing can be run any more; empty while it can."""

    # What there is to do

    def allocate(self, message: Allocate, payload: Payload) -> None:
        """Add an allocation; its numbers are the machine's own."""
        self._allocations[message.allocation] = RunnerAllocation(message, payload)

    def allocations(self) -> list[int]:
        return list(self._allocations)

    def release(self, allocations: list[int]) -> None:
        """Forget allocations; nothing more will be assigned to them."""
        for number in allocations:
            self._allocations.pop(number, None)
        self.assign_queued()

    def enqueue(self, batch: Batch, allocation: int) -> None:
        """Have a batch run.

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
        """Have runs that a runner was given, and has not begun, wait before all others."""
        if batch:
            self._queue_of(runner).appendleft(deque(batch))
            self.assign_queued()

    def _queue_of(self, runner: RunnerHandle) -> BatchQueue:
        return self._queue if runner.allocation is None else runner.allocation.queue

    def take_queued(self, runs: set[int]) -> list[int]:
        """Take these runs out of what waits for a runner; return those that did."""
        queues = [self._queue, *(one.queue for one in self._allocations.values())]
        taken = [run for queue in queues for run in queue.take_out(runs)]
        for runner in self.runners.values():
            taken += take_out(runner.backlog, runs)
        return taken

    def take_all_queued(self) -> list[int]:
        """Take out all that waits for a runner; return its runs."""
        queues = [self._queue, *(one.queue for one in self._allocations.values())]
        taken = [assignment.run for queue in queues for batch in queue for assignment, _ in batch]
        for queue in queues:
            queue.clear()
        return taken

    def clear(self) -> None:
        """Drop what waits."""
        self._queue.clear()
        self._allocations.clear()

    # Work to runners

    def assign_queued(self) -> None:
        """Give what waits to runners that have nothing to do, or can be had; and one batch each to
        those that are busy.
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
        while self._queue and (not self._allocations or self._has_plain_slot()):
            if not self._begin(None, self._queue):
                lacking += 1
                break
        if lacking and any(runner.is_skipping for runner in self.idle):
            lacking = 0  # and soon they can begin it
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
        """Whether there may be one more runner."""
        return len(self.runners) < self._slots + self._more

    def _has_plain_slot(self) -> bool:
        """Whether the allocations leave a slot for calls that ask for nothing."""
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
        """Give to runners that have nothing to do the batches that others were given ahead."""
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
        """Give the first batch of a queue to a runner; return whether there was one for it."""
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
        """Return a runner there with nothing to do that can begin this run.

        One that has loaded what has changed is ended, and one whose heap has grown by half of a
        memory limit: it has too little left.
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
        self.runners[runner.id] = runner
        self._poller.register(runner.channel.fileno(), partial(self._on_readable, runner))
        for output in runner.outputs:
            self._readers.add(output)
        for name in self._definitions.shared():
            self.define_to(runner, name)
        return runner

    def stop_growing(self, number: int) -> None:
        """Go on with the runners there are when the system gives no more, for this error."""
        self._more = len(self._waiting)
        self._slots = len(self.runners) - self._more
        if not self._slots:
            self.broken = f"no runner can be started: {os.strerror(number)}"
        else:
            log.warning(
                "no more than %d processes can be started (%s): what else is to run waits for them",
                self._slots,
                os.strerror(number),
            )

    def _give_backlog(self, runner: RunnerHandle) -> None:
        """Give a runner the next of its batch. A watched run goes alone, so that what is written
        meanwhile is its own.
        """
        backlog = runner.backlog
        portion = deque([backlog.popleft()])
        watched = portion[0][0].watched
        while backlog and not watched and not backlog[0][0].watched:
            portion.append(backlog.popleft())
        if watched:
            relay, run = self._relay, portion[0][0].run
            runner.keep_output(
                self._output_bytes,
                [] if relay is None else [RunOutput(relay, run, stream) for stream in (1, 2)],
            )
        self._give(runner, portion)

    def _give_ahead(self, runner: RunnerHandle, queue: BatchQueue) -> None:
        """Give a busy runner the first batch of a queue as its next, where that can do no harm."""
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
        """Send a runner the definition of a function or a shared object, once."""
        if name not in runner.defined:
            runner.defined.add(name)
            self.send(runner, *self._definitions.messages[name])

    def send(self, runner: Connected, message: Message, payload: Payload = ()) -> None:
        """Send a runner a message; never waits."""
        if runner.channel.send(message, payload) is runner.stalled:
            self.note_stall(runner, stalled=not runner.stalled)

    def note_stall(self, runner: Connected, *, stalled: bool) -> None:
        """Be called when a full channel takes more."""
        if stalled != runner.stalled and not runner.channel.ended:
            runner.stalled = stalled
            self._poller.poll_writable(runner.channel.fileno(), stalled)

    # What becomes of runners

    def end_run(self, runner: RunnerHandle, run: int) -> None:
        """Note that a runner has a run no more, and give it the next batch ahead."""
        runner.forget(run)
        if run == runner.waits_in:
            self.end_waiting(runner, 0)
        if runner.given and not runner.ahead and (queue := self._queue_of(runner)):
            self._give_ahead(runner, queue)

    def go_on(self, runner: RunnerHandle) -> None:
        """When a runner has done all it was given: give it the next, or end it if that was asked
        for.
        """
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
        """Note that a call of this run waits for others: the runner takes no slot."""
        runner.waits_in = run
        self._waiting.add(runner.id)
        self._more = max(self._more, len(self._waiting))
        runner.leave_allocation()

    def end_waiting(self, runner: RunnerHandle, allocation: int) -> RunnerAllocation | None:
        """Have a runner go on whose call has waited, in this allocation (0: none); return that if
        it has to be told of it.

        Raises:
            ProtocolError: there is no such allocation.
        """
        runner.waits_in = 0
        self._waiting.discard(runner.id)
        self._less_at = self._clock.monotonic() + _KEPT_SECONDS
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
        """Forget a runner that is no more."""
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
        """Read no more from a runner's channel."""
        self._poller.unregister(runner.channel.fileno())

    def give_up(self, why: str) -> None:
        """Run nothing any more: the fork server is gone."""
        self.broken = why
        self._poller.unregister(self.fork_server.fileno())

    def tick(self, now: float) -> float:
        """End what is due (`now` in monotonic seconds), and return after how many seconds to be
        called again.
        """
        lost = now - self._ticked - 2 * _TICK_SECONDS
        if lost > 0:  # this process was stopped, or the machine was, and perhaps the runners too
            for runner in self.runners.values():
                runner.extend_time_limit(lost)
        grace = self.grace_seconds
        waits = [runner.enforce_deadlines(now, grace) for runner in self.runners.values()]
        timed = min(waits, default=math.inf) < 3600.0
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
        return min([3600.0, *waits])
