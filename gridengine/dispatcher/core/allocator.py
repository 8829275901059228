"""Gives queues slots on workers. On shared workers the packer decides which queue gets which
resources.

A worker that was launched for one demand offers exactly that demand, and belongs to its queue for
life. Where requests share the workers, their resources are given out as *allocations*: one
allocation holds the resources of one request. An allocation is a slot of its queue, and gets batch
after batch without asking the packer again. It is released at the end of a batch, and only when
another queue waits for room; then the packer decides anew. So calls that have the workers to
themselves cost the packer nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from gridengine.dispatcher.core import assigner, books, outcomes
from gridengine.dispatcher.core.assigner import fill
from gridengine.dispatcher.core.events import Grant, Send, Warn
from gridengine.dispatcher.core.fair_queue import Level, level_of
from gridengine.dispatcher.core.policy import asked_only, booked, lasting
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.workers_and_queues import SlotGroup, TaskQueue, Worker, WorkerPhase
from gridengine.errors import GridEngineError, safe_repr
from gridengine.resources.base import Resource, is_nothing
from gridengine.resources.demand import Demand, on_one_node, replaced
from gridengine.resources.kinds import Cores, Ranks
from gridengine.resources.packing import Placed, RequestFailed
from gridengine.wire.messages import Release


def open_worker(state: CoreState, worker: Worker) -> GridEngineError | None:
    """Give out the slots of a worker. Return an error if the worker lacks the resources for which
    it was launched.
    """
    if worker.hello.functions:
        _give_functions(state, worker)
        return None
    if state.shared is None:
        return _give_all(state, worker)
    held = state.shared if worker.held is None else worker.held
    state.packer.open(worker.id, lasting(held, worker.leave_at - state.now), state.now)
    state.agenda.changed_queues.update(state.unheld)
    state.unheld.clear()
    state.agenda.room_freed = worker.open = True
    return None


def _give_all(state: CoreState, worker: Worker) -> GridEngineError | None:
    demand, slots = worker.provisioner.demand, worker.hello.slots
    asked = demand.request
    if is_nothing(asked):
        group = SlotGroup(worker, state.queue_for(demand), slots)
    else:
        try:
            if asked.get(Ranks) is None:
                given = asked.holder().allocate(asked)
            else:  # their cores have no numbers: they may be on several nodes
                given = replaced(asked, Cores, lambda part: Cores(part.N))
        except BaseException as error:  # a user's own kind
            return outcomes.cannot_give(asked, error)
        state.last_allocation += 1
        group = SlotGroup(worker, state.queue_for(demand), 1, state.last_allocation)
        _grant(state, group, given, _cores(given, slots))
    group.queue.add(group)
    state.agenda.changed_queues[group.queue] = None
    worker.open = True
    return None


def _give_functions(state: CoreState, worker: Worker) -> None:
    """Add all slots of the worker to the queue of each function that it announces. The worker runs
    its calls one after another, so the queues may share its slots.
    """
    for name in dict.fromkeys(worker.hello.functions):
        queue = state.queue_for(Demand(function=name))
        queue.add(SlotGroup(worker, queue, worker.hello.slots))
        state.agenda.changed_queues[queue] = None


def close_worker(state: CoreState, worker: Worker) -> None:
    """Take back the slots of a worker that leaves or is gone."""
    for group in list(worker.slot_groups):
        group.queue.remove(group)
        state.agenda.changed_queues[group.queue] = None
        state.agenda.freed_slots.pop(group, None)
    if worker.open and state.shared:
        state.packer.shut(worker.id)
    worker.open = False


def resume_worker(state: CoreState, worker: Worker) -> None:
    """Give out the slots of a worker again. Calls that want to go on get them first."""
    if worker.resuming:
        worker.withheld = True
        state.agenda.returning[worker.id] = worker
        return
    worker.withheld = False
    books.reconsider(state, worker)


def assign_all(state: CoreState, *, again: bool = False) -> None:
    """Assign all that can be assigned. With `again` ask the packer although nothing has changed."""
    agenda, pending = state.agenda, state.pending_requests
    if state.near:
        for group in agenda.freed_slots:
            assigner.go_near(state, group.worker)
    for group in agenda.freed_slots:
        if pending and _is_wanted_by_others(state, group):
            release(state, group)
        else:
            group.queue.relist(group)
    agenda.freed_slots.clear()
    fresh = _fill_queues(state) if agenda.changed_queues else []
    if pending and (agenda.room_freed or fresh or again):
        agenda.room_freed = False
        if state.active_clients > 1 or agenda.reorder:
            _reorder(state)
        _allocate(state)
        for queue in fresh:
            _gather_room(state, queue)
        _fill_queues(state)


def _is_wanted_by_others(state: CoreState, group: SlotGroup) -> bool:
    """Return whether other queues wait for the resources of a slot group."""
    others = len(state.pending_requests) - (group.queue in state.pending_requests)
    return others > 0 and group.worker.phase is WorkerPhase.READY and group.worker.open


def _fill_queues(state: CoreState) -> list[TaskQueue]:
    """Assign calls of the changed queues. Return the queues that have a new request for an
    allocation.
    """
    fresh: list[TaskQueue] = []
    agenda = state.agenda
    while agenda.changed_queues:
        changed, agenda.changed_queues = agenda.changed_queues, {}
        for queue in changed:
            if queue.calls:
                fill(state, queue)
            if not queue.calls:
                if state.pending_requests:
                    _drop_request(state, queue)
                if not queue.slots:
                    state.forget_if_unused(queue)
            elif state.shared is not None and _asks_now(state, queue):
                fresh.append(queue)
    return fresh


def _asks_now(state: CoreState, queue: TaskQueue) -> bool:
    """Have a queue request one more allocation. Return whether the request is new."""
    asked = queue in state.pending_requests
    if (
        not queue.demand.function
        and not (asked and queue.asked_depth == queue.waiting.deepest)
        and _request(state, queue)
    ):
        return True
    if queue in state.pending_requests and queue.asked_level != _next_level(queue):
        state.agenda.reorder = True
    return False


def _request(state: CoreState, queue: TaskQueue) -> bool:
    """Request one more allocation for a queue; return whether that was possible. A queue whose
    calls need a worker that people start makes no request: others would release allocations in
    vain.
    """
    if queue in state.deferred or queue in state.unheld:
        return False
    _drop_request(state, queue)
    first = queue.waiting.first().open_task
    queue.asked_level, queue.asked_depth = level_of(first), queue.waiting.deepest
    state.last_allocation = number = state.last_allocation + 1
    try:
        request = booked(state.limited_request(queue.demand))
        if state.policy.keeps_others and not state.packer.can_hold(request, state.now):
            state.unheld[queue] = None
            return False
        order, kind = books.place_of(state, first), (queue.asked_depth, queue.demand)
        state.packer.add(number, request, first.since, order=order, kind=kind)
    # A kind of resource may be a user's own, here and below: an exception that it raises fails only
    # the calls that request it.
    except BaseException as error:
        _fail(state, queue, error)
        return False
    state.pending_requests[queue] = number
    state.requesting_queues[number] = queue
    return True


def _next_level(queue: TaskQueue) -> Level:
    return level_of(queue.waiting.first().open_task)


def _reorder(state: CoreState) -> None:
    """Put the requests in the order of the clients' present shares."""
    state.agenda.reorder = False
    for queue, number in state.pending_requests.items():
        first = queue.waiting.first().open_task
        queue.asked_level = level_of(first)
        state.packer.reorder(number, first.since, books.place_of(state, first))


