"""The calls of one demand that wait, and the workers that may have them. A part of the core,
sans-I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from gridengine.dispatcher.core.fair_queue import FairQueue
from gridengine.dispatcher.core.model import Phase, SlotGroup, Span, Submitter, Worker
from gridengine.dispatcher.core.policy import spare_of
from gridengine.dispatcher.core.provisioner import Provisioner
from gridengine.resources.demand import ANY, Demand
from gridengine.resources.kinds import WTime

BATCH_SECONDS = 0.1
LEAST_SECONDS = 0.001
AHEAD_SECONDS = 0.05
MOST_RUNS = 1000
MOST_BYTES = 4_000_000


class TaskQueue:
    """A queue of spans, and the seats at workers that they may have, listed by their room.

    `idle` seats have a free slot; those `ahead` may be given what their slots will want next, when
    calls are quick. `hard` and `soft` are how long a call of this demand may take, and how long it
    is counted on to take.
    """

    def __init__(self, provisioner: Provisioner, demand: Demand = ANY) -> None:
        self.provisioner = provisioner
        self.demand = demand
        self.calls = 0
        self.slots = 0
        self.workers = 0
        self.waiting = FairQueue()
        self.idle: dict[SlotGroup, None] = {}
        self.ahead: dict[SlotGroup, None] = {}
        self.hard: float | None = None
        self.soft = 0.0
        self.limit(demand.resources.get(WTime))

    def limit(self, time: WTime | None) -> None:
        """Have calls that are handed out from now on keep to these limits."""
        if time is not None:
            self.hard, self.soft = time.T, time.softT or 0.0

    def join(self, seat: SlotGroup) -> None:
        """Take in a seat."""
        self.slots += seat.slots
        seat.worker.seats.append(seat)

    def leave(self, seat: SlotGroup) -> None:
        """Let a seat go."""
        self.slots -= seat.slots
        seat.worker.seats.remove(seat)
        self.unlist(seat)

    def unlist(self, seat: SlotGroup) -> None:
        """Give a seat nothing."""
        self.idle.pop(seat, None)
        self.ahead.pop(seat, None)

    def place(self, seat: SlotGroup) -> None:
        """List a seat by its room."""
        self.idle.pop(seat, None)
        self.ahead.pop(seat, None)
        share = self.provisioner.policy.jobs_per_worker
        left = None if share is None else share - seat.worker.taken
        if seat.worker.phase is not Phase.READY or (left is not None and left <= 0):
            return
        if seat.batches < seat.slots:
            self.idle[seat] = None
        elif seat.batches < 2 * seat.slots and left is None:
            self.ahead[seat] = None

    def has_time(self, worker: Worker, now: float) -> bool:
        """Return whether a worker will be there for long enough to be given a call; near its end it
        is given none.
        """
        return worker.leave_at - now >= max(self.soft, spare_of(worker.leave_at - worker.since))

    def share_left(self, worker: Worker) -> int | None:
        """Return how many more calls a worker may be given in its life; None is any number."""
        share = self.provisioner.policy.jobs_per_worker
        return None if share is None else max(0, share - worker.taken)

    def put(self, span: Span) -> None:
        """Have calls wait behind all others."""
        self.waiting.append(span)
        self.calls += span.calls

    def put_back(self, span: Span) -> None:
        """Have calls wait before all others."""
        self.waiting.appendleft(span)
        self.calls += span.calls

    def drop(self, which: Callable[[Span], bool]) -> list[Span]:
        """Take such spans out of the queue and return them."""
        return self._dropped(self.waiting.drop(which))

    def take_out(
        self, calls: Mapping[int, tuple[int, int]], submitters: Iterable[Submitter]
    ) -> list[Span]:
        """Take out of the queue what is among these calls of these submitters' tasks and was never
        handed out, and return it.
        """
        return self._dropped(self.waiting.take_out(calls, submitters))

    def _dropped(self, dropped: list[Span]) -> list[Span]:
        self.calls -= sum(span.calls for span in dropped)
        return dropped

    def next_seat(self) -> SlotGroup | None:
        """Return who may be given work now. Who came last is first: if there is too little for all,
        those before it may leave.
        """
        if not self.waiting:
            return None
        if self.idle:
            return next(reversed(self.idle))
        if self.ahead and may_go_ahead(self.waiting.first()):
            return next(reversed(self.ahead))
        return None

    def next_spans(self, worker: Worker) -> list[Span]:
        """Take what is a sensible piece of work for one runner: calls of one function, of the
        submitter whose turn it is.
        """
        submitter, queue = self.waiting.begin_turn()
        function, attempt = queue[0].open.function, queue[0].attempt
        room = self._sensible_calls(queue[0].open.pace.seconds) if attempt == 1 else 1
        left = self.share_left(worker)
        room = room if left is None else min(room, left)
        spans: list[Span] = []
        size = 0
        while queue and room and size <= MOST_BYTES and len(spans) < MOST_RUNS:
            span = queue[0]
            if span.open.function is not function or span.attempt != attempt:
                break
            calls = span.stop - span.start
            if calls > room:
                queue[0] = replace(span, start=span.start + room)
                span, calls = replace(span, stop=span.start + room), room
            else:
                queue.popleft()
            self.calls -= calls
            room -= calls
            size += sum(map(len, span.open.task.payload))
            spans.append(span)
        self.waiting.end_turn(submitter)
        return spans

    def _sensible_calls(self, seconds: float | None) -> int:
        """How many calls make one batch: what takes `BATCH_SECONDS`; less to leave work for every
        slot, but no less than pays the message.

        One when nothing is known yet.
        """
        if seconds is None:
            return 1
        seconds = max(seconds, 1e-9)
        if seconds > BATCH_SECONDS:
            return 1
        share = -(-self.calls // (2 * max(self.slots, 1)))
        return max(1, min(max(share, int(LEAST_SECONDS / seconds)), int(BATCH_SECONDS / seconds)))

    @property
    def size(self) -> int:
        """How many workers there are, or are asked for."""
        return self.workers + len(self.provisioner.expected) + self.provisioner.asked

    def is_spent(self, now: float) -> bool:
        """Return whether a queue with workers of its own has neither calls nor workers, and nothing
        to remember.
        """
        return (
            not (self.waiting or self.size or self.provisioner.started)
            and now >= self.provisioner.ask_again_at
        )


def may_go_ahead(span: Span) -> bool:
    """Return whether calls are quick enough to be given to a worker before it has room for them."""
    seconds = span.open.pace.seconds
    return seconds is not None and seconds < AHEAD_SECONDS and span.attempt == 1
