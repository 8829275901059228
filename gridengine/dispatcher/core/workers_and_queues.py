"""Queues, workers and runs, which refer to each other."""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set

from msgspec import Struct
from msgspec.structs import replace

from gridengine.dispatcher.core.calls import AwaitedResult, OpenTask, Span
from gridengine.dispatcher.core.fair_queue import PLAIN, FairQueue
from gridengine.dispatcher.core.launches import LaunchedWorker
from gridengine.dispatcher.core.policy import spare_of
from gridengine.dispatcher.core.provisioner import Provisioner
from gridengine.resources.base import Resource
from gridengine.resources.demand import ANY, Demand
from gridengine.resources.kinds import WTime
from gridengine.status.figures import Growth
from gridengine.wire.messages import Hello, Measured, Serves
from gridengine.wire.records import field, record

BATCH_SECONDS = 0.1
LEAST_SECONDS = 0.001
AHEAD_SECONDS = 0.05
MOST_RUNS = 1000
MOST_BYTES = 4_000_000


class WorkerPhase(enum.Enum):
    """The state of a worker that has connected. Whether it is given calls depends on more: see
    `Worker.closed_because`, `Worker.floor` and `Worker.has_seconds`.

    READY: it is heard. SILENT: it has missed three beats, or its job is suspended. STOPPING: it was
    told to leave, or has said that it does. GONE: it is forgotten, its calls are back in their
    queues or settled.
    """

    READY = "ready"
    SILENT = "silent"
    STOPPING = "stopping"
    GONE = "gone"


READY, SILENT = WorkerPhase.READY, WorkerPhase.SILENT
"""Looking up a member of an enumeration takes longer than comparing it, and both are done for each
message and, each tick, for each worker.
"""


NEXT_PHASES: Mapping[WorkerPhase, Set[WorkerPhase]] = {
    WorkerPhase.READY: {WorkerPhase.SILENT, WorkerPhase.STOPPING, WorkerPhase.GONE},
    WorkerPhase.SILENT: {WorkerPhase.READY, WorkerPhase.STOPPING, WorkerPhase.GONE},
    WorkerPhase.STOPPING: {WorkerPhase.GONE},
    WorkerPhase.GONE: set(),
}


class Batch(Struct, gc=False):
    """The runs that a runner is given at a time: how many have not ended, and its load in its
    submitter's share.

    Quick calls count half: half of their batches wait behind others at their workers.
    `answered_at`: when its last result came, or it began; None while it waits at the worker.
    `waiting`: a call of it waits for its children, and it has no slot.
    """

    runs: int = 0
    load: int = 2
    answered_at: float | None = None
    waiting: bool = False


