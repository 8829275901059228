"""The counts that the core keeps beside its tables; no other module changes them.

A count answers a question in constant time that would otherwise take a walk over all calls or
workers: how large a client's share is, how many calls wait, which workers are idle. `invariants`
counts everything again and compares.

| of | counts |
|---|---|
| a client | `load`, `share`, `unsettled`, `running`, `done`, `failed`, `cancelled`, `submitters` |
| a submitter | `open` tasks, `batches`, `load` |
| functions of a name | `unsettled`, `running`, `done`, `failed`, `cancelled`, `retried` |
| a function | `open` tasks |
| a slot group | `batches` |
| a worker | `batches`, `calls`, `waiting` |
| a queue | `running` (its `calls` and `slots` it counts itself) |
| a provisioner | `workers`, `idle`, `by_hand`, `suspended` |
| the core | `active_clients`, `phases`, `slots_by_phase`; `done` to `retried` as for functions |
"""

from __future__ import annotations

from gridengine.dispatcher.core.calls import CoreClient, CoreSubmitter, OpenTask, RemoteObject
from gridengine.dispatcher.core.provisioner import Provisioner
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.workers_and_queues import (
    NEXT_PHASES,
    READY,
    Batch,
    Run,
    SlotGroup,
    Worker,
    WorkerPhase,
)
from gridengine.errors import UNNUMBERED
from gridengine.requests import MOST_PRIORITY


def open_task(submitter: CoreSubmitter, function: RemoteObject, calls: int, first: int) -> None:
    """Count a new task of a submitter with this many calls; `first` is the number of the first of
    them in its map.
    """
    if first != UNNUMBERED and first + calls > function.counts.numbered:
        function.counts.numbered = first + calls
    submitter.open += 1
    function.open += 1
    submitter.client.unsettled += calls
    function.counts.unsettled += calls


def add_submitter(state: CoreState, submitter: CoreSubmitter) -> None:
    """Take in a submitter that is to have open tasks."""
    state.submitters[submitter.number] = submitter
    client = submitter.client
    if not client.submitters:
        state.active_clients += 1
        state.clients.setdefault(client.number, client)
    client.submitters += 1


def count_outcomes(
    state: CoreState, one: OpenTask, calls: int, done: bool | None, *, cancelled: bool = False
) -> None:
    """Count calls that have an outcome: a value, or a failure, also a cancellation, or None when
    they were recalled. Forget a task with its last call; and its submitter, and a client that has
    left, with their last task.
    """
    submitter, function = one.submitter, one.function
    client, counts = submitter.client, function.counts
    one.unsettled = left = one.unsettled - calls
    client.unsettled -= calls
    counts.unsettled -= calls
    if done is not None and not one.details.remade:
        if done:
            state.done += calls
            client.done += calls
            counts.done += calls
        elif cancelled:
            state.cancelled += calls
            client.cancelled += calls
            counts.cancelled += calls
        else:
            state.failed += calls
            client.failed += calls
            counts.failed += calls
    if left:
        return
    del state.open_tasks[one.id]
    function.open -= 1
    submitter.open -= 1
    if submitter.open:
        return
    del state.submitters[submitter.number]
    client.submitters -= 1
    if not client.submitters:
        state.active_clients -= 1
        if client.left and state.clients.get(client.number) is client:
            del state.clients[client.number]
        if client.left or state.active_clients == 1:
            # The only client that is left requests slots in the order in which its calls came.
            state.first_turn = turn_of(state.packer.furthest) + 1
            state.agenda.reorder = True


def retry(state: CoreState, one: OpenTask, calls: int) -> None:
    """Count calls that have failed and run again."""
    state.retried += calls
    one.function.counts.retried += calls


def count_running(group: SlotGroup, one: OpenTask, calls: int) -> None:
    """Change the counts of calls at a worker by this number, which may be negative."""
    group.queue.running += calls
    group.worker.calls += calls
    one.submitter.client.running += calls
    one.function.counts.running += calls


def begin_batch(group: SlotGroup, batch: Batch, one: OpenTask, calls: int) -> None:
    """Count a new batch of a worker, with the calls of its first run."""
    worker, submitter = group.worker, one.submitter
    group.queue.running += calls
    worker.calls += calls
    submitter.client.running += calls
    one.function.counts.running += calls
    worker.batches += 1
    worker.provisioner.idle.discard(worker.id)
    client, load = submitter.client, batch.load  # `count_slot`, inlined to save time
    group.batches += 1
    submitter.batches += 1
    submitter.load += load
    client.load = client_load = client.load + load
    client.share = client_load / client.weight
    if worker.waiting:
        note_suspended(worker)


def end_run(state: CoreState, run: Run) -> None:
    """Count the end of a run; with the last run of a batch also the end of the batch. A batch that
    waits for nested calls has given its slot back before.
    """
    group, batch, one = run.slot_group, run.batch, run.span.open_task
    worker, submitter, calls = group.worker, one.submitter, run.span.stop - run.done
    client = submitter.client
    group.queue.running -= calls
    worker.calls -= calls
    client.running -= calls
    one.function.counts.running -= calls
    batch.runs -= 1
    if batch.runs:
        return
    worker.batches = left = worker.batches - 1
    if batch.waiting:
        count_waiting(state, worker, -1)
    else:
        load = batch.load
        group.batches -= 1
        submitter.batches -= 1
        submitter.load -= load
        client.load = client_load = client.load - load
        client.share = client_load / client.weight
        state.agenda.freed_slots[group] = None
        if worker.waiting:
            note_suspended(worker)
    if not left and worker.phase is READY:
        worker.provisioner.idle.add(worker.id)


