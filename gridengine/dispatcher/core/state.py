"""The tables, effects and counters of a dispatcher's core. Every other module of the core takes
this one object; `state_machine` stands above them all.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from gridengine.dispatcher.core import feasibility
from gridengine.dispatcher.core.calls import (
    AwaitedResult,
    CallSample,
    Client,
    Failure,
    FunctionCounts,
    OpenTask,
    RemoteObject,
    Submitter,
)
from gridengine.dispatcher.core.events import Effect
from gridengine.dispatcher.core.model import NEXT_PHASES, Phase, Run, SlotGroup, TaskQueue, Worker
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.provisioner import (
    ANNOUNCED,
    AnnouncedProvisioner,
    LaunchedWorker,
    Provisioner,
)
from gridengine.dispatcher.core.run_log import RunLog
from gridengine.dispatcher.core.snapshot import ClientCounts, DemandCounts, Snapshot
from gridengine.dispatcher.core.task_blocks import TaskBlock, TaskBlocks
from gridengine.dispatcher.core.tasks import MOST_PRIORITY, CallsFinished
from gridengine.resources.base import Resource
from gridengine.resources.demand import ANY, MOST_REMEMBERED, Demand, worker_command
from gridengine.resources.estimates import GroupTimes
from gridengine.resources.kinds import Memory, WTime
from gridengine.resources.packing import Packer
from gridengine.wire.messages import NUMBER_BITS

MOST_FUNCTIONS, OTHER_FUNCTIONS = 200, "others"
"""For how many names of functions calls are counted by name, and the name of all others."""
KEPT_FAILURES = 200
"""How many of the last calls that have failed are kept, to tell of them."""


SHARE_TURNS = 1000
"""By so many turns who has a share of the workers asks later than who has none."""
TURN_SHIFT = 120
"""Above an order (40 bits), a priority (34), and a depth."""


def turn_of(place: int) -> int:
    """Return the turn of a place in the packer's queue."""
    return place + (1 << TURN_SHIFT - 1) >> TURN_SHIFT


