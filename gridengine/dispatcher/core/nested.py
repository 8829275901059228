"""Calls that make calls: they wait for these without a slot, and end them when they end.

A call that waits for its children gives its slot back, so that no depth can have all slots taken by
calls that wait; the children come before what else waits, so that there are about as many waiting
calls as slots times depth. A call that goes on is given a slot of the worker that it is on before
anything else is.
"""

from __future__ import annotations

import signal

from msgspec.structs import replace

from gridengine.dispatcher.core import allocator, books, cancellation
from gridengine.dispatcher.core.calls import OpenTask
from gridengine.dispatcher.core.events import CancelRequested, Send
from gridengine.dispatcher.core.model import Run, SlotGroup, Worker
from gridengine.dispatcher.core.policy import booked, without_time
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.states import READY
from gridengine.errors import safe_repr
from gridengine.resources.kinds import WTime
from gridengine.resources.units import plural
from gridengine.serialize.payload import Payload
from gridengine.wire.messages import Resumed, Resumes, Waits


def adopt(parent: Run, child: OpenTask) -> None:
    """Have a task end with the run of the call that has made it."""
    child.parent = parent.number
    if parent.children is None:
        parent.children = {}
    parent.children[child.task.id] = None


# ------------------------------------------------------------------ what workers say


def waits(state: CoreState, worker: Worker, message: Waits, buffers: Payload) -> None:
    """Have a call that waits for others give its slot back. Its worker gives back what has not
    begun: the others come before that.
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
    """Have a call that waits no more have a slot as soon as there is one; one that was not known to
    wait may go on.
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


# ------------------------------------------------------------------ at the end of an event


def settle(state: CoreState) -> None:
    """Give calls that go on their slots, where there are some by now; end those whose parents have
    ended. The next generation ends when the runs of these do.
    """
    returning, state.agenda.returning = state.agenda.returning, {}
    for worker in returning.values():
        if worker.phase is READY:
            _resume(state, worker)
    orphans, state.agenda.orphans = state.agenda.orphans, []
    if orphans:
        cancellation.cancel_requested(state, CancelRequested(orphans, signal.SIGTERM))


def _resume(state: CoreState, worker: Worker) -> None:
    """Give the calls of a worker that ask for their slots what there is, the deepest first. While
    it is not enough nothing else is given any.
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
        allocator.pause_worker(state, worker)
        for group in worker.slot_groups:
            group.queue.unlist(group)
    cancellation.recall(state, worker, worker.spare())


def _find_slot(state: CoreState, worker: Worker, run: Run) -> SlotGroup | None:
    """Return where a call may go on: where it was, or has its like, or where requests share the
    workers in what is free now.
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
    # It has begun: its time goes on, whatever is left of the worker's.
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
    books.count_waiting(run.worker, +1)
    state.restrict_slots(run.worker)
    books.count_slot(group, run.batch, run.span.open_task.submitter, -1)
    state.agenda.freed_slots[group] = None
    if group.queue.calls:
        state.agenda.changed_queues[group.queue] = None
    if run.worker.resuming:
        state.agenda.returning[run.worker.id] = run.worker


def _take_slot(state: CoreState, run: Run, group: SlotGroup) -> None:
    """Have a batch that has waited have a slot of this group."""
    batch, worker = run.batch, group.worker
    for one in worker.runs.values() if group is not run.slot_group else ():
        if one.batch is batch:
            one.slot_group.late -= one.late
            group.late += one.late
            one.slot_group = group
    batch.waiting, batch.answered_at = False, state.now
    books.count_waiting(worker, -1)
    state.restrict_slots(worker)
    books.count_slot(group, batch, run.span.open_task.submitter, +1)
    group.queue.relist(group)
