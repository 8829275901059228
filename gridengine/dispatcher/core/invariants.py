"""The facts that always hold between two events. `check` looks at all tables, so it is for tests
and for finding faults: the core calls it after each event when it is `checked`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias, TypeVar

from gridengine.dispatcher.core.calls import (
    CallState,
    CoreClient,
    CoreSubmitter,
    OpenTask,
    Story,
    Subject,
)
from gridengine.dispatcher.core.provisioner import MOST_WITHDRAWN
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.workers_and_queues import (
    READY,
    Batch,
    Run,
    SlotGroup,
    TaskQueue,
    Worker,
    WorkerPhase,
)

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
Held: TypeAlias = tuple[int, int, CallState]
"""Calls of a task, `start` to before `stop`, and the state that follows from their place."""


def check(state: CoreState, *, ticked: bool = False) -> None:
    """Check all invariants of the core, after a tick also that no call waits for nothing.

    Raises:
        Broken: one does not hold; the text ends with the last events of the task or worker that it
            is about.
    """
    found = _Check(state)
    found.check()
    if ticked and state.shared is not None:
        found.check_progress()


class _Check:
    """The tables of a core at one moment, grouped by owner."""

    def __init__(self, state: CoreState) -> None:
        self.state = state
        self.story = state.story or Story()
        self.tasks = list(state.open_tasks.values())
        self.runs = list(state.runs.values())
        self.workers = list(state.workers.values())
        self.groups = [group for worker in self.workers for group in worker.slot_groups]
        self.runs_of = grouped(self.runs, lambda run: run.worker.id)
        self.batches = {id(run.batch): run for run in self.runs}
        """One run of each batch."""

    def same(self, what: str, kept: object, counted: object, of: Subject | None = None) -> None:
        """Check that a count or table that the core keeps equals the one derived from the other
        tables.
        """
        if kept != counted:
            raise self.story.broken(f"{what}: {kept!r} is kept, {counted!r} is found", of)

    def holds(self, fact: object, text: str, of: Subject | None = None) -> None:
        """Check that a fact is true."""
        if not fact:
            raise self.story.broken(text, of)

    def check(self) -> None:
        self.holds(self.state.agenda.is_done, "an event ends, and something is left to do")
        self.check_calls()
        self.check_parents()
        self.check_clients()
        self.check_functions()
        for queue in self.state.queues.values():
            self.check_queue(queue)
        self.check_provisioners()
        if self.state.shared is not None:
            self.check_packer()
        for worker in self.workers:
            self.check_worker(worker)
        for group in self.groups:
            self.check_slot_group(group)
        self.check_objects()
        self.check_results()
        self.check_snapshot()

    def check_calls(self) -> None:
        """Each call that is not settled is in exactly one place."""
        held: dict[int, list[Held]] = {one.id: [] for one in self.tasks}
        for queue in self.state.queues.values():
            for span in queue.waiting:
                held[span.open_task.id].append((span.start, span.stop, "waiting"))
        self.same("runs", len(self.runs), sum(len(worker.runs) for worker in self.workers))
        for run in self.runs:
            queue = run.slot_group.queue
            self.holds(self.state.queues[queue.demand] is queue, "a run's queue is forgotten")
            held[run.span.open_task.id].append((run.done, run.span.stop, "assigned"))
        runs = grouped(self.runs, lambda run: run.span.open_task.id)
        self.holds(self.state.saved.keys() <= held.keys(), "a state of a task that has ended")
        for one in self.tasks:
            its = held[one.id]
            if one.missing and not one.runs:
                its.append((0, 1, "missing"))
            self.check_task(one, sorted(its), runs[one.id])

    def check_task(self, one: OpenTask, held: Sequence[Held], runs: Iterable[Run]) -> None:
        """A task agrees with the spans of its calls (`held`)."""
        task, calls = one.id, sum(stop - start for start, stop, _ in held)
        self.holds(all(start < stop for start, stop, _ in held), "an empty span", task)
        twice = any(before[1] > after[0] for before, after in pairwise(held))
        self.holds(not twice, f"a call of task {task} is in two places: {held}", task)
        awaited = [needed for needed in one.inputs if one in needed.waiting]
        self.same("the missing inputs", one.missing, len(awaited), task)
        self.same("unsettled calls", one.unsettled, calls, task)
        remade, ranges = one.details.remade, one.details.settled or ()
        settled = 0 if remade else sum(stop - start for start, stop in ranges)
        self.same("all calls", 1 if remade else one.count, settled + calls, task)
        lost = [one.is_settled(start) for start, _, _ in held]
        self.holds(remade or not any(lost), f"a settled call is in {held}", task)
        self.same("its runs", set(one.runs), {run.number for run in runs}, task)
        if (story := self.state.story) is not None:
            for start, stop, state in held:
                for index in story.states_of(one, start, stop, but=state):
                    raise story.broken(f"call {index} is not {state}, where it is", task)

    def check_parents(self) -> None:
        """Calls end with the calls that have made them."""
        children = grouped(self.tasks, lambda one: one.details.parent)
        for run in self.runs:
            its = {one.id for one in children.pop(run.number, ())}
            of = run.span.open_task.id
            self.same(f"the children of run {run.number}", set(run.children or ()), its, of)
        for parent, orphans in children.items():
            wanted = [one.id for one in orphans if not one.details.unwanted]
            self.holds(not parent or not wanted, f"{wanted} outlive what has made them")

    def check_clients(self) -> None:
        """Clients and submitters agree with their calls and batches."""
        state = self.state
        slots = [run for run in self.batches.values() if not run.batch.waiting]
        tasks = counted(self.tasks, lambda one: one.submitter)
        batches = counted(slots, _submitter)
        loads = counted(slots, _submitter, lambda run: run.batch.load)
        self.same("the submitters", set(state.submitters.values()), set(tasks))
        for number, one in state.submitters.items():
            self.same("a submitter's number", one.number, number)
            its = tasks[one], batches[one], loads[one]
            self.same(f"what submitter {number} has", (one.open, one.batches, one.load), its)
        submitters = counted(state.submitters.values(), lambda one: one.client)
        loads_of = counted(slots, _client, lambda run: run.batch.load)
        running = counted(self.runs, _client, _calls)
        unsettled = counted(self.tasks, lambda one: one.submitter.client, _unsettled)
        self.holds(state.clients[0] is state.own, "the own client is another")
        self.holds(set(submitters) <= set(state.clients.values()), "a client is not known")
        self.same("the active clients", state.active_clients, len(submitters))
        for number, client in state.clients.items():
            self.same("a client's number", client.number, number)
            self.holds(submitters[client] or not client.left, f"client {number} has left")
            self.same(f"the share of client {number}", client.share, client.load / client.weight)
            kept = client.submitters, client.load, client.running, client.unsettled
            found = submitters[client], loads_of[client], running[client], unsettled[client]
            self.same(f"what client {number} has", kept, found)

    def check_functions(self) -> None:
        """The counts of functions agree with their calls."""
        unsettled = counted(self.tasks, lambda one: id(one.function.counts), _unsettled)
        running = counted(self.runs, lambda run: id(run.span.open_task.function.counts), _calls)
        for name, one in self.state.functions.items():
            its = unsettled[id(one)], running[id(one)]
            self.same(f"the calls of {name}", (one.unsettled, one.running), its)

    def check_queue(self, queue: TaskQueue) -> None:
        """A queue counts its calls and slots, and none waits beside a free slot."""
        state = self.state
        waiting = sum(span.calls for span in queue.waiting)
        groups = [one for one in self.groups if one.queue is queue]
        found = waiting, sum(one.slots for one in groups)
        self.same("a queue's calls and slots", (queue.calls, queue.slots), found)
        self.holds(queue.idle.keys() | queue.ahead.keys() <= set(groups), "a slot group is gone")
        waits = queue.calls and queue not in state.deferred
        self.holds(not (waits and queue.idle), "work waits while a worker has nothing to do")
        for floor, its in queue.reserved.items():
            listed = all(one.listed is its and one.worker.floor == floor for one in its)
            self.holds(listed, "a slot is reserved for other calls than its list says")
            kept = waits and its and floor < queue.waiting.deepest
            self.holds(not kept, "calls wait while a slot is reserved for them")
        used = queue.calls or groups or queue.running or queue is state.common_queue
        self.holds(used, "an empty queue is kept")
        known = state.provisioners[queue.provisioner.demand] is queue.provisioner
        self.holds(known, "a queue's provisioner is not known")

    def check_provisioners(self) -> None:
        """A provisioner knows its workers, and counts them by their state."""
        workers = grouped(self.workers, lambda worker: worker.provisioner)
        for demand, one in self.state.provisioners.items():
            self.same("a provisioner's demand", one.demand, demand)
            its = workers.pop(one, [])
            idle = {worker.id for worker in its if worker.phase is READY and not worker.batches}
            suspended = {
                worker.id: worker.draining or worker.is_spent
                for worker in its
                if 0 < worker.waiting == worker.batches
            }
            kept = one.workers, one.idle, one.suspended
            self.same("the workers of a provisioner", kept, (len(its), idle, suspended))
            for key, launch in one.launched.items():
                alone = launch.worker is None
                expected = alone and launch.ended_at is None
                self.same(f"whether {key} is expected", key in one.expected, expected)
                worker = self.state.workers.get(launch.worker or b"")
                known = alone or (worker is not None and worker.launch is launch)
                self.holds(known, f"{key} is somebody else")
        self.holds(not workers, "a worker's provisioner is not known")
        self.holds(len(self.state.withdrawn) <= MOST_WITHDRAWN, "too many withdrawn are kept")
        unmatched = set(self.state.unmatched.values())
        self.holds(unmatched <= set(self.state.workers), "who is unmatched is gone")

    def check_packer(self) -> None:
        """The packer knows the workers and their allocations, and each queue with calls asks it."""
        state, packer = self.state, self.state.packer
        allocated = {worker.id: set[int]() for worker in self.workers if worker.open}
        for group in (one for one in self.groups if one.worker.open):
            self.same("the allocations of slots", len(group.packed), group.slots, group.worker.id)
            allocated[group.worker.id] |= set(group.packed)
        self.same("the places that the packer has given", packer.places, allocated)
        numbers = {number: queue for queue, number in state.pending_requests.items()}
        self.same("the queues of requests", state.requesting_queues, numbers)
        self.same("how many requests the packer has", packer.waiting, len(numbers))
        for queue in state.queues.values():
            exempt = queue in state.deferred or queue in state.unheld or queue.demand.function
            asks = queue in state.pending_requests or exempt
            self.holds(asks or not queue.calls, f"calls of {queue.demand} wait, and nobody asks")

    def check_progress(self) -> None:
        """No call waits that could begin on a worker with room."""
        for request, holder in self.state.packer.overlooked(self.state.now):
            demand = self.state.requesting_queues[request].demand
            raise self.story.broken(f"calls of {demand} wait, and this worker has room", holder)

    def check_worker(self, worker: Worker) -> None:
        """A worker's counts agree with its runs and batches, and its slots are given out only when
        they may be.
        """
        of, state = worker.id, self.state
        its = self.runs_of[worker.id]
        self.same("a worker's runs", worker.runs, {run.number: run for run in its}, of)
        runs = grouped(its, lambda run: id(run.batch))
        batches: list[Batch] = [its[0].batch for its in runs.values()]
        waiting = sum(batch.waiting for batch in batches)
        kept = worker.batches, worker.calls, worker.waiting
        self.same("what it has", kept, (len(batches), sum(map(_calls, its)), waiting), of)
        for batch in batches:
            self.same("the runs of a batch", batch.runs, len(runs[id(batch)]), of)
        self.holds(worker.waiting <= state.policy.max_nesting, "too many of its calls wait", of)
        deepest = worker.waiting_depths()[2 * worker.hello.slots - 1 :][:1]
        floor = max(*deepest, 0 if state.draining else -1, -1)
        self.same("for which calls its slots are", worker.floor, floor, of)
        resuming = all(worker.runs[number].batch.waiting for number in worker.resuming)
        self.holds(resuming, "a call asks for the slot that it has", of)
        if worker.phase is READY:
            self.same("whether slots are withheld", worker.withheld, bool(worker.resuming), of)
            leaves = worker.batches or not worker.draining
            self.holds(leaves, "it has nothing to do, and does not leave", of)
        self.holds(worker.draining or of not in state.retiring, "it is to leave and to stay", of)
        is_open = worker.open or worker.hello.functions
        self.holds(is_open or not worker.slot_groups, "a closed worker has slots", of)

    def check_slot_group(self, group: SlotGroup) -> None:
        """A slot group counts its batches, and is listed where it belongs."""
        worker, queue, of = group.worker, group.queue, group.worker.id
        share, shared = self.state.policy.jobs_per_worker, self.state.shared is not None
        its = {id(run.batch): run.batch for run in worker.runs.values() if run.slot_group is group}
        running = sum(not batch.waiting for batch in its.values())
        self.same("the batches of a slot group", group.batches, running, of)
        willing = not worker.closed_because
        free, second = group.batches < group.slots, group.batches < 2 * group.slots
        lists = [queue.idle, queue.ahead, *queue.reserved.values()]
        listed = [id(one) for one in lists if group in one]
        known = [] if group.listed is None else [id(group.listed)]
        self.same("where it is listed", known, listed, of)
        fits = group not in queue.idle or (willing and free)
        self.holds(fits, "a slot is listed as free", of)
        fits = group not in queue.ahead or (willing and share is None and second and not free)
        self.holds(fits, "a slot group is listed as ahead", of)
        asks = worker.resuming and worker.phase is READY and not shared
        self.holds(not (asks and free), "a slot is free, and not given again", of)
        if of not in self.state.passed_over:
            is_free = group.listed is not None and group.listed is not queue.ahead
            self.same("whether it may be assigned calls", is_free, willing and free, of)

    def check_objects(self) -> None:
        """Functions and shared objects are there while tasks use them."""
        state = self.state
        holders = defaultdict[bytes, set[bytes]](set)
        for worker in self.workers:
            for digest in worker.functions:
                holders[digest].add(worker.id)
        uses = Counter[bytes]()
        for one in self.tasks:
            uses.update({known.function.digest for known in (one.function, *one.details.needs)})
        self.holds(set(holders) <= set(state.objects), "a worker has what nobody knows")
        sending = Counter[bytes]()
        for digest, known in state.objects.items():
            name = f"{known.function.name} {digest.hex()[:8]}"
            its = known.workers | known.pulls.keys()
            self.same(f"the workers that have or pull {name}", its, holders[digest])
            self.holds(known.workers.isdisjoint(known.pulls), f"{name} is pulled where it is")
            sending.update(source for source, _ in known.pulls.values())
            if known.result:
                awaited = state.awaited[int.from_bytes(digest, "big")]
                self.holds(awaited.remote is known, f"{name} is another's result")
                self.same(f"whether {name} is away", known.away, not known.function.payload)
                listed = (digest in state.away) == known.away or state.closing
                self.holds(listed, f"{name} is away and not listed, or the other way round")
                continue
            self.same(f"the tasks that use {name}", known.open, uses[digest])
            idle = not known.open and not known.shared
            self.same(f"whether {name} is retired", digest in state.retired, idle)
            used = known.open or known.held or not known.shared
            self.holds(used, f"{name} is kept for nobody")
        for worker in self.workers:
            self.same("the pulls from a worker", worker.sending, sending[worker.id])

    def check_results(self) -> None:
        """Each result that a call needs is recorded. No call waits for a result that is here, or
        that will never come.
        """
        state = self.state
        near = {task for tasks in state.near.values() for task in tasks}
        needed = [needed.reference for one in self.tasks for needed in one.inputs]
        dependents = Counter(needed)
        self.holds(state.awaited.keys() >= dependents.keys(), "a result is gone too early")
        for reference, awaited in state.awaited.items():
            self.same(f"the dependents of {reference}", awaited.open, dependents[reference])
            waiting = {one.id for one in awaited.waiting}
            its = all(awaited in one.inputs for one in awaited.waiting)
            self.holds(its, f"{reference} is awaited by others")
            remote = awaited.remote
            is_here = awaited.data and (remote is None or not remote.away)
            self.holds(not (waiting and is_here), f"{waiting} wait for what is there")
            if remote is not None and remote.away and not state.closing:
                comes = remote.asked in {*remote.workers, *remote.pulls}
                self.holds(comes or waiting <= near, f"{waiting} wait for {reference} for ever")
                self.holds(comes or not awaited.asked, f"{reference} is asked for and never comes")

    def check_snapshot(self) -> None:
        """The snapshot agrees with the tables."""
        state, seen = self.state, self.state.snapshot()
        phases = Counter(worker.phase for worker in self.workers)
        ready = [worker for worker in self.workers if worker.phase is READY]
        for phase in (WorkerPhase.READY, WorkerPhase.SILENT, WorkerPhase.STOPPING):
            self.same(f"workers that are {phase.value}", state.phases[phase], phases[phase])
        self.same("busy ones", seen.statuses["busy"], sum(one.batches > 0 for one in ready))
        slots = sum(worker.hello.slots for worker in ready)
        self.same("their slots", state.slots_by_phase[READY], slots)
        self.same("calls that run", seen.calls_running, sum(map(_calls, self.runs)))
        missing = sum(one.unsettled for one in self.tasks if one.missing and not one.runs)
        unsettled = sum(one.unsettled for one in self.tasks) - missing
        self.same("calls that wait or run", seen.waiting + seen.calls_running, unsettled)
        ended = sum(one.done for one in state.clients.values())
        self.holds(ended <= state.done, "clients have more calls that are done than there are")


def _submitter(run: Run) -> CoreSubmitter:
    return run.span.open_task.submitter


def _client(run: Run) -> CoreClient:
    return run.span.open_task.submitter.client


def _calls(run: Run) -> int:
    return run.span.stop - run.done


def _unsettled(one: OpenTask) -> int:
    return one.unsettled


def grouped(many: Iterable[T], key: Callable[[T], K]) -> defaultdict[K, list[T]]:
    """Return the items in lists by their keys."""
    found = defaultdict[K, list[T]](list)
    for one in many:
        found[key(one)].append(one)
    return found


def counted(
    many: Iterable[T], key: Callable[[T], K], count: Callable[[T], int] = lambda one: 1
) -> Counter[K]:
    """Add up the items' counts (1 each by default) by their keys."""
    found = Counter[K]()
    for one in many:
        found[key(one)] += count(one)
    return found