def _drop_request(state: CoreState, queue: TaskQueue) -> None:
    number = state.pending_requests.pop(queue, None)
    if number is not None:
        del state.requesting_queues[number]
        state.packer.remove(number)


def _fail(state: CoreState, queue: TaskQueue, error: BaseException) -> None:
    _drop_request(state, queue)
    outcomes.fail(state, [queue], outcomes.cannot_give(queue.demand.resources, error))


def _allocate(state: CoreState) -> None:
    """Let the packer decide whose turn it is, and assign calls to its allocations."""
    while True:
        try:
            for placed in state.packer.place(state.now):
                _add_slot(state, placed)
            return
        except RequestFailed as error:
            for queue in [state.requesting_queues[number] for number in error.tasks]:
                _fail(state, queue, error.__cause__ or error)


def add_slot(
    state: CoreState, queue: TaskQueue, worker: Worker, placed: Placed[int, bytes]
) -> SlotGroup:
    """Add an allocation that the packer has made to the slot group of this queue and worker."""
    group = next(
        (one for one in worker.slot_groups if one.queue is queue and not one.allocation), None
    )
    if group is None:
        number = 0 if is_nothing(queue.demand.resources) else placed.task
        group = SlotGroup(worker, queue, 0, number)
        queue.add(group)
    group.packed.append(placed.task)
    group.slots += 1
    queue.slots += 1
    if group.allocation:
        given = asked_only(placed.given, on_one_node(queue.demand.resources))
        _grant(state, group, given, _cores(placed.given, 0))
    return group


