"""The calls of one demand that wait, and the workers that may have them. A part of the core, sans-I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from gridengine.events import Effect
from gridengine.fleet import Fleet
from gridengine.work import Known, Phase, Span, Worker

BATCH_SECONDS = 0.025
LEAST_SECONDS = 0.001
AHEAD_SECONDS = 0.05
MOST_RUNS = 1000
MOST_BYTES = 4_000_000


class WorkerPool:
    """A queue of spans, and the workers listed by their room.

    `idle` workers have a free slot; those `ahead` may be given what their slots will want next, when calls are quick.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.calls = 0
        self.slots = 0
        self.workers = 0
        self.waiting: deque[Span] = deque()
        self.idle: dict[bytes, Worker] = {}
        self.ahead: dict[bytes, Worker] = {}

    def join(self, worker: Worker) -> None:
        """Take in a worker."""
        self.slots += worker.hello.slots
        self.workers += 1

    def leave(self, worker: Worker) -> None:
        """Let a worker go."""
        self.slots -= worker.hello.slots
        self.workers -= 1
        self.idle.pop(worker.id, None)
        self.ahead.pop(worker.id, None)

    def place(self, worker: Worker) -> None:
        """List a worker by its room."""
        self.idle.pop(worker.id, None)
        self.ahead.pop(worker.id, None)
        left = self.share_left(worker)
        if worker.phase is not Phase.READY or left == 0:
            return
        if worker.batches < worker.hello.slots:
            self.idle[worker.id] = worker
        elif worker.batches < 2 * worker.hello.slots and left is None:
            self.ahead[worker.id] = worker

    def share_left(self, worker: Worker) -> int | None:
        """Return how many more calls a worker may be given in its life; None is any number."""
        share = self.fleet.policy.jobs_per_worker
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
        kept: deque[Span] = deque()
        dropped: list[Span] = []
        for span in self.waiting:
            (dropped if which(span) else kept).append(span)
        self.waiting = kept
        self.calls -= sum(span.calls for span in dropped)
        return dropped

    def next_worker(self) -> Worker | None:
        """Return who may be given work now. Who came last is first: if there is too little for all, those before it may leave."""
        if not self.waiting:
            return None
        if self.idle:
            return self.idle[next(reversed(self.idle))]
        if self.ahead and self._may_go_ahead(self.waiting[0]):
            return self.ahead[next(reversed(self.ahead))]
        return None

    def _may_go_ahead(self, span: Span) -> bool:
        seconds = span.open.function.seconds
        return seconds is not None and seconds < AHEAD_SECONDS and span.attempt == 1

    def next_spans(self, worker: Worker) -> Iterator[Span]:
        """Take from the front of the queue what is a sensible piece of work for one runner: calls of one function."""
        function, attempt = self.waiting[0].open.function, self.waiting[0].attempt
        room = self._sensible_calls(function) if attempt == 1 else 1
        left = self.share_left(worker)
        room = room if left is None else min(room, left)
        size = 0
        for _ in range(MOST_RUNS):
            span = self.waiting.popleft()
            if span.calls > room:
                self.waiting.appendleft(replace(span, start=span.start + room))
                span = replace(span, stop=span.start + room)
            self.calls -= span.calls
            room -= span.calls
            size += sum(map(len, span.open.task.payload))
            yield span
            follows = self.waiting and self.waiting[0].open.function is function and self.waiting[0].attempt == attempt
            if not room or size > MOST_BYTES or not follows:
                return

    def _sensible_calls(self, function: Known) -> int:
        """How many calls make one batch: what takes `BATCH_SECONDS`; less to leave work for every slot, but no less than pays the message.

        One when nothing is known yet.
        """
        if function.seconds is None:
            return 1
        share = -(-self.calls // (2 * max(self.slots, 1)))
        seconds = max(function.seconds, 1e-9)
        return max(1, min(max(share, int(LEAST_SECONDS / seconds)), int(BATCH_SECONDS / seconds)))

    @property
    def size(self) -> int:
        """How many workers there are, or are asked for."""
        return self.workers + len(self.fleet.expected) + self.fleet.asked

    def scale(self, now: float, *, others: int) -> list[Effect]:
        """Ask for more workers, or withdraw some, as the queue says; `others` is the size of all other pools."""
        idle = len(self.idle)
        return self.fleet.scale(now, calls_waiting=self.calls, workers_busy=self.workers - idle, workers_idle=idle, others=others)