class CoreState:
    """All that the core knows.

    Workers are launched by *provisioners*. Where `policy.resources` says what each worker holds
    there is one, and requests share its workers: a packer allocates what they hold. Where calls of
    each demand have workers of their own (`policy.pooled`) each demand has a provisioner, whose
    workers offer exactly that request. Elsewhere demands are not told apart, and there is one of
    each.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = self.first_policy = policy
        self.closing = False
        # Whether nothing but calls of running calls may begin.
        self.draining = False
        # What the event that is being handled has to have done.
        self.effects: list[Effect] = []

        self.open_tasks: dict[int, OpenTask] = {}
        # The tasks that are not open yet.
        self.blocks = TaskBlocks(self.open_tasks)
        # Who has open tasks.
        self.submitters: dict[int, Submitter] = {}
        # The dispatcher's own process, and clients by their numbers: those that have joined, or
        # have open tasks.
        self.own = Client(0)
        self.clients = {0: self.own}
        # How many of them have open tasks.
        self.active_clients = 0
        self.runs: dict[int, Run] = {}
        self.workers: dict[bytes, Worker] = {}
        # Functions by their digests, shared objects by their names.
        self.objects: dict[bytes, RemoteObject] = {}
        # The functions that no task uses, oldest first, with their sizes in bytes.
        self.retired: dict[bytes, int] = {}
        # The same for large results that no call needs just now, but new ones may.
        self.idle_results: dict[bytes, int] = {}
        # Results that calls refer to, by their references.
        self.awaited: dict[int, AwaitedResult] = {}
        # The names of those that lie with workers alone.
        self.away: dict[bytes, None] = {}
        # Whether there ever were such.
        self.has_away = False
        # By the workers that have what they need, and no room yet: the calls that wait for them.
        self.near: dict[bytes, dict[int, OpenTask]] = {}
        # The references that were released before what they stand for was there.
        self.released_early: set[int] = set()
        # The tasks with results that others need, or that need others', some of whose calls have
        # been settled in this event.
        self.linked: list[tuple[OpenTask, CallsFinished]] = []
        # The tasks whose parents have ended in this event, and the workers where one that asks for
        # its slot may have it now.
        self.orphans: list[int] = []
        self.returning: dict[bytes, Worker] = {}
        # The queues in which calls now wait whose last input has come in this event, with one of
        # them.
        self.begun: dict[TaskQueue, OpenTask] = {}
        self.times = GroupTimes()
        # Of the caller's modules, the latest that something was submitted with.
        self.generation = 0
        self.last_order = self.last_remade = self.last_batch = 0
        # Those of the processes that are one dispatcher differ.
        self.last_run = self.last_allocation = policy.epoch << NUMBER_BITS

        self.done = self.failed = self.retried = 0
        # The same by the names of functions; and the last calls that have failed.
        self.functions: dict[str, FunctionCounts] = {}
        self.failures: deque[Failure] = deque(maxlen=KEPT_FAILURES)
        self.sample = CallSample()
        self.log = RunLog()
        # How many workers are in each phase, and how many slots they have.
        self.phases = dict.fromkeys(Phase, 0)
        self.slots_by_phase = dict.fromkeys(Phase, 0)
        # Those that leave when they have ended what they are at, the first to be told so first.
        self.retiring: dict[bytes, Worker] = {}
        # The last that was to leave for a client that had none.
        self.yielding = b""

        self.shared = shared = policy.resources
        offers = None
        if shared is not None and not policy.keeps_others:
            offers = [feasibility.offered(policy, shared)]
        self.packer: Packer[int, bytes] = Packer(offers, overtake_seconds=policy.overtake_seconds)
        # The queues that ask the packer for one more allocation, and its number.
        self.pending_requests: dict[TaskQueue, int] = {}
        self.requesting_queues: dict[int, TaskQueue] = {}
        # Those that do not ask: no worker holds what their calls ask for.
        self.unheld: dict[TaskQueue, None] = {}
        # The turn of a client while it alone asks; whether what is asked is to be put in order.
        self.first_turn = 0
        self.reorder_due = False
        # Whether the packer may find room where it found none before.
        self.room_freed = False
        # By what they may be recognised: the workers that connected before their launch was known.
        self.unmatched: dict[str, bytes] = {}
        # The workers that may not connect any more.
        self.withdrawn: dict[str, None] = {}
        self.queues: dict[Demand, TaskQueue] = {}
        self.provisioners: dict[Demand, Provisioner] = {}
        self._fitting_known: dict[Demand, int] = {}
        self._common_demand = ANY if shared is None else Demand(shared)
        self.common = self._add_provisioner(self._common_demand)
        self.common_queue = self.queues[ANY] = TaskQueue(self.common)

        # Where a batch has ended in this event.
        self.freed_slots: dict[SlotGroup, None] = {}
        # The queues whose calls or slots have changed in this event.
        self.dirty_queues: dict[TaskQueue, None] = {}
        # Whether the number of workers may have to change after this event.
        self.scale_due = False
        # The queues with more calls for their workers than one event may assign: the next event is
        # to be `Continue`.
        self.deferred: dict[TaskQueue, None] = {}
        # Whether a `Rebalance` may find something: a worker holds calls that have not begun.
        self.rebalance_due = False
        # When calls were last recalled for a submitter that had no share of the workers.
        self.recalled_for_new_at = -math.inf

    # ---------------------------------------------------------------- what there is

    @property
    def has_tasks(self) -> bool:
        """Whether there is a task that has not ended."""
        return bool(self.open_tasks or self.blocks)

    @property
    def task_count(self) -> int:
        """How many tasks have not ended."""
        return len(self.open_tasks) + self.blocks.tasks

    def has_task(self, task: int) -> bool:
        """Return whether there is a task of this number."""
        return self.has_any(range(task, task + 1))

    def has_any(self, tasks: range) -> bool:
        """Return whether there is a task of one of these numbers."""
        return not self.open_tasks.keys().isdisjoint(tasks) or self.blocks.has_any(tasks)

    def open(self, tasks: Iterable[int]) -> None:
        """Have those of these tasks be open that wait in blocks."""
        if self.blocks:
            known = self.open_tasks
            found = {self.blocks.find(task) for task in tasks if task not in known}
            self._open_blocks(one for one in found if one is not None)

    def open_all(self) -> None:
        """Have all tasks be open."""
        self._open_blocks(self.blocks)

    def open_blocks_of(self, client: Client) -> None:
        """Have all tasks of a client be open."""
        self._open_blocks([one for one in self.blocks if one.submitter.client is client])

    def _open_blocks(self, blocks: Iterable[TaskBlock]) -> None:
        by_demand: dict[Demand, list[TaskBlock]] = {}
        for one in blocks:
            by_demand.setdefault(one.alike.task.demand, []).append(one)
        for demand, its in by_demand.items():
            self.queue_for(demand).waiting.open_blocks(its)

    @property
    def calls_waiting(self) -> int:
        """How many calls wait for a worker."""
        return sum(queue.calls for queue in self.queues.values())

    def counts_of(self, name: str) -> FunctionCounts:
        """Return where the calls of functions of this name are counted; of very many names the last
        have one place together.
        """
        counts = self.functions.get(name)
        if counts is None:
            name = name if len(self.functions) < MOST_FUNCTIONS else OTHER_FUNCTIONS
            counts = self.functions.setdefault(name, FunctionCounts(name))
        return counts

    @property
    def figures(self) -> tuple[int, int, int]:
        """How many calls are done, have failed, and were run again."""
        return self.done, self.failed, self.retried

    @property
    def idle_workers(self) -> int:
        """How many workers are ready and have nothing to do."""
        return sum(len(one.idle) for one in self.provisioners.values())

    @property
    def gathering(self) -> bool:
        """Whether workers are about to be asked for."""
        return any(one.demand_since is not None for one in self.provisioners.values())

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to look after: no task, no worker, nor one that was asked
        for.
        """
        return not (
            self.has_tasks
            or self.workers
            or self.policy.min_workers
            or self.closing
            or any(one.launched or one.requested for one in self.provisioners.values())
        )

    def launched_workers(self) -> list[LaunchedWorker]:
        """Return the launched workers of which the scheduler has not said that they have ended."""
        return [
            worker
            for one in self.provisioners.values()
            for worker in one.launched.values()
            if worker.ended_at is None
        ]

    def needed_slots(self) -> dict[Provisioner, int]:
        """Return for how many slots of workers calls wait, those of a worker that holds fewer of
        them counting for more. Where calls wait for workers that people start, those that the
        scheduler's own can never hold do not count.
        """
        needed = dict.fromkeys(self.provisioners.values(), 0)
        slots = self.policy.slots
        least = 0 if self.policy.keeps_others else 1  # of a kind that raises nothing is known
        for queue in self.queues.values():
            if queue.calls and (fitting := max(self._fitting(queue.demand), least)):
                needed[queue.provisioner] += -(-queue.calls * slots // fitting)
        return needed

    def is_held(self, demand: Demand) -> bool:
        """Return whether a worker that is here, or that the scheduler may start, can be given a
        call of this demand.
        """
        if self.policy.max_workers and self._fitting(demand):
            return True
        staying = (one for one in self.workers.values() if not one.is_leaving)
        held = {self.shared if one.held is None else one.held for one in staying}
        return any(one is None or feasibility.holds(one, demand.request) for one in held)

    def missing_worker(self, demand: Demand) -> str | None:
        """Return the command that starts a worker for calls of this demand, where none holds what
        they ask for: empty when no command does. None where one does, or comes by itself.
        """
        if not self.policy.keeps_others or self.is_held(demand):
            return None
        return worker_command(demand.request)

    def _fitting(self, demand: Demand) -> int:
        if demand not in self._fitting_known:
            if len(self._fitting_known) >= MOST_REMEMBERED:
                self._fitting_known.clear()
            self._fitting_known[demand] = feasibility.fitting(self.policy, demand.request)
        return self._fitting_known[demand]

    def snapshot(self) -> Snapshot:
        """Return what others may see; the cost grows with the demands and submitters, not with
        calls or workers.
        """
        queues, provisioners = self.queues.values(), self.provisioners.values()
        idle, phases = self.idle_workers, self.phases
        return Snapshot(
            waiting=self.calls_waiting,
            running=len(self.runs),
            workers=len(self.workers),
            batches={number: one.batches for number, one in self.submitters.items()},
            clients={
                number: ClientCounts(
                    one.weight, one.unsettled - one.running, one.running, one.done, one.failed
                )
                for number, one in self.clients.items()
            },
            calls_running=sum(queue.running for queue in queues),
            done=self.done,
            failed=self.failed,
            retried=self.retried,
            statuses={
                "requested": sum(one.requested for one in provisioners),
                "launched": sum(len(one.expected) for one in provisioners),
                "idle": idle,
                "busy": phases[Phase.READY] - idle,
                "silent": phases[Phase.SILENT],
                "stopping": phases[Phase.STOPPING],
            },
            demands={
                queue.demand: DemandCounts(queue.calls, queue.running, queue.slots)
                for queue in queues
            },
        )

    # ---------------------------------------------------------------- clients

    def client_rests(self, client: Client) -> None:
        """A client has no open tasks any more: forget it if it has left. One that alone is left
        asks for slots in the order in which its calls came.
        """
        if client.left and self.clients.get(client.number) is client:
            del self.clients[client.number]
        self.first_turn = turn_of(self.packer.furthest) + 1
        self.reorder_due = True

    def submitter_again(self, submitter: Submitter) -> Submitter:
        """Return a submitter that is to have an open task again, or who has its number by now."""
        found = self.submitters.setdefault(submitter.number, submitter)
        if not found.open:
            self.active_clients += not found.client.submitters
            found.client.submitters += 1
            self.clients.setdefault(found.client.number, found.client)
        return found

    def place_of(self, one: OpenTask) -> int:
        """Return the place in the packer's queue of what is asked for a task: while several clients
        ask, before all of those that have more of the workers for their weight; of one client's
        before all that are inside of fewer calls, have a lower priority, or came later.
        """
        client, turn = one.submitter.client, self.first_turn
        if self.active_clients > 1:
            turn = max(turn, client.last_turn) + int(SHARE_TURNS * client.share)
        depth, order = one.submitter.depth, (MOST_PRIORITY - one.task.priority << 40) + one.order
        return (turn << TURN_SHIFT) - (depth << 80) + order

    # ---------------------------------------------------------------- queues

    def queue_for(self, demand: Demand) -> TaskQueue:
        """Return the queue of a demand, made if need be."""
        shared = self.shared is not None
        if demand.function:
            return self._announced_queue(demand)
        if demand is ANY or not (shared or self.policy.pooled):
            return self.common_queue
        if shared and demand.factor != 1 and demand.resources.get(Memory) is None:
            demand = demand.with_factor(1.0)
        queue = self.queues.get(demand)
        if queue is None:
            of = self._common_demand if shared else demand
            provisioner = self.provisioners.get(of) or self._add_provisioner(of)
            queue = self.queues[demand] = TaskQueue(provisioner, demand)
            self._limit(queue)
        return queue

    def _announced_queue(self, demand: Demand) -> TaskQueue:
        """Return the queue of a function that workers announce."""
        queue = self.queues.get(demand)
        if queue is None:
            queue = self.queues[demand] = TaskQueue(self.announced, demand)
        return queue

    @property
    def announced(self) -> Provisioner:
        """The provisioner of the workers that announce functions."""
        one = self.provisioners.get(ANNOUNCED)
        if one is None:
            one = self.provisioners[ANNOUNCED] = AnnouncedProvisioner(self.policy, ANNOUNCED)
        return one

    def provisioner_for(self, demand: Demand) -> Provisioner:
        """Return the provisioner that asked for workers of this demand."""
        return self.provisioners.get(demand, self.common)

    def _add_provisioner(self, demand: Demand) -> Provisioner:
        one = Provisioner(self.policy, demand, unmatched=self.unmatched, withdrawn=self.withdrawn)
        self.provisioners[demand] = one
        return one

    def forget_if_unused(self, queue: TaskQueue) -> None:
        """Forget a queue without calls and slots."""
        if queue.calls or queue.slots or queue.running or queue is self.common_queue:
            return
        # What was deferred may have been forgotten since, and its demand have another queue by now.
        if self.queues.get(queue.demand) is queue:
            del self.queues[queue.demand]
        self.unheld.pop(queue, None)

    def forget_provisioners(self, now: float) -> None:
        """Forget the provisioners without calls and workers that may ask for workers again."""
        used = {queue.provisioner for queue in self.queues.values()}
        for one in list(self.provisioners.values()):
            if one not in used and one is not self.common and one.is_spent(now):
                del self.provisioners[one.demand]

    # ---------------------------------------------------------------- what is learnt

    def limited_request(self, demand: Demand) -> Resource:
        """Return what a call of this demand asks for by now."""
        return feasibility.limited(self.policy, self.times, demand)

    def learn_seconds(self, queue: TaskQueue, seconds: float) -> None:
        """Learn how long a call took that came to its end: the limits of all calls of its group
        follow from it.
        """
        time = queue.demand.resources.get(WTime)
        if time is None or time.group is None:
            return
        known = self.times.limits(time.group)
        self.times.record(time.group, seconds)
        if known != self.times.limits(time.group):
            for one in self.queues.values():
                self._limit(one)

    def _limit(self, queue: TaskQueue) -> None:
        queue.limit(self.limited_request(queue.demand).get(WTime))

    def note_waiting(self, worker: Worker) -> None:
        """Note that other calls of a worker wait for calls that they have made than before.

        Once there are twice as many as slots, or more, its slots are kept for calls inside of more
        others than these: else all that waits might begin there, and wait too.
        """
        worker.note_suspended()
        depths, most = worker.waiting_depths(), 2 * worker.hello.slots
        floor = depths[most - 1] if len(depths) >= most else -1
        if floor == worker.floor:
            return
        worker.floor = floor
        for group in worker.slot_groups:
            self.freed_slots[group] = None
            if group.queue.calls:
                self.dirty_queues[group.queue] = None
        if worker.open and self.shared:
            self.packer.restrict(worker.id, above=floor)
            self.room_freed = True

    def enter(self, worker: Worker, phase: Phase) -> None:
        """Change the phase of a worker; an illegal change is a fault of this package."""
        if phase not in NEXT_PHASES[worker.phase]:
            raise AssertionError(f"a worker cannot go from {worker.phase} to {phase}")
        self.count_phase(worker, -1)
        worker.phase = phase
        self.count_phase(worker, +1)

    def count_phase(self, worker: Worker, sign: int) -> None:
        """Count a worker that enters its phase, or leaves it, and its slots."""
        self.phases[worker.phase] += sign
        self.slots_by_phase[worker.phase] += sign * worker.hello.slots
