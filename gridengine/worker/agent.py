"""The worker's own part: takes batches of work, hands them to runners, sends on what they answer,
and sees what becomes of them.

It knows no transport and never waits: a loop gives it messages (`handle`), says when something can
be read (`fileno`, `on_ready`) and that time has passed (`tick`); it speaks by the function it was
given.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from gridengine._version import __version__
from gridengine.errors import ProtocolError
from gridengine.serialize.payload import Payload
from gridengine.serialize.shared_memory import Block, StoredPayload, store
from gridengine.wire.messages import (
    CANCELLED,
    VERSION,
    Allocate,
    Assign,
    Cancel,
    Define,
    Forget,
    Hello,
    Message,
    OutputTaken,
    Recall,
    Release,
    Reload,
    Returned,
    portions,
)
from gridengine.wire.open_files import allow_one_more_runner
from gridengine.worker import parent_requests, runner_messages
from gridengine.worker.affinity import Processors
from gridengine.worker.forkserver import ForkServer
from gridengine.worker.memory_limit import KillCounter, data_of
from gridengine.worker.multiprocessing_server import elsewhere
from gridengine.worker.output import Outlets, Taps
from gridengine.worker.output_relay import Relay, RunOutput
from gridengine.worker.runner_handle import (
    NOWHERE,
    Allocation,
    AssignedRun,
    RunnerAllocation,
    RunnerHandle,
)

log = logging.getLogger("gridengine")

PLAIN = Allocate(0, buffers=0)
"""What calls that ask for nothing are given."""
_LOG_SECONDS = 1.0
"""How long a crash is not told while the worker's log takes nothing."""
_TICK_SECONDS = 0.5
"""While a call has a time limit the agent looks at least that often; when it comes twice as late it
was stopped.
"""


