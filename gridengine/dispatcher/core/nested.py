"""Calls that make calls: they give up their slots while they wait for their children, and when they
end, their children end.

A waiting call gives its slot back, so waiting calls can never occupy all slots, however deep they
nest. Children are assigned before other calls, so about as many calls wait at most as there are
slots, times the depth. A call that goes on gets the next free slot of its worker.
"""

from __future__ import annotations

import signal

from msgspec.structs import replace

from gridengine.dispatcher.core import allocator, books, clients
from gridengine.dispatcher.core.events import Send
from gridengine.dispatcher.core.policy import booked, without_time
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.workers_and_queues import READY, Run, SlotGroup, Worker
from gridengine.display import plural
from gridengine.errors import safe_repr
from gridengine.requests import TasksCancelled
from gridengine.resources.kinds import WTime
from gridengine.serialize.payload import Payload
from gridengine.wire.messages import Resumed, Resumes, Waits


def waits(state: CoreState, worker: Worker, message: Waits, buffers: Payload) -> None:
    """Free the slot of a call that waits for its children. Its worker returns its unbegun calls,
    since children come before these.
    """
    run, most = worker.runs.get(message.run), state.policy.max_nesting
    if run is None or run.batch.waiting:
        return
    if worker.waiting >= most:
        words = (
            f"{plural(most, 'call')} of the worker on {worker.hello.host} may wait for others at a "
            "time (max_nesting), and one more would"
        )
        kept = run.slot_group.allocation
        _answer(state, worker, Resumed(message.runner, run.number, kept, words))
        return
    _leave_slot(state, run)
    for one in worker.runs.values():
        one.recalled = True
    state.agenda.scale = True


def resumes(state: CoreState, worker: Worker, message: Resumes, buffers: Payload) -> None:
    """Give a slot to a call that no longer waits, as soon as one is free. A call that the core did
    not know to wait still has its slot, and may go on.
    """
    run = worker.runs.get(message.run)
    if run is not None and run.batch.waiting:
        worker.resuming[run.number] = message.runner
        state.agenda.returning[worker.id] = worker
    else:
        allocation = 0 if run is None else run.slot_group.allocation
        _answer(state, worker, Resumed(message.runner, message.run, allocation))


def _answer(state: CoreState, worker: Worker, message: Resumed) -> None:
    state.effects.append(Send(worker.id, message))


def work_off(state: CoreState) -> None:
    """Give free slots to the calls that want to go on, and cancel the tasks whose parents have
    ended.
    """
    returning, state.agenda.returning = state.agenda.returning, {}
    for worker in returning.values():
        if worker.phase is READY:
            _resume(state, worker)
    orphans, state.agenda.orphans = state.agenda.orphans, []
    if orphans:
        clients.cancel_requested(state, TasksCancelled(orphans, signal.SIGTERM))


def _resume(state: CoreState, worker: Worker) -> None:
    """Give free slots of a worker to its calls that ask for one, the deepest first. While there are
    too few slots, no other call gets one.
    """
    runs = [worker.runs[number] for number in worker.resuming]
    for run in sorted(runs, key=lambda run: -run.span.open_task.submitter.depth):
        runner = worker.resuming[run.number]
        try:
            group = _find_slot(state, worker, run)
        except BaseException as error:  # a kind may be a user's own
            del worker.resuming[run.number]
            words = f"what the call had cannot be given again: {safe_repr(error)}"
            _answer(state, worker, Resumed(runner, run.number, refused=words))
            continue
        if group is None:
            _withhold(state, worker)
            return
        del worker.resuming[run.number]
        _take_slot(state, run, group)
        _answer(state, worker, Resumed(runner, run.number, group.allocation))
    if worker.withheld:
        allocator.resume_worker(state, worker)


def _withhold(state: CoreState, worker: Worker) -> None:
    if not worker.withheld:
        worker.withheld = True
        worker.unlist()
    clients.recall(state, worker)


def _find_slot(state: CoreState, worker: Worker, run: Run) -> SlotGroup | None:
    """Return a slot group where a call may go on: its own, another of its queue or, where requests
    share the workers, a new allocation.
    """
    queue = run.slot_group.queue
    free = [group for group in worker.slot_groups if group.batches < group.slots]
    its = [group for group in free if group.queue is queue]
    if its or state.shared is None:
        return run.slot_group if run.slot_group in its else next(iter(its), None)
    for group in free:
        allocator.release(state, group)
        state.agenda.freed_slots.pop(group, None)
    asked = booked(state.limited_request(queue.demand))
    state.last_allocation += 1
    # The call has begun, so it goes on even if the worker's time is too short.
    placed = state.packer.place_at(worker.id, state.last_allocation, without_time(asked), state.now)
    if placed is None:
        return None
    if (time := asked.get(WTime)) is not None:
        placed = replace(placed, given=placed.given & time)
    return allocator.add_slot(state, queue, worker, placed)


def _leave_slot(state: CoreState, run: Run) -> None:
    """Have a batch wait without its slot."""
    group = run.slot_group
    run.batch.waiting = True
    books.count_waiting(state, run.worker, +1)
    books.count_slot(group, run.batch, run.span.open_task.submitter, -1)
    state.agenda.freed_slots[group] = None
    if group.queue.calls:
        state.agenda.changed_queues[group.queue] = None
    if run.worker.resuming:
        state.agenda.returning[run.worker.id] = run.worker


def _take_slot(state: CoreState, run: Run, group: SlotGroup) -> None:
    """Have a waiting batch take a slot of this group."""
    batch, worker = run.batch, group.worker
    for one in worker.runs.values() if group is not run.slot_group else ():
        if one.batch is batch:
            one.slot_group.late -= one.late
            group.late += one.late
            one.slot_group = group
    batch.waiting, batch.answered_at = False, state.now
    books.count_waiting(state, worker, -1)
    books.count_slot(group, batch, run.span.open_task.submitter, +1)
    group.queue.relist(group)