@record
class SlotGroup:
    """Slots of a worker that belong to a queue: room for `slots` batches at a time.

    allocation: the number by which the worker knows its resources; 0 for calls that ask for
        nothing.
    packed: where requests share workers, the packer's numbers for these slots.
    late: how many of its runs take longer than expected.
    listed: the list of its queue that it is in; None while it gets no calls.
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

    `since`: when it was assigned or began. `touched`: when its last result came, or it was
    recalled. `late`: it takes longer than expected. `limit`: the seconds that each of its calls may
    take, or None. `children`: the tasks that end with it. `saved`: its last call that has saved its
    state in this run, -1 for none.
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
    saved: int = -1

    @property
    def has_saved(self) -> bool:
        """Whether the call in progress has saved its state since it began."""
        return self.saved >= self.done

    @property
    def worker(self) -> Worker:
        """The worker that it was assigned to."""
        return self.slot_group.worker

    @property
    def rest(self) -> Span:
        """The calls that are not settled."""
        return replace(self.span, start=self.done)


@record
class Worker:
    """A worker that is connected; or `absent`: known from an earlier dispatcher process, and not
    back yet.

    Its load: runs, and calls, how many of their calls have not ended; batches, waiting: its
        batches, and those whose calls wait for their children; taken: all calls that it was ever
        assigned.
    Its things: functions, the names of the objects that it has or pulls; held, its resources, None
        for those that the scheduler's workers have; to_release, the allocations of an earlier
        dispatcher that end before its slots are given out. serves: where other workers get results
        that it has; sending, how many pulls there are from it.

    Whether it gets calls (`closed_because`): open: its slots are given out. draining: it leaves
    when its calls have ended. resuming: the runs that ask for their slots back, with their runners;
    withheld: until these have slots, nothing else gets one. floor: its slots are for calls deeper
    than this.

    When and why it leaves: leave_at: a little before its walltime is over; told_leave_at: as its
    calls were told last. fruitless: how often in a row it gave all calls back. exit_reason: its own
    words, until the batch system says how it ended. blamed_runs: the runs that may be to blame for
    its end; knows_begun: whether it said which runs had begun.
    """

    id: bytes
    hello: Hello
    heard_at: float
    idle_since: float
    provisioner: Provisioner
    phase: WorkerPhase = WorkerPhase.READY
    launch: LaunchedWorker | None = None
    open: bool = False
    slot_groups: list[SlotGroup] = field(default_factory=list)
    runs: dict[int, Run] = field(default_factory=dict)
    functions: set[bytes] = field(default_factory=set)
    since: float = 0.0
    leave_at: float = math.inf
    told_leave_at: float = math.inf
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
    serves: Serves | None = None
    sending: int = 0

    @property
    def job(self) -> str:
        """The batch system's id, if known; empty for a process of this machine, which has no
        log.
        """
        return self.launch.handle.id if self.launch is not None and self.launch.handle.log else ""

    @property
    def is_leaving(self) -> bool:
        """Whether it leaves when its calls have ended, or has left."""
        return self.draining or self.phase in (WorkerPhase.STOPPING, WorkerPhase.GONE)

    @property
    def closed_because(self) -> str:
        """Why no call may begin there, in a word; empty if calls may. Which calls may is said by
        `floor` and by the time that it stays; whether there is room, by its slot groups.
        """
        if self.phase is not READY:
            return self.phase.value
        if self.draining:
            return "draining"
        if self.withheld:
            return "withheld"
        share = self.provisioner.policy.jobs_per_worker  # `is_spent`, inlined to save time
        return "spent" if share is not None and self.taken >= share else ""

    @property
    def is_spent(self) -> bool:
        """Whether it has been given as many calls as a worker may have (`jobs_per_worker`)."""
        share = self.provisioner.policy.jobs_per_worker
        return share is not None and self.taken >= share

    def unlist(self) -> None:
        """Have all its slot groups get no calls."""
        for group in self.slot_groups:
            group.queue.unlist(group)

    def waiting_depths(self) -> list[int]:
        """Return how deep its waiting calls are nested, the deepest first."""
        batches = {id(run.batch): run for run in self.runs.values() if run.batch.waiting}
        depths = (run.span.open_task.submitter.depth for run in batches.values())
        return sorted(depths, reverse=True)

    def has_seconds(self, seconds: float, now: float) -> bool:
        """Return whether the worker stays for this many seconds; near its end it gets no calls."""
        return self.leave_at - now >= max(seconds, spare_of(self.leave_at - self.since))

    def spare(self) -> list[Run]:
        """Return the runs with calls that have not begun, as far as is known here."""
        begun, runs = self.under_way(), self.runs.values()
        return [run for run in runs if run.number not in begun or run.span.stop - run.done > 1]

    def under_way(self) -> set[int]:
        """Return the runs that its runners are at, as far as is known: of each batch the first open
        run, as many as there are slots. Batches that have brought results come first, since a
        runner may begin its next batch before another begins an earlier one.
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
    """The waiting spans of one demand, and the slots that these may have.

    calls, running: how many calls wait, and are at workers.
    idle: the slot groups with a free slot. ahead: slot groups that may be given their next batch
        early, since calls are quick and none of their runs is late. reserved: by `floor`, the slot
        groups whose free slots are reserved for calls deeper than the floor.
    asked_level, asked_depth: the level and depth of the calls for which the packer was asked.
    hard, soft: the seconds that a call may take, and is expected to take.
    """

    def __init__(self, provisioner: Provisioner, demand: Demand = ANY) -> None:
        self.provisioner = provisioner
        self.demand = demand
        self.calls = self.running = 0
        self.slots = 0
        self.waiting = FairQueue()
        self.idle: dict[SlotGroup, None] = {}
        self.ahead: dict[SlotGroup, None] = {}
        self.reserved: dict[int, dict[SlotGroup, None]] = {}
        self.asked_level, self.asked_depth = PLAIN, 0
        self.hard: float | None = None
        self.soft = 0.0

    def limit(self, time: WTime | None) -> None:
        """Apply these limits to calls that are assigned from now on."""
        if time is not None:
            self.hard, self.soft = time.T, time.softT or 0.0

    def add(self, group: SlotGroup) -> None:
        """Add a slot group."""
        self.slots += group.slots
        group.worker.slot_groups.append(group)
        self.relist(group)

    def remove(self, group: SlotGroup) -> None:
        """Remove a slot group."""
        self.slots -= group.slots
        group.worker.slot_groups.remove(group)
        self.unlist(group)

    def unlist(self, group: SlotGroup) -> None:
        """Assign nothing to a slot group."""
        if group.listed is not None:
            del group.listed[group]
            group.listed = None

    def relist(self, group: SlotGroup) -> None:
        """Put a slot group last in the list that fits its room."""
        worker, share, slots = group.worker, self.provisioner.policy.jobs_per_worker, group.slots
        if group.listed is not None:
            del group.listed[group]
        listed = None
        if worker.closed_because:
            pass
        elif group.batches < slots:
            listed = self.idle if worker.floor < 0 else self.reserved.setdefault(worker.floor, {})
        elif (
            share is None
            and worker.floor < 0
            and not worker.waiting
            and group.batches < 2 * slots - group.late
        ):
            listed = self.ahead
        group.listed = listed
        if listed is not None:
            listed[group] = None

    def take_slot_group(self) -> SlotGroup | None:
        """Unlist and return a slot group that may be given calls. The last one comes first: if
        there is too little work, the earlier workers may leave.

        `popitem` is used because a dictionary is searched from its front past all deleted entries.
        """
        listed = self.idle
        if not listed and self.reserved:
            listed = self._reserved_for_next()
        if not listed:
            listed = self.ahead
            if not listed:
                return None
            if not self.may_go_ahead(self.waiting.first()):
                return None
        group, _ = listed.popitem()
        group.listed = None
        return group

    def _reserved_for_next(self) -> dict[SlotGroup, None]:
        """Return the free slots that are reserved for calls as deep as this queue's deepest; empty
        if there are none.
        """
        deepest = self.waiting.deepest
        for floor, groups in list(self.reserved.items()):
            if not groups:
                del self.reserved[floor]
            elif floor < deepest:
                return groups
        return {}

    def free_groups(self) -> list[SlotGroup]:
        """Return the slot groups with a free slot."""
        return [*self.idle, *(group for groups in self.reserved.values() for group in groups)]

    def put(self, span: Span) -> bool:
        """Queue calls behind all others of their submitter; return whether they are its first."""
        one, waiting = span.open_task, self.waiting
        submitter = one.submitter
        plain = submitter.plain and not one.options.priority
        level = waiting.spans if plain else waiting.level(submitter, one.options.priority)
        self.calls += span.stop - span.start
        spans = level.get(submitter)
        if spans:
            spans.append(span)
            return False
        level[submitter] = deque((span,))
        return True

    def put_back(self, span: Span) -> None:
        """Queue calls before all others of their submitter."""
        one = span.open_task
        level = self.waiting.level(one.submitter, one.options.priority)
        level.setdefault(one.submitter, deque()).appendleft(span)
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
        """Take the calls of one batch: calls of one function, from the submitter whose turn it is.
        A call that needs the result of one of them, and waits for nothing else, follows in the same
        batch.
        """
        waiting, share = self.waiting, self.provisioner.policy.jobs_per_worker
        queue = waiting.begin_turn(worker.floor)
        span = queue[0]
        first, room, brief = span.open_task, 1, 0
        if span.attempt == 1 and (self.calls > 1 or first.kept is not None):
            room = self._sensible_calls(first.pace.seconds)
            if share is None:
                brief = self._brief_calls(first.pace.seconds)
            else:
                room = min(room, share - worker.taken)
        spans: list[Span] = []
        coming: set[AwaitedResult] = set()
        size = 0
        while True:
            calls = span.stop - span.start
            if room < calls <= brief:  # whole or not at all: each part would carry all arguments
                if spans and calls > 2 * room:
                    break
                room = calls
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
            span = queue[0]
            if span.attempt != 1 or span.open_task.function is not first.function:
                break
        if not queue or not waiting.alone:
            waiting.end_turn(first)
        return spans

    def _sensible_calls(self, seconds: float | None) -> int:
        """Return how many calls make a batch: those of `BATCH_SECONDS`, but fewer to leave work for
        every slot, and enough to pay for the message. One call while no duration is known.
        """
        most = BATCH_SECONDS + 2 * self.provisioner.policy.message_seconds
        if seconds is None or seconds > most:
            return 1
        seconds = max(seconds, 1e-9)
        share = -(-self.calls // (2 * max(self.slots, 1)))
        return max(1, min(max(share, self._brief_calls(seconds)), int(most / seconds)))

    def _brief_calls(self, seconds: float | None) -> int:
        """Return how many calls that take this long are the fewest that pay for a message."""
        least = LEAST_SECONDS + self.provisioner.policy.message_seconds
        return 0 if seconds is None else int(least / max(seconds, 1e-9))

    def may_go_ahead(self, span: Span) -> bool:
        """Return whether calls are quick enough to be assigned before there is room."""
        seconds, message = span.open_task.pace.seconds, self.provisioner.policy.message_seconds
        return seconds is not None and seconds < AHEAD_SECONDS + 4 * message and span.attempt == 1
