"""Queues, workers and runs as the core keeps them; they refer to each other."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from gridengine.dispatcher.core.calls import AwaitedResult, OpenTask, Span
from gridengine.dispatcher.core.fair_queue import PLAIN, FairQueue, TaskBlock, first_of
from gridengine.dispatcher.core.figures import Growth
from gridengine.dispatcher.core.policy import spare_of
from gridengine.dispatcher.core.provisioner import LaunchedWorker, Provisioner
from gridengine.dispatcher.core.states import READY, Phase
from gridengine.resources.base import Resource
from gridengine.resources.demand import ANY, Demand
from gridengine.resources.kinds import WTime
from gridengine.wire.messages import Hello, Measured

BATCH_SECONDS = 0.1
LEAST_SECONDS = 0.001
AHEAD_SECONDS = 0.05
MOST_RUNS = 1000
MOST_BYTES = 4_000_000


class Batch(Struct, gc=False):
    """What one runner is given at a time: how many of its runs have not ended, and its load, its
    part in the share of its submitter.

    The load of quick calls is half as large: half of their batches wait behind others at their
    workers. `answered_at`: when its last result came, or when it began; None while it waits at the
    worker. `waiting`: a call of it waits for calls that it has made, and it has no slot.
    """

    runs: int = 0
    load: int = 2
    answered_at: float | None = None
    waiting: bool = False


@dataclass(slots=True, eq=False)
class SlotGroup:
    """What a queue has of a worker: room for `slots` batches at a time.

    `allocation` is the number of the allocation that the worker knows, 0 for calls that ask for
    nothing; `packed` are the packer's numbers of what was allocated for these slots, where requests
    share the workers. `late` of its runs take longer than was thought. `listed`: the list of its
    queue that it is in, None while it may be assigned nothing.
    """

    worker: Worker
    queue: TaskQueue
    slots: int
    allocation: int = 0
    batches: int = 0
    late: int = 0
    packed: list[int] = field(default_factory=list)
    listed: dict[SlotGroup, None] | None = None


class Run(Struct):
    """A span that a worker was assigned; the calls before `done` are settled.

    `since`: when it was assigned, or began; `touched`: when its last result came, or it was
        recalled; `recalled`: whether it was recalled; `late`: whether it takes longer than was
        thought;
    `limit`: the seconds that each of its calls may take, None when nothing limits them;
    `children`: the tasks that are to end with it, None while there have been none.
    """

    number: int
    span: Span
    slot_group: SlotGroup
    batch: Batch
    done: int
    since: float
    touched: float
    limit: float | None = None
    recalled: bool = False
    late: bool = False
    children: dict[int, None] | None = None

    @property
    def worker(self) -> Worker:
        """The worker that it was assigned to."""
        return self.slot_group.worker

    @property
    def rest(self) -> Span:
        """The calls that are not settled."""
        return replace(self.span, start=self.done)


@dataclass(slots=True, eq=False)
class Worker:
    """A worker that is connected.

    `open`: whether its slots may be given to queues. `calls`: how many it has that have not ended.
    `taken`: how many calls it was assigned in its
    life. `fruitless`: how often in a row it gave work back and did none. `since`: when it
    connected. `held`: what it holds, None where that is what the scheduler's own do. `leave_at`:
    when it is to leave, before its walltime is over. `blamed_runs`: of one that said goodbye, the
    runs that may be to blame; `knows_begun`: whether it said what had begun. `exit_reason`: what it
    said, until the batch system says how it ended. `generation`: of the caller's modules, the last
    that it was told of. `waiting`: how many of its batches do, for calls that they have made;
    `floor`: its free slots are kept for calls inside of more others than so many; `resuming`: the
    runs that ask for their slots, with who asks; `withheld`: nothing is assigned to it before these
    have them. `absent`: a dispatcher before this one knew it, and it has not come back yet;
    `to_release`: the allocations that it came back with, while its slots are not given out for what
    runs there. `draining`: nothing more is assigned to it, and it leaves when what it has is done.
    `measured`: what it has said last of its load and memory.
    """

    id: bytes
    hello: Hello
    heard_at: float
    idle_since: float
    provisioner: Provisioner
    phase: Phase = Phase.READY
    launch: LaunchedWorker | None = None
    open: bool = False
    slot_groups: list[SlotGroup] = field(default_factory=list)
    runs: dict[int, Run] = field(default_factory=dict)
    functions: set[bytes] = field(default_factory=set)
    since: float = 0.0
    leave_at: float = math.inf
    batches: int = 0
    calls: int = 0
    taken: int = 0
    fruitless: int = 0
    stopping_since: float = 0.0
    blamed_runs: set[int] | None = None
    knows_begun: bool = False
    exit_reason: str = ""
    generation: int = 0
    waiting: int = 0
    floor: int = -1
    resuming: dict[int, int] = field(default_factory=dict)
    withheld: bool = False
    draining: bool = False
    measured: Measured | None = None
    measured_at: float = 0.0
    growth: dict[int, Growth] = field(default_factory=dict)
    held: Resource | None = None
    absent: bool = False
    to_release: list[int] | None = None

    @property
    def job(self) -> str:
        """The batch system's id, when it is known; empty for a process of this machine, which has
        no log of its own.
        """
        return self.launch.handle.id if self.launch is not None and self.launch.handle.log else ""

    @property
    def is_leaving(self) -> bool:
        """Whether it leaves once it has ended what it is at, or has left."""
        return self.draining or self.phase in (Phase.STOPPING, Phase.GONE)

    def waiting_depths(self) -> list[int]:
        """Return of its calls that wait for calls that they have made inside of how many others
        they are, most first.
        """
        batches = {id(run.batch): run for run in self.runs.values() if run.batch.waiting}
        depths = (run.span.open_task.submitter.depth for run in batches.values())
        return sorted(depths, reverse=True)

    def has_seconds(self, seconds: float, now: float) -> bool:
        """Return whether it will be there for so long; near its end it is assigned nothing."""
        return self.leave_at - now >= max(seconds, spare_of(self.leave_at - self.since))

    def spare(self) -> list[Run]:
        """Return the runs not all of whose calls have begun, as far as is known here."""
        begun = self.under_way()
        return [
            run
            for run in self.runs.values()
            if run.number not in begun or run.span.stop - run.done > 1
        ]

    def under_way(self) -> set[int]:
        """Return the runs that its runners are at, as far as is known here: of each batch the first
        run that has not ended, of batches that have brought results before others, in the order in
        which they were assigned. A runner may begin its next batch before another begins an earlier
        one.
        """
        firsts: dict[int, Run] = {}
        for run in self.runs.values():
            firsts.setdefault(id(run.batch), run)
        taken: dict[int, int] = {}
        begun: set[int] = set()
        for run in sorted(firsts.values(), key=lambda run: run.batch.answered_at is None):
            group = id(run.slot_group)
            if run.batch.waiting:
                begun.add(run.number)
            elif taken.get(group, 0) < run.slot_group.slots:
                taken[group] = taken.get(group, 0) + 1
                begun.add(run.number)
        return begun


class TaskQueue:
    """The spans of one demand that wait, and the slots of workers that they may have.

    `calls` wait, `running` are at workers. Slot groups that are `idle` have a free slot; those
    `ahead` may be given what their slots will want next, when calls are quick, but for the slots
    of late runs: another queue may have a free slot. Those that are `kept` have a free slot for
    calls inside of more others than so many. `asked_level` is that of the calls for which the
    packer is asked, `asked_depth` how deep those may be that have what it gives. `hard` and `soft`
    are how many seconds a call of this demand may take, and how many it is expected to take.
    """

    def __init__(self, provisioner: Provisioner, demand: Demand = ANY) -> None:
        self.provisioner = provisioner
        self.demand = demand
        self.calls = self.running = 0
        self.slots = 0
        self.waiting = FairQueue()
        self.idle: dict[SlotGroup, None] = {}
        self.ahead: dict[SlotGroup, None] = {}
        self.kept: dict[int, dict[SlotGroup, None]] = {}
        self.asked_level, self.asked_depth = PLAIN, 0
        self.hard: float | None = None
        self.soft = 0.0

    def limit(self, time: WTime | None) -> None:
        """Have calls that are assigned from now on keep to these limits."""
        if time is not None:
            self.hard, self.soft = time.T, time.softT or 0.0

    def add(self, group: SlotGroup) -> None:
        """Take in a slot group."""
        self.slots += group.slots
        group.worker.slot_groups.append(group)
        self.relist(group)

    def remove(self, group: SlotGroup) -> None:
        """Let a slot group go."""
        self.slots -= group.slots
        group.worker.slot_groups.remove(group)
        self.unlist(group)

    def unlist(self, group: SlotGroup) -> None:
        """Assign nothing to a slot group."""
        if group.listed is not None:
            del group.listed[group]
            group.listed = None

    def relist(self, group: SlotGroup) -> None:
        """List a slot group, last, by the room that it has."""
        worker, share, slots = group.worker, self.provisioner.policy.jobs_per_worker, group.slots
        if group.listed is not None:
            del group.listed[group]
        listed = None
        if (
            worker.phase is not READY
            or worker.withheld
            or worker.draining
            or (share is not None and worker.taken >= share)
        ):
            pass
        elif group.batches < slots:
            listed = self.idle if worker.floor < 0 else self.kept.setdefault(worker.floor, {})
        elif share is None and not worker.waiting and group.batches < 2 * slots - group.late:
            listed = self.ahead
        group.listed = listed
        if listed is not None:
            listed[group] = None

    def take_slot_group(self) -> SlotGroup | None:
        """Unlist and return who may be assigned work now. Who came last is first: if there is too
        little for all, those before it may leave.

        To look at the last and unlist it later would take longer the more have been unlisted: a
        dictionary keeps the places of what was deleted, but for what `popitem` took.
        """
        listed = self.idle
        if not listed and self.kept:
            listed = self._kept_for_next()
        if not listed:
            listed = self.ahead
            if not listed:
                return None
            spans = self.waiting.begin_turn()
            if not may_go_ahead(spans[0] if type(spans[0]) is Span else first_of(spans)):
                return None
        group, _ = listed.popitem()
        group.listed = None
        return group

    def _kept_for_next(self) -> dict[SlotGroup, None]:
        """Return, of slots that are kept for calls inside of others, some that those which wait may
        have; empty when there are none.
        """
        deepest = self.waiting.deepest
        for floor, groups in list(self.kept.items()):
            if not groups:
                del self.kept[floor]
            elif floor < deepest:
                return groups
        return {}

    def free_groups(self) -> list[SlotGroup]:
        """Return those with a free slot."""
        return [*self.idle, *(group for groups in self.kept.values() for group in groups)]

    def put(self, span: Span) -> bool:
        """Have calls wait behind all others of their submitter; return whether they are its first,
        without which there is nothing more to assign than before.
        """
        one, waiting = span.open_task, self.waiting
        submitter = one.submitter
        plain = submitter.plain and not one.task.priority
        level = waiting.spans if plain else waiting.level(submitter, one.task.priority)
        self.calls += span.stop - span.start
        spans = level.get(submitter)
        if spans:
            spans.append(span)
            return False
        level[submitter] = deque((span,))
        return True

    def put_block(self, block: TaskBlock) -> bool:
        """As `put`, for the tasks of a block."""
        self.calls += block.left
        return self.waiting.add_block(block)

    def put_back(self, span: Span) -> None:
        """Have calls wait before all others of their submitter."""
        one = span.open_task
        level = self.waiting.level(one.submitter, one.task.priority)
        spans = level.get(one.submitter)
        if spans is None:
            level[one.submitter] = deque((span,))
        else:
            spans.appendleft(span)
        self.calls += span.stop - span.start

    def take_out(
        self,
        split: Callable[[Span], tuple[Iterable[Span], Iterable[Span]]],
        tasks: Iterable[OpenTask] | None = None,
    ) -> list[Span]:
        """Take calls out of the queue and return them; see `FairQueue.take_out`."""
        taken = self.waiting.take_out(split, tasks)
        self.calls -= sum(span.calls for span in taken)
        return taken

    def next_spans(self, worker: Worker) -> list[Span]:
        """Take a sensible piece of work for one runner: calls of one function, of the submitter
        whose turn it is. A call that alone needs the result of another comes behind that.
        """
        waiting, share = self.waiting, self.provisioner.policy.jobs_per_worker
        queue = waiting.begin_turn(worker.floor)
        span = queue[0] if type(queue[0]) is Span else first_of(queue)
        first, room = span.open_task, 1
        if span.attempt == 1 and (self.calls > 1 or first.kept is not None):
            room = self._sensible_calls(first.pace.seconds)
            room = room if share is None else min(room, share - worker.taken)
        spans: list[Span] = []
        coming: set[AwaitedResult] = set()
        size = 0
        while True:
            calls = span.stop - span.start
            if calls > room:
                queue[0] = replace(span, start=span.start + room)
                span, calls = replace(span, stop=span.start + room), room
            else:
                queue.popleft()
            self.calls -= calls
            room -= calls
            spans.append(span)
            if not room or len(spans) == MOST_RUNS:
                break
            size += span.open_task.size_for(worker.id)
            if size > MOST_BYTES:
                break
            made = span.open_task.kept
            if made is not None and isinstance(made, AwaitedResult) and len(made.waiting) == 1:
                coming.add(made)
                [follower] = made.waiting
                if follower.may_follow(first, coming):
                    self.put_back(follower.only_span())  # and is taken next
            if not queue:
                break
            span = queue[0] if type(queue[0]) is Span else first_of(queue)
            if span.attempt != 1 or span.open_task.function is not first.function:
                break
        if not queue or not waiting.alone:
            waiting.end_turn(first)
        return spans

    def _sensible_calls(self, seconds: float | None) -> int:
        """Return how many calls make one batch: those that take `BATCH_SECONDS`; fewer to leave
        work for every slot, but no fewer than pay for the message.

        One when nothing is known yet.
        """
        if seconds is None or seconds > BATCH_SECONDS:
            return 1
        seconds = max(seconds, 1e-9)
        share = -(-self.calls // (2 * max(self.slots, 1)))
        return max(1, min(max(share, int(LEAST_SECONDS / seconds)), int(BATCH_SECONDS / seconds)))


def may_go_ahead(span: Span) -> bool:
    """Return whether calls are quick enough to be assigned to a worker before it has room."""
    seconds = span.open_task.pace.seconds
    return seconds is not None and seconds < AHEAD_SECONDS and span.attempt == 1
