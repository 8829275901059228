"""The tables, effects and counters of a dispatcher's core, and its agenda. Every other module of
the core takes this one object.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from gridengine.dispatcher.core import calls
from gridengine.dispatcher.core.calls import CallState, OpenTask, Story
from gridengine.dispatcher.core.events import Inform
from gridengine.dispatcher.core.launches import BadHost, FailedStarts, LaunchedWorker, Pace
from gridengine.dispatcher.core.policy import Policy, fitting, holds, limited, offered
from gridengine.dispatcher.core.provisioner import ANNOUNCED, Provisioner
from gridengine.dispatcher.core.workers_and_queues import (
    Run,
    SlotGroup,
    TaskQueue,
    Worker,
    WorkerPhase,
)
from gridengine.requests import CallsFinished, Effect
from gridengine.resources.base import Resource
from gridengine.resources.demand import ANY, MOST_REMEMBERED, Demand, GroupTimes, worker_command
from gridengine.resources.kinds import Memory, WTime
from gridengine.resources.packing import Packer
from gridengine.serialize.payload import Payload
from gridengine.status.figures import CallSample, FailureStatus, FunctionCounts
from gridengine.status.run_log import Figures, RunLog
from gridengine.status.snapshot import ClientCounts, Snapshot
from gridengine.wire.messages import NUMBER_BITS


class Agenda:
    """The work that an event has caused and that is not done yet.

    Handlers add to the agenda; `StateMachine.handle` works it off, from the first attribute to the
    last, and begins again while new work comes. Between two events everything is empty except
    `room_freed` and `reorder`, which wait until a queue asks the packer for something. Each entry
    is there once, however often an event adds it.
    """

    def __init__(self) -> None:
        self.returning: dict[bytes, Worker] = {}
        """Workers on which a call that waits for its slot may get it back now."""
        self.orphans: list[int] = []
        """Tasks whose parent call has ended: they are cancelled."""
        self.linked: list[tuple[OpenTask, CallsFinished]] = []
        """Outcomes of calls that others depend on, or that depend on others."""
        self.begun: dict[TaskQueue, OpenTask] = {}
        """Queues with a new call whose last input has just come; each with one such call."""
        self.freed_slots: dict[SlotGroup, None] = {}
        """Slot groups in which a batch has ended."""
        self.changed_queues: dict[TaskQueue, None] = {}
        """Queues with other calls or slots than before: calls are assigned from them."""
        self.scale = False
        """Whether to compare the number of workers with the number that is needed."""
        self.room_freed = False
        """Whether the packer may find room where it found none before."""
        self.reorder = False
        """Whether the packer's requests are out of order."""

    @property
    def is_done(self) -> bool:
        """Whether an event may end here."""
        left = self.returning, self.orphans, self.linked, self.begun
        return not any((*left, self.freed_slots, self.changed_queues, self.scale))


MOST_FUNCTIONS, OTHER_FUNCTIONS = 200, "others"
"""Calls are counted by function name for this many names; all others are under one name."""
MOST_FAILURES = 200
"""The records of this many failed calls are kept, the latest ones."""


