"""The tables, effects and counters of a dispatcher's core. Every other module of the core takes
this one object; `state_machine` stands above them all.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from gridengine.dispatcher.core import calls
from gridengine.dispatcher.core.agenda import Agenda
from gridengine.dispatcher.core.fair_queue import TaskBlock, TaskBlocks
from gridengine.dispatcher.core.figures import CallSample, FunctionCounts
from gridengine.dispatcher.core.model import Run, TaskQueue, Worker
from gridengine.dispatcher.core.policy import Policy, fitting, holds, limited, offered
from gridengine.dispatcher.core.provisioner import (
    ANNOUNCED,
    AnnouncedProvisioner,
    LaunchedWorker,
    Provisioner,
)
from gridengine.dispatcher.core.run_log import RunLog
from gridengine.dispatcher.core.snapshot import ClientCounts, DemandCounts, Snapshot
from gridengine.dispatcher.core.states import Phase, Story
from gridengine.dispatcher.core.tasks import Effect
from gridengine.resources.base import Resource
from gridengine.resources.demand import ANY, MOST_REMEMBERED, Demand
from gridengine.resources.encoding import worker_command
from gridengine.resources.estimates import GroupTimes
from gridengine.resources.kinds import Memory, WTime
from gridengine.resources.packing import Packer
from gridengine.wire.messages import NUMBER_BITS

MOST_FUNCTIONS, OTHER_FUNCTIONS = 200, "others"
"""For how many names of functions calls are counted by name, and the name of all others."""
KEPT_FAILURES = 200
"""How many of the last calls that have failed are kept, to tell of them."""


@dataclass(slots=True, eq=False)
class CoreState:
    """All that the core knows. Each queue belongs to the provisioner that launches its workers.

    Where `policy.resources` says what each worker holds, there is one provisioner, and requests
    share its workers: the packer gives out what they hold. Where calls of each demand have workers
    of their own (`policy.pooled`), each demand has a provisioner, whose workers offer exactly that
    demand. Elsewhere demands do not matter, and there is one provisioner and one queue.
    """

    policy: Policy
    first_policy: Policy = field(init=False)
    """The policy before any `Scaled`."""
    shared: Resource | None = field(init=False)
    """What each worker holds, if requests share the workers."""
    story: Story | None = None
    """The last events of tasks and workers; None unless the core is checked."""
    closing: bool = False
    draining: bool = False
    """Whether no call may begin but those that running calls have made."""
    now: float = 0.0
    """When the event came that is being handled."""
    effects: list[Effect] = field(default_factory=list)
    agenda: Agenda = field(default_factory=Agenda)

    # Tasks and who submits them.
    open_tasks: dict[int, calls.OpenTask] = field(default_factory=dict)
    """All tasks that have not ended, but for those in `blocks`."""
    blocks: TaskBlocks = field(init=False)
    submitters: dict[int, calls.Submitter] = field(default_factory=dict)
    """The submitters of open tasks."""
    own: calls.Client = field(default_factory=lambda: calls.Client(0))
    """The dispatcher's own process."""
    clients: dict[int, calls.Client] = field(init=False)
    """By number: the own one, those that have joined, and those that have open tasks."""
    active_clients: int = 0
    """How many clients have open tasks."""
    runs: dict[int, Run] = field(default_factory=dict)
    last_run: int = field(init=False)
    last_allocation: int = field(init=False)
    """Processes that are the same dispatcher, one after the other, use different numbers."""
    last_order: int = 0
    last_remade: int = 0
    last_batch: int = 0
    generation: int = 0
    """The latest generation of the caller's modules that a task was submitted with."""

    # Workers. Some may leave when their calls have ended, the first to be told so first.
    workers: dict[bytes, Worker] = field(default_factory=dict)
    retiring: dict[bytes, Worker] = field(default_factory=dict)
    yielding: bytes = b""
    """The last worker that was to leave for a client that had none."""
    phases: dict[Phase, int] = field(default_factory=lambda: dict.fromkeys(Phase, 0))
    slots_by_phase: dict[Phase, int] = field(default_factory=lambda: dict.fromkeys(Phase, 0))
    unmatched: dict[str, bytes] = field(default_factory=dict)
    """Workers that connected before their launch was known, by log or process id."""
    withdrawn: dict[str, None] = field(default_factory=dict)
    """Workers that may not connect any more."""

    # Functions by their digests, shared objects and large results by their names.
    objects: dict[bytes, calls.RemoteObject] = field(default_factory=dict)
    retired: dict[bytes, int] = field(default_factory=dict)
    """Functions that no task uses, the oldest first, with their sizes in bytes."""
    idle_results: dict[bytes, int] = field(default_factory=dict)
    """Results that no call needs at the moment, but new ones may; with their sizes."""
    awaited: dict[int, calls.AwaitedResult] = field(default_factory=dict)
    """Results that calls refer to, by reference."""
    away: dict[bytes, None] = field(default_factory=dict)
    """Results that only workers have; `has_away` says whether there ever were any."""
    has_away: bool = False
    near: dict[bytes, dict[int, calls.OpenTask]] = field(default_factory=dict)
    """Calls that wait for the worker that has their inputs, by worker."""
    released_early: set[int] = field(default_factory=set)
    """References that were released before their result was here."""

    # Queues. A request is for one more allocation.
    queues: dict[Demand, TaskQueue] = field(default_factory=dict)
    provisioners: dict[Demand, Provisioner] = field(default_factory=dict)
    common: Provisioner = field(init=False)
    common_queue: TaskQueue = field(init=False)
    """The queue of calls that ask for nothing, and its provisioner."""
    packer: Packer[int, bytes] = field(init=False)
    pending_requests: dict[TaskQueue, int] = field(default_factory=dict)
    requesting_queues: dict[int, TaskQueue] = field(default_factory=dict)
    unheld: dict[TaskQueue, None] = field(default_factory=dict)
    """Queues that make no request: no worker holds what their calls ask for."""
    first_turn: int = 0
    """The turn of a client while no other makes requests."""
    deferred: dict[TaskQueue, None] = field(default_factory=dict)
    """Queues with more calls for their workers than one event may assign: the next event is to be
    `Continue`.
    """
    rebalance_due: bool = False
    """Whether a `Rebalance` may find something: a worker holds calls that have not begun."""
    recalled_for_new_at: float = -math.inf
    times: GroupTimes = field(default_factory=GroupTimes)

    _fitting_known: dict[Demand, int] = field(default_factory=dict)
    _common_demand: Demand = field(init=False)

    # Figures since the beginning.
    done: int = 0
    failed: int = 0
    retried: int = 0
    functions: dict[str, FunctionCounts] = field(default_factory=dict)
    failures: deque[calls.Failure] = field(default_factory=lambda: deque(maxlen=KEPT_FAILURES))
    sample: CallSample = field(default_factory=CallSample)
    log: RunLog = field(default_factory=RunLog)

    def __post_init__(self) -> None:
        policy, shared = self.policy, self.policy.resources
        self.first_policy, self.shared = policy, shared
        self.blocks = TaskBlocks(self.open_tasks)
        self.clients = {0: self.own}
        self.last_run = self.last_allocation = policy.epoch << NUMBER_BITS
        offers = None
        if shared is not None and not policy.keeps_others:
            offers = [offered(policy, shared)]
        self.packer = Packer(offers, overtake_seconds=policy.overtake_seconds)
        self._common_demand = ANY if shared is None else Demand(shared)
        self.common = self._add_provisioner(self._common_demand)
        self.common_queue = self.queues[ANY] = TaskQueue(self.common)

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
        """Open those of these tasks that are in blocks."""
        if self.blocks:
            known = self.open_tasks
            found = {self.blocks.find(task) for task in tasks if task not in known}
            self._open_blocks(one for one in found if one is not None)

    def open_all(self) -> None:
        """Open all tasks."""
        self._open_blocks(self.blocks)

    def open_blocks_of(self, client: calls.Client) -> None:
        """Open all tasks of a client."""
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
        """Return the counts for a function name; very many names share the last."""
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
        """Whether workers are about to be requested."""
        return any(one.demand_since is not None for one in self.provisioners.values())

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to look after: no task, and no worker here or requested."""
        return not (
            self.has_tasks
            or self.workers
            or self.policy.min_workers
            or self.closing
            or any(one.launched or one.requested for one in self.provisioners.values())
        )

    def launched_workers(self) -> list[LaunchedWorker]:
        """Return the launched workers that, by the scheduler's word, have not ended."""
        return [
            worker
            for one in self.provisioners.values()
            for worker in one.launched.values()
            if worker.ended_at is None
        ]

    def needed_slots(self) -> dict[Provisioner, int]:
        """Return for how many slots calls wait; where a worker fits fewer calls than it has slots,
        they count for more. Calls that only workers started by hand can hold do not count.
        """
        needed = dict.fromkeys(self.provisioners.values(), 0)
        slots = self.policy.slots
        least = 0 if self.policy.keeps_others else 1  # of a kind that raises nothing is known
        for queue in self.queues.values():
            if queue.calls and (fitting := max(self._fitting(queue.demand), least)):
                needed[queue.provisioner] += -(-queue.calls * slots // fitting)
        return needed

    def is_held(self, demand: Demand) -> bool:
        """Return whether a worker that is here or may be started can hold a call of this demand."""
        if self.policy.max_workers and self._fitting(demand):
            return True
        staying = (one for one in self.workers.values() if not one.is_leaving)
        held = {self.shared if one.held is None else one.held for one in staying}
        return any(one is None or holds(one, demand.request) for one in held)

    def missing_worker(self, demand: Demand) -> str | None:
        """Return the command that starts a worker for calls of this demand, empty if there is none;
        None if a worker holds them or comes by itself.
        """
        if not self.policy.keeps_others or self.is_held(demand):
            return None
        return worker_command(demand.request)

    def _fitting(self, demand: Demand) -> int:
        if demand not in self._fitting_known:
            if len(self._fitting_known) >= MOST_REMEMBERED:
                self._fitting_known.clear()
            self._fitting_known[demand] = fitting(self.policy, demand.request)
        return self._fitting_known[demand]

    def snapshot(self) -> Snapshot:
        """Return what others may see; the cost grows with the demands and submitters only."""
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

    def queue_for(self, demand: Demand) -> TaskQueue:
        """Return the queue of a demand, made if needed."""
        shared = self.shared is not None
        if demand is ANY or not (shared or self.policy.pooled or demand.function):
            return self.common_queue
        if shared and demand.factor != 1 and demand.resources.get(Memory) is None:
            demand = demand.with_factor(1.0)
        queue = self.queues.get(demand)
        if queue is None:
            if demand.function:  # workers announce it
                provisioner = self.announced
            else:
                of = self._common_demand if shared else demand
                provisioner = self.provisioners.get(of) or self._add_provisioner(of)
            queue = self.queues[demand] = TaskQueue(provisioner, demand)
            self._limit(queue)
        return queue

    @property
    def announced(self) -> Provisioner:
        """The provisioner of the workers that announce functions."""
        one = self.provisioners.get(ANNOUNCED)
        if one is None:
            one = self.provisioners[ANNOUNCED] = AnnouncedProvisioner(self.policy, ANNOUNCED)
        return one

    def provisioner_for(self, demand: Demand) -> Provisioner:
        """Return the provisioner that requested workers for this demand."""
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

    def forget_provisioners(self) -> None:
        """Forget unused provisioners that may request workers again."""
        used = {queue.provisioner for queue in self.queues.values()}
        for one in list(self.provisioners.values()):
            if one not in used and one is not self.common and one.is_spent(self.now):
                del self.provisioners[one.demand]

    def limited_request(self, demand: Demand) -> Resource:
        """Return the present request of a demand."""
        return limited(self.policy, self.times, demand)

    def learn_seconds(self, queue: TaskQueue, seconds: float) -> None:
        """Learn how long a call took: the limits of its group follow from it."""
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