def _add_slot(state: CoreState, placed: Placed[int, bytes]) -> None:
    queue = state.requesting_queues.pop(placed.task)
    del state.pending_requests[queue]
    group = add_slot(state, queue, state.workers[placed.holder], placed)
    before = group.batches
    queue.relist(group)
    fill(state, queue)
    if group.batches == before < group.slots and queue.calls:
        # The call for which the packer was asked went elsewhere, nearer to its inputs, and the next
        # one may not begin here. The queue asks again once all others have been placed.
        release(state, group)
        state.agenda.changed_queues[queue] = None
    elif queue.calls:
        _request(state, queue)


def _grant(state: CoreState, group: SlotGroup, given: Resource, takes: int) -> None:
    state.effects.append(Grant(group.worker.id, group.allocation, given, takes))


def _cores(given: Resource, otherwise: int) -> int:
    cores = given.get(Cores)
    return otherwise if cores is None else cores.N


def _gather_room(state: CoreState, queue: TaskQueue) -> None:
    """Release unused allocations of other queues until the request of this queue fits."""
    for other in list(state.queues.values()):
        for group in other.free_groups() if other is not queue else ():
            if queue not in state.pending_requests:
                return
            if other.demand.function:
                break
            release(state, group)
            _allocate(state)


def release(state: CoreState, group: SlotGroup) -> None:
    """Release the unused allocations of a slot group."""
    worker, queue = group.worker, group.queue
    while group.slots > max(group.batches, 0):
        try:
            state.packer.remove(group.packed.pop())
        except BaseException as error:  # the packer's record of this worker may be wrong now
            what = safe_repr(queue.demand.resources)
            text = (
                f"resources={what} of {worker.hello.host} could not be taken back: "
                f"{safe_repr(error)}"
            )
            state.effects.append(Warn(text))
        group.slots -= 1
        queue.slots -= 1
        state.agenda.room_freed = True
    if group.slots:
        queue.unlist(group)  # nothing ahead while others wait
        return
    queue.remove(group)
    if group.allocation and worker.phase is not WorkerPhase.GONE:
        state.effects.append(Send(worker.id, Release([group.allocation])))
    state.forget_if_unused(queue)


def open_emptied(state: CoreState, worker: Worker) -> None:
    """Give out the slots of a worker whose earlier runs have all ended."""
    end_allocations(state, worker, worker.to_release or [])
    worker.to_release = None
    open_worker(state, worker)


def end_allocations(state: CoreState, worker: Worker, allocations: Sequence[int]) -> None:
    if allocations:
        state.effects.append(Send(worker.id, Release(list(allocations))))