class Agent:
    """Runs assignments on up to `slots` runners, each a process of its own.

    Args:
        send: is given each message for the dispatcher, with its buffers; must not block.
        nursery: where runners are forked; the agent closes it.
        spare: how many runners with nothing to do are kept (default: all).
        grace_seconds: between the signal that asks a runner to end and SIGKILL.
        output_bytes: how much of each of a watched run's standard output and error is kept.
        outlets: where what runners write is passed on to; whoever gave them closes them.
        relay: where what watched runs write is passed on to, too.
        answer: answers what runners ask.
    """

    def __init__(
        self,
        send: Callable[[Message, Payload], None],
        fork_server: ForkServer,
        *,
        slots: int,
        spare: int | None = None,
        grace_seconds: float,
        output_bytes: int,
        outlets: Outlets,
        relay: Relay | None = None,
        answer: Callable[[bytes], parent_requests.Answer] = elsewhere,
    ) -> None:
        self.send = send
        self.fork_server = fork_server
        self._slots = slots
        self._spare = slots if spare is None else spare
        self._grace_seconds = grace_seconds
        self._output_bytes = output_bytes
        self._outlets = outlets
        self._relay = relay
        self._taps = Taps(outlets, self._watch, self.unwatch)
        self._functions: dict[bytes, tuple[Define, Payload]] = {}
        self._blocks: dict[bytes, Block] = {}
        """Where the large buffers of functions and shared objects are; open as long as a runner may
        want to map them.
        """
        self._queue: deque[deque[AssignedRun]] = deque()
        """The batches of calls that ask for nothing."""
        self._allocations: dict[int, RunnerAllocation] = {}
        self._processors = Processors(slots)
        self.hands: dict[int, RunnerHandle] = {}
        self.idle: list[RunnerHandle] = []
        self._leaving: set[int] = set()
        """The runners that were ended while they had nothing to do, to make room."""
        self._last_id = 0
        self.stillborn = 0
        self.kills = KillCounter()
        self._ticked = math.inf
        self._epoll = select.epoll()
        self._ready: dict[int, Callable[[int], None]] = {}
        self._answer = answer
        self._watch(fork_server.fileno(), partial(runner_messages.hear_nursery, self))
        self._watch(fork_server.questions.fileno(), self._hear_questions)
        self.broken = ""
        """Why this agent can run nothing any more; empty while it can."""

    def fileno(self) -> int:
        """Return a descriptor that polls as readable when `on_ready` has something to do."""
        return self._epoll.fileno()

    def handle(self, message: Message, buffers: Payload = ()) -> None:
        """Act on a message of the dispatcher.

        Raises:
            ProtocolError: it is none that an agent understands, or it uses a function that was not
            defined.
        """
        handler = HANDLERS.get(type(message))
        if handler is None:
            raise ProtocolError(f"an agent understands no {type(message).__name__}")
        handler(self, message, buffers)

    def on_ready(self) -> None:
        """Read and write what can be without waiting."""
        for fd, events in self._epoll.poll(0):
            if fd in self._ready:
                self._ready[fd](events)

    def tick(self, now: float) -> float:
        """End what is due (`now` in monotonic seconds), and return after how many seconds to be
        called again.
        """
        self.kills.look(now)
        lost = now - self._ticked - 2 * _TICK_SECONDS
        if (
            lost > 0
        ):  # this process was stopped, or the machine was, and perhaps the runners with it
            for hand in self.hands.values():
                hand.excuse(lost)
        waits = [3600.0, *[hand.press(now, self._grace_seconds) for hand in self.hands.values()]]
        timed = any(math.isfinite(wait) and wait < 3600.0 for wait in waits[1:])
        self._ticked = now if timed else math.inf
        if timed:
            waits.append(_TICK_SECONDS)
        return min(*waits, self._taps.tick(now))

    def finish_log(self) -> None:
        """Have what runners wrote in this worker's log, if it has one: whoever is told of a crash
        may read there at once.
        """
        if self._relay is not None:
            self._outlets.flush(_LOG_SECONDS)

    def finish_background(self) -> None:
        """Before it is closed: let threads that calls have left running in runners without work end
        theirs, within the grace time.
        """
        dismissed = [hand for hand in self.idle if hand.background]
        if not dismissed:
            return
        self._queue.clear()
        self._allocations.clear()
        deadline = time.monotonic() + self._grace_seconds
        for hand in dismissed:
            hand.dismiss(math.inf)
        while not self.broken and any(hand.id in self.hands for hand in dismissed):
            left = deadline - time.monotonic()
            if left <= 0:
                log.warning(
                    "threads that calls have left running go on for more than %g s, and are cut "
                    "off",
                    self._grace_seconds,
                )
                return
            self._epoll.poll(left)
            self.on_ready()

    def close(self) -> None:
        """End all runners and what they left behind; send what they had answered before. May be
        called twice.
        """
        self.fork_server.close()
        for hand in list(self.hands.values()):
            runner_messages.hear_last_words(self, hand)
            self.remove(hand)
        self._epoll.close()
        for kept in (self._functions, self._blocks, self._ready):
            kept.clear()  # whoever still refers to this agent, it itself first, wants no data of it
        self._processors.close()

    # What the dispatcher says

    def _define(self, message: Define, buffers: Payload) -> None:
        payload = store(buffers, whole=message.shared)
        if isinstance(payload, StoredPayload):
            others = payload.others()
            message = msgspec.structs.replace(
                message, buffers=len(others), block=payload.block.path, places=payload.places
            )
            self._blocks[message.function], payload = payload.block, others
        self._functions[message.function] = message, payload
        if message.shared:
            for hand in self.hands.values():
                self._define_to(hand, message.function)

    def _define_to(self, hand: RunnerHandle, name: bytes) -> None:
        """Tell a runner what it needs to know of a function or a shared object."""
        if name not in hand.defined:
            hand.defined.add(name)
            self._tell(hand, *self._functions[name])

    def _forget(self, message: Forget, buffers: Payload) -> None:
        for digest in message.functions:
            self._functions.pop(digest, None)
            self._blocks.pop(digest, None)
        for hand in self.hands.values():
            if not hand.defined.isdisjoint(message.functions):
                hand.defined.difference_update(message.functions)
                self._tell(hand, message)

    def _reload(self, message: Reload, buffers: Payload) -> None:
        for hand in self.hands.values():
            hand.outdated = hand.outdated or bool(hand.defined)

    def _assign(self, message: Assign, buffers: Payload) -> None:
        for assignment in message.assignments:
            if assignment.function not in self._functions:
                raise ProtocolError(f"run {assignment.run} uses a function that was not defined")
        if message.allocation and message.allocation not in self._allocations:
            raise ProtocolError(f"allocation {message.allocation} is not this worker's")
        queue = self._allocations[message.allocation].queue if message.allocation else self._queue
        queue.append(deque(portions(message.assignments, buffers)))
        self.hand_out()

    def _lend(self, message: Allocate, buffers: Payload) -> None:
        self._allocations[message.allocation] = RunnerAllocation(
            self._processors.actual(message), buffers
        )

    def _take_back(self, message: Release, buffers: Payload) -> None:
        for number in message.allocations:
            self._allocations.pop(number, None)
        self.hand_out()

    def _cancel(self, message: Cancel, buffers: Payload) -> None:
        runs = set(message.runs)
        for run in self._take_out(runs):
            runner_messages.send_cancelled(self, run, message.signal)
        for hand in list(self.hands.values()):
            asked = [run for run in hand.given if run in runs]
            if asked:
                self._cancel_given(hand, asked, message.signal)

    def _take_out(self, runs: set[int]) -> list[int]:
        """Take these runs out of what waits for a runner; return those that did."""
        taken: list[int] = []
        allocations = itertools.chain.from_iterable(
            allocation.queue for allocation in self._allocations.values()
        )
        for waiting in [
            *self._queue,
            *allocations,
            *(hand.backlog for hand in self.hands.values()),
        ]:
            dropped = [assignment.run for assignment, _ in waiting if assignment.run in runs]
            if dropped:
                kept = [work for work in waiting if work[0].run not in runs]
                waiting.clear()
                waiting.extend(kept)
                taken += dropped
        return taken

    def _recall(self, message: Recall, buffers: Payload) -> None:
        runs = set(message.runs)
        back = self._take_out(runs)
        for hand in self.hands.values():
            later, shortened = hand.take_back(runs)
            back += later
            if shortened is not None:
                self.send(shortened, ())
        if back:
            self.send(Returned(back), ())

    def _output_taken(self, message: OutputTaken, buffers: Payload) -> None:
        if self._relay is not None:
            self._relay.taken(message.size)

    def _cancel_given(self, hand: RunnerHandle, asked: Sequence[int], number: int) -> None:
        """End runs that a runner has. Held first, it cannot get from one of them into another that
        is innocent while it is being killed.
        """
        hand.cancelled.update(dict.fromkeys(asked, number))
        if hand.ending is not None:
            if number == signal.SIGKILL and hand.run in hand.cancelled:
                hand.kill()
            return
        hand.hold()
        if hand.run in hand.cancelled:
            hand.end(CANCELLED, number, time.monotonic() + self._grace_seconds)
        else:
            self._tell(hand, Cancel(list(asked), number))

    # Work to runners

    def hand_out(self) -> None:
        """Give what waits to runners that have nothing to do, or can be had."""
        if self.broken:
            return
        lacking = 0
        for allocation in self._allocations.values():
            lacking += (
                allocation.hand is None
                and bool(_first(allocation.queue))
                and not self._begin(allocation, allocation.queue)
            )
        plain = self._slots - sum(
            allocation.lend.takes for allocation in self._allocations.values()
        )
        while _first(self._queue) and (not self._allocations or self._plain_busy() < plain):
            if not self._begin(None, self._queue):
                lacking += 1
                break
        while self.idle and (lacking > len(self._leaving) or len(self.idle) > self._spare):
            self._end_idle(self.idle.pop(0))

    def _plain_busy(self) -> int:
        idle = set(map(id, self.idle))
        return sum(
            hand.allocation is None and hand.id not in self._leaving and id(hand) not in idle
            for hand in self.hands.values()
        )

    def _begin(self, allocation: RunnerAllocation | None, queue: deque[deque[AssignedRun]]) -> bool:
        """Give the first batch of a queue to a runner; return whether there was one for it."""
        place = NOWHERE if allocation is None else allocation.place
        hand = self._idle_hand(place, queue[0][0][0].memory) or self._new_hand(place)
        if hand is None:
            return False
        hand.allocation = allocation
        if allocation is not None:
            allocation.hand = hand
        lend, payload = (PLAIN, ()) if allocation is None else (allocation.lend, allocation.payload)
        if hand.lent != lend.allocation:
            hand.lent = lend.allocation
            self._tell(hand, lend, payload)
        hand.backlog = queue.popleft()
        self.feed(hand)
        return True

    def _idle_hand(self, place: Allocation, memory: int) -> RunnerHandle | None:
        """Return a runner there with nothing to do.

        One that has loaded what has changed is ended, and one whose heap has grown by half of a
        memory limit: it has too little left.
        """
        for hand in reversed([hand for hand in self.idle if hand.place == place]):
            self.idle.remove(hand)
            if not hand.outdated and (
                not memory or data_of(hand.pid) - hand.fresh_data <= memory // 2
            ):
                return hand
            self._end_idle(hand)
        return None

    def _end_idle(self, hand: RunnerHandle) -> None:
        self._leaving.add(hand.id)
        kill_at = time.monotonic() + self._grace_seconds
        if hand.background:
            hand.dismiss(kill_at)
        else:
            hand.end(CANCELLED, signal.SIGTERM, kill_at)

    def _new_hand(self, place: Allocation) -> RunnerHandle | None:
        if len(self.hands) >= self._slots:
            return None
        self._last_id += 1
        allow_one_more_runner(len(self.hands))
        try:
            hand = RunnerHandle(self._last_id, self.fork_server, self._outlets, place)
        except OSError as error:
            self.make_do(error.errno or 0)
            return None
        self.hands[hand.id] = hand
        self._watch(hand.channel.fileno(), partial(runner_messages.hear_runner, self, hand))
        for tap in hand.taps:
            self._taps.read(tap)
        for name in [name for name, (message, _) in self._functions.items() if message.shared]:
            self._define_to(hand, name)  # calls name what they need only to those who unpickle them
        return hand

    def make_do(self, number: int) -> None:
        """Go on with the runners there are when the system gives no more."""
        self._slots = len(self.hands)
        if not self.hands:
            self.broken = f"no runner can be started: {os.strerror(number)}"
        else:
            log.warning(
                "no more than %d processes can be started (%s): what else is to run waits for them",
                self._slots,
                os.strerror(number),
            )

    def feed(self, hand: RunnerHandle) -> None:
        """Give a runner the next of its batch. A watched run goes alone, so that what is written
        meanwhile is its own.
        """
        portion: list[AssignedRun] = []
        while hand.backlog and not (
            portion and (hand.backlog[0][0].watched or portion[0][0].watched)
        ):
            portion.append(hand.backlog.popleft())
        for assignment, _ in portion:
            self._define_to(hand, assignment.function)
        hand.given = {assignment.run: assignment for assignment, _ in portion}
        if portion[0][0].watched:
            relay, run = self._relay, portion[0][0].run
            hand.keep_output(
                self._output_bytes,
                [] if relay is None else [RunOutput(relay, run, stream) for stream in (1, 2)],
            )
        self._tell(
            hand,
            Assign([assignment for assignment, _ in portion]),
            [buffer for _, payload in portion for buffer in payload],
        )

    def _tell(self, hand: RunnerHandle, message: Message, buffers: Payload = ()) -> None:
        self.mind_stall(hand, stalled=not hand.channel.send(message, buffers))

    def mind_stall(self, hand: RunnerHandle, *, stalled: bool) -> None:
        """Be woken when a full channel takes more."""
        if stalled != hand.stalled and not hand.channel.ended:
            hand.stalled = stalled
            self._epoll.modify(
                hand.channel.fileno(), select.EPOLLIN | (select.EPOLLOUT if stalled else 0)
            )

    # What runners say

    def _hear_questions(self, events: int) -> None:
        if not parent_requests.reply(self.fork_server.questions, self._answer):
            self.unwatch(self.fork_server.questions.fileno())

    @staticmethod
    def leave_lane(hand: RunnerHandle) -> None:
        """Note that a runner has done its batch."""
        if hand.allocation is not None:
            hand.allocation.hand = None
            hand.allocation = None

    def remove(self, hand: RunnerHandle) -> None:
        """Forget a runner that is no more."""
        self.leave_lane(hand)
        self._leaving.discard(hand.id)
        del self.hands[hand.id]
        if hand in self.idle:
            self.idle.remove(hand)
        self.unwatch(hand.channel.fileno())
        for tap in hand.taps:
            self._taps.remove(tap)
        hand.take_output()
        hand.close()

    # Descriptors

    def _watch(self, fd: int, handler: Callable[[int], None]) -> None:
        self._epoll.register(fd, select.EPOLLIN)
        self._ready[fd] = handler

    def unwatch(self, fd: int) -> None:
        """Do not look whether a descriptor is ready any more."""
        if self._ready.pop(fd, None) is not None:
            self._epoll.unregister(fd)


def _first(queue: deque[deque[AssignedRun]]) -> bool:
    """Return whether there is a batch to begin; those of which all was taken out are dropped."""
    while queue and not queue[0]:
        queue.popleft()
    return bool(queue)


def introduce(*, run_id: str, slots: int, pid: int, log: str, elapsed: float = 0.0) -> Hello:
    """Return the first word of a worker in this process, whose cluster job has run for `elapsed`
    seconds.
    """
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Hello(
        VERSION,
        __version__,
        python,
        run_id,
        socket.gethostname(),
        pid,
        slots,
        log,
        max(0.0, elapsed),
    )


HANDLERS: dict[type, Callable[[Agent, Any, Payload], None]] = {
    Define: Agent._define,
    Forget: Agent._forget,
    Reload: Agent._reload,
    Allocate: Agent._lend,
    Release: Agent._take_back,
    Assign: Agent._assign,
    Cancel: Agent._cancel,
    Recall: Agent._recall,
    OutputTaken: Agent._output_taken,
}