def count_slot(group: SlotGroup, batch: Batch, submitter: CoreSubmitter, sign: int) -> None:
    """Count a batch that gets a slot (`sign` 1) or leaves its slot (-1) in its client's share."""
    client, load = submitter.client, sign * batch.load
    group.batches += sign
    submitter.batches += sign
    submitter.load += load
    client.load = client_load = client.load + load
    client.share = client_load / client.weight


def set_weight(client: CoreClient, weight: float) -> None:
    """Give a client a weight, from which its share follows."""
    client.weight, client.share = weight, client.load / weight


def count_waiting(state: CoreState, worker: Worker, batches: int) -> None:
    """Count batches that begin to wait for their children, or (if negative) go on."""
    worker.waiting += batches
    note_suspended(worker)
    set_floor(state, worker)


def set_floor(state: CoreState, worker: Worker) -> None:
    """Say for which calls a worker's slots are.

    When twice as many batches wait as the worker has slots, its slots are reserved for calls nested
    deeper than these. Otherwise every queued call might begin there, and wait for children of its
    own. While the dispatcher drains they are reserved for nested calls: running calls cannot end
    without these.
    """
    depths, most = worker.waiting_depths(), 2 * worker.hello.slots
    floor = depths[most - 1] if len(depths) >= most else -1
    floor = max(floor, 0) if state.draining else floor
    if floor != worker.floor:
        worker.floor = floor
        reconsider(state, worker)


def reconsider(state: CoreState, worker: Worker) -> None:
    """Have a worker's free slots given out anew: which calls may begin there has changed."""
    for group in worker.slot_groups:
        state.agenda.freed_slots[group] = None
        if group.queue.calls:
            state.agenda.changed_queues[group.queue] = None
    if worker.open and state.shared:
        state.packer.reconsider(worker.id)
        state.agenda.room_freed = True


def note_suspended(worker: Worker) -> None:
    """Note whether all batches of a worker wait for nested calls, and whether no nested call may
    begin there: then others have to take them.
    """
    suspended = worker.provisioner.suspended
    if 0 < worker.waiting == worker.batches:
        suspended[worker.id] = worker.draining or worker.is_spent
    else:
        suspended.pop(worker.id, None)


SHARE_TURNS = 1000
"""A client that has all the workers comes this many turns after a client that has none."""
TURN_SHIFT = 120
"""A turn is above these bits of a packing priority: an order (40), a priority (34), and a depth."""


def turn_of(place: int) -> int:
    """Return the client's turn that is encoded in a packing priority: see `place_of`."""
    return place + (1 << TURN_SHIFT - 1) >> TURN_SHIFT


def place_of(state: CoreState, one: OpenTask) -> int:
    """Return the packing priority of a task's request; the smallest number goes first. Clients with
    a smaller share go first; within a client: deeper nesting, higher priority, earlier submission.
    """
    client, turn = one.submitter.client, state.first_turn
    if state.active_clients > 1:
        turn = max(turn, client.last_turn) + int(SHARE_TURNS * client.share)
    depth, order = one.submitter.depth, (MOST_PRIORITY - one.options.priority << 40) + one.order
    return (turn << TURN_SHIFT) - (depth << 80) + order


def add_worker(state: CoreState, worker: Worker) -> None:
    """Take in a worker."""
    state.workers[worker.id] = worker
    set_floor(state, worker)
    worker.provisioner.workers += 1
    _count_phase(state, worker, +1)


def enter(state: CoreState, worker: Worker, phase: WorkerPhase) -> None:
    """Change the phase of a worker. A change that `NEXT_PHASES` does not allow is a fault of this
    package.
    """
    if phase not in NEXT_PHASES[worker.phase]:
        raise AssertionError(f"a worker cannot go from {worker.phase} to {phase}")
    if state.story is not None:
        state.story.add(worker.id, f"{worker.phase.value}, then {phase.value}")
    _count_phase(state, worker, -1)
    worker.phase = phase
    _count_phase(state, worker, +1)


def change_slots(state: CoreState, worker: Worker, slots: int) -> None:
    """Correct the count of slots for a worker that has come back, perhaps with another number of
    slots.
    """
    state.slots_by_phase[worker.phase] += slots - worker.hello.slots


def _count_phase(state: CoreState, worker: Worker, sign: int) -> None:
    """Count a worker and its slots in its phase (`sign` 1), or no longer (-1)."""
    state.phases[worker.phase] += sign
    state.slots_by_phase[worker.phase] += sign * worker.hello.slots
    if sign > 0 and worker.phase is READY and not worker.batches:
        worker.provisioner.idle.add(worker.id)
    else:
        worker.provisioner.idle.discard(worker.id)


def remove_worker(state: CoreState, worker: Worker) -> None:
    """Forget a worker that is gone."""
    enter(state, worker, WorkerPhase.GONE)
    del state.workers[worker.id]
    state.retiring.pop(worker.id, None)
    worker.provisioner.workers -= 1
    worker.provisioner.by_hand.discard(worker.id)


def move_worker(worker: Worker, provisioner: Provisioner) -> None:
    """Count a worker at another provisioner, once it is known which one launched it."""
    before, worker.provisioner = worker.provisioner, provisioner
    before.workers -= 1
    before.by_hand.discard(worker.id)
    provisioner.workers += 1
    if worker.id in before.idle:
        before.idle.remove(worker.id)
        provisioner.idle.add(worker.id)