class CoreState:
    """All that the core knows. Each queue belongs to the provisioner that launches its workers.

    Where `policy.resources` says what each worker holds, there is one provisioner, and requests
    share its workers: the packer gives out what they hold. Where calls of each demand have workers
    of their own (`policy.pooled`), each demand has a provisioner, whose workers offer exactly that
    demand. Elsewhere demands do not matter, and there is one provisioner and one queue.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = self.first_policy = policy
        """The limits that hold now, and the initial ones that a `Scaled` can restore."""
        self.shared = policy.resources
        """The resources of each worker, if requests share the workers."""
        self.story: Story | None = None
        """The last events of tasks and workers; None unless the core is checked."""
        self.closing = self.draining = False
        """`closing`: everything is to end. `draining`: only nested calls may begin."""
        self.now = 0.0
        """The time of the event that is being handled."""
        self.effects: list[Effect] = []
        self.agenda = Agenda()
        self._add_tasks()
        self._add_workers()
        self._add_results()
        self._add_queues()
        self._add_figures()

    def _add_tasks(self) -> None:
        self.open_tasks: dict[int, calls.OpenTask] = {}
        """All tasks that have not ended."""
        self.submitters: dict[int, calls.CoreSubmitter] = {}
        """The submitters of open tasks."""
        self.own = calls.CoreClient(0)
        """The dispatcher's own process."""
        self.clients = {0: self.own}
        """The clients by number: `own`, those that have joined, and those that have open tasks."""
        self.active_clients = 0
        """How many clients have open tasks."""
        self.runs: dict[int, Run] = {}
        self.last_run = self.last_allocation = self.policy.epoch << NUMBER_BITS
        """The next process of the same dispatcher uses other numbers."""
        self.saved: dict[int, dict[int, Payload]] = {}
        """The states that calls in progress have saved, by task and index."""
        self.last_order = self.last_remade = self.last_batch = 0
        self.generation = 0
        """The latest generation of the caller's modules that a task was submitted with."""

    def _add_workers(self) -> None:
        self.workers: dict[bytes, Worker] = {}
        self.retiring: dict[bytes, Worker] = {}
        """Workers that leave when their calls have ended, in the order in which they were told."""
        self.checked_workers = 0
        """How many of the workers were looked at in the present round of checks."""
        self.yielding = b""
        """The latest worker that was told to leave for a client without workers."""
        self.phases = dict.fromkeys(WorkerPhase, 0)
        self.slots_by_phase = dict.fromkeys(WorkerPhase, 0)
        self.passed_over: dict[bytes, None] = {}
        """Workers that leave too soon for the call whose turn it was, since the last tick."""
        self.unmatched: dict[str, bytes] = {}
        """Workers that connected before their launch was known, by log or process id."""
        self.withdrawn: dict[str, None] = {}
        """Workers that may not connect any more."""
        self.pace = Pace()
        self.left_out: dict[str, BadHost] = {}
        """The hosts on which workers could not be started."""

    def _add_results(self) -> None:
        self.objects: dict[bytes, calls.RemoteObject] = {}
        """Functions by their digests, shared objects and large results by their names."""
        self.retired: dict[bytes, int] = {}
        """Functions that no task uses, the oldest first, with their sizes in bytes."""
        self.idle_results: dict[bytes, int] = {}
        """Results that no call needs at the moment, but new ones may; with their sizes."""
        self.awaited: dict[int, calls.AwaitedResult] = {}
        """Results that calls refer to, by reference."""
        self.away: dict[bytes, None] = {}
        self.has_away = False
        """Results that only workers have; and whether there ever were any."""
        self.last_pull = 0
        self.no_ways: dict[tuple[str, str], float] = {}
        self.has_way = False
        """Pairs of hosts of which the second could not connect to workers on the first, and until
        when it does not try again; and whether any hosts have ever connected.
        """
        self.near: dict[bytes, dict[int, calls.OpenTask]] = {}
        """Calls that wait for the worker that has their inputs, by worker."""
        self.released_early: set[int] = set()
        """References that were released before their result was here."""

    def _add_queues(self) -> None:
        policy, shared = self.policy, self.shared
        offers = None
        if shared is not None and not policy.keeps_others:
            offers = [offered(policy, shared)]
        self.packer: Packer[int, bytes] = Packer(
            offers, overtake_seconds=policy.overtake_seconds, admits=self._admits
        )
        self.pending_requests: dict[TaskQueue, int] = {}
        self.requesting_queues: dict[int, TaskQueue] = {}
        """Queues that request one more allocation of the packer, and the requests' numbers."""
        self.unheld: dict[TaskQueue, None] = {}
        """Queues that request nothing: no worker holds the resources that their calls request."""
        self.first_turn = 0
        """The turn of a client while no other client has tasks."""
        self.queues: dict[Demand, TaskQueue] = {}
        self.provisioners: dict[Demand, Provisioner] = {}
        self._fitting_known: dict[Demand, int] = {}
        self._common_demand = ANY if shared is None else Demand(shared)
        self.common = self._add_provisioner(self._common_demand)
        self.common_queue = self.queues[ANY] = TaskQueue(self.common)
        """The queue of calls that ask for nothing, and its provisioner."""
        self.deferred: dict[TaskQueue, None] = {}
        """Queues with more calls for their workers than one event may assign: the next event is to
        be `Continue`.
        """
        self.rebalance_due = False
        """Whether a `Rebalance` may find something: a worker holds calls that have not begun."""
        self.recalled_for_new_at = -math.inf
        """When calls were last recalled for a submitter without a share."""
        self.times = GroupTimes()

    def _add_figures(self) -> None:
        self.done = self.failed = self.cancelled = self.retried = 0
        self.functions: dict[str, FunctionCounts] = {}
        self.failures: deque[tuple[float, FailureStatus]] = deque(maxlen=MOST_FAILURES)
        self.sample = CallSample()
        self.log = RunLog()

    def say(self, lines: Iterable[str]) -> None:
        """Add these lines to the log."""
        self.effects += map(Inform, lines)

    @property
    def has_nested(self) -> bool:
        """Whether a nested call waits for a worker."""
        return any(queue.calls and queue.waiting.deepest for queue in self.queues.values())

    def state_of(self, one: calls.OpenTask, index: int) -> CallState:
        """Return the state of a call, by its place."""
        if one.is_settled(index):
            return "settled"
        runs = map(self.runs.__getitem__, one.runs)
        if any(run.done <= index < run.span.stop for run in runs):
            return "assigned"
        return "missing" if one.missing and not one.runs else "waiting"

    @property
    def calls_waiting(self) -> int:
        """How many calls wait for a worker."""
        return sum(queue.calls for queue in self.queues.values())

    def counts_of(self, name: str) -> FunctionCounts:
        """Return the counts for a function name. When there are too many names, the others share
        one entry.
        """
        counts = self.functions.get(name)
        if counts is None:
            name = name if len(self.functions) < MOST_FUNCTIONS else OTHER_FUNCTIONS
            counts = self.functions.setdefault(name, FunctionCounts(name))
        return counts

    @property
    def figures(self) -> Figures:
        """The figures of all calls so far."""
        return self.done, self.failed, self.cancelled, self.retried

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
        """Whether the core has nothing to look after: no task, and no worker that is connected or
        requested.
        """
        return not (
            self.open_tasks
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
        they count for more. Calls that only workers started by hand can hold do not count. While
        the dispatcher drains, only nested calls do.
        """
        needed = dict.fromkeys(self.provisioners.values(), 0)
        slots = self.policy.slots
        least = 0 if self.policy.keeps_others else 1  # a user's kind may raise
        for queue in self.queues.values():
            calls = queue.waiting.nested_calls if self.draining else queue.calls
            if calls and (fitting := max(self._fitting(queue.demand), least)):
                needed[queue.provisioner] += -(-calls * slots // fitting)
        return needed

    def is_held(self, demand: Demand) -> bool:
        """Return whether a worker that is connected, or that may be launched, can hold a call of
        this demand.
        """
        if self.policy.max_workers and self._fitting(demand):
            return True
        staying = (one for one in self.workers.values() if not one.is_leaving)
        held = {self.shared if one.held is None else one.held for one in staying}
        return any(one is None or holds(one, demand.request) for one in held)

    def _admits(self, request: int, holder: bytes) -> bool:
        """Return whether the next call of the queue that made a request may begin at a worker now,
        apart from the worker's resources. The packer asks.
        """
        worker, queue = self.workers[holder], self.requesting_queues[request]
        return not worker.closed_because and (
            not queue.calls
            or (worker.floor < queue.waiting.deepest and self.stays_for(queue, worker))
        )

    def stays_for(self, queue: TaskQueue, worker: Worker) -> bool:
        """Return whether a worker stays long enough for the next call of a queue. A worker that
        does not is tried again at the next tick: another call may be the next one by then.

        A call that may run only once is expected to take as long as earlier calls, if another
        worker may stay longer.
        """
        if worker.leave_at == math.inf:
            return True
        one = queue.waiting.first(worker.floor).open_task
        once = not one.options.retries and worker.taken
        seconds = max(queue.soft, one.pace.seconds or 0.0) if once else queue.soft
        if worker.has_seconds(seconds, self.now):
            return True
        self.passed_over[worker.id] = None
        return False

    def missing_worker(self, demand: Demand) -> str | None:
        """Return the command by which somebody must start a worker for calls of this demand; empty
        if no command does. None if such a worker is there or is launched by the scheduler.
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
        """Return the counts that other threads may see; the cost grows with the demands and
        submitters only.
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
                    weight=one.weight,
                    waiting=one.unsettled - one.running,
                    running=one.running,
                    done=one.done,
                    failed=one.failed,
                    cancelled=one.cancelled,
                )
                for number, one in self.clients.items()
            },
            calls_running=sum(queue.running for queue in queues),
            done=self.done,
            failed=self.failed,
            cancelled=self.cancelled,
            retried=self.retried,
            output=self.log.output,
            statuses={
                "requested": sum(one.requested for one in provisioners),
                "launched": sum(len(one.expected) for one in provisioners),
                "idle": idle,
                "busy": phases[WorkerPhase.READY] - idle,
                "silent": phases[WorkerPhase.SILENT],
                "stopping": phases[WorkerPhase.STOPPING],
            },
            slots=sum(queue.slots for queue in queues),
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
            one = self.provisioners[ANNOUNCED] = Provisioner(self.policy, ANNOUNCED, elastic=False)
        return one

    def provisioner_for(self, demand: Demand) -> Provisioner:
        """Return the provisioner that requested workers for this demand."""
        return self.provisioners.get(demand, self.common)

    def _add_provisioner(self, demand: Demand) -> Provisioner:
        one = Provisioner(
            self.policy,
            demand,
            unmatched=self.unmatched,
            withdrawn=self.withdrawn,
            pace=self.pace,
            starts=FailedStarts(demand, self.left_out),
        )
        self.provisioners[demand] = one
        return one

    def forget_if_unused(self, queue: TaskQueue) -> None:
        """Forget a queue without calls and slots."""
        if queue.calls or queue.slots or queue.running or queue is self.common_queue:
            return
        # A deferred queue may have been forgotten since, and its demand may have another queue now.
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
        """Record how long a call took. The time limits of its group may change with it."""
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
