"""Assign queued calls to the slots that their queues have."""

from __future__ import annotations

import math
from typing import Any

from msgspec.structs import replace

from gridengine.dispatcher.core import objects
from gridengine.dispatcher.core.calls import Span
from gridengine.dispatcher.core.events import Send
from gridengine.dispatcher.core.model import Batch, Run, SlotGroup, TaskQueue, Worker, may_go_ahead
from gridengine.dispatcher.core.state import CoreState
from gridengine.resources.demand import ANY
from gridengine.wire.messages import Assign, Assignment

MOST_ASSIGNED = 2000
"""How many runs of one queue an event assigns at most: some ten milliseconds' work."""


def fill(state: CoreState, queue: TaskQueue, now: float) -> None:
    """Assign calls to the slots of a queue while it has both."""
    last = state.last_run + MOST_ASSIGNED
    while queue.calls and (group := queue.take_slot_group()) is not None:
        if state.last_run >= last:
            queue.relist(group)
            state.deferred[queue] = None
            return
        worker = group.worker
        if worker.leave_at == math.inf or worker.has_seconds(_seconds_of(queue, worker), now):
            _assign(state, group, now)


def _seconds_of(queue: TaskQueue, worker: Worker) -> float:
    """Return for how long a worker must be there to be assigned the next call: a call that may not
    begin twice is expected to take as long as those before, where another worker may have more
    time.
    """
    one = queue.waiting.begin_turn()[0].open_task
    once = not one.task.retries and worker.taken
    return max(queue.soft, one.pace.seconds or 0.0) if once else queue.soft


def _assign(state: CoreState, group: SlotGroup, now: float) -> None:
    queue, worker = group.queue, group.worker
    batch = Batch(answered_at=None if group.batches >= group.slots else now)
    assignments, payload = [], list[Any]()
    for span in queue.next_spans(worker):
        one = span.open_task
        begin = len(payload)
        payload += one.task.payload
        assignment = _begin_run(state, span, group, batch, now)
        if one.inputs:
            inputs = objects.give_inputs(state, worker, one.inputs, payload)
            assignment = replace(assignment, inputs=inputs, buffers=len(payload) - begin)
        assignments.append(assignment)
        for shared in one.needs:
            if worker.id not in shared.workers:
                objects.define(state, worker, shared)
    if worker.id not in span.open_task.function.workers:
        objects.define(state, worker, span.open_task.function)
    if worker.generation != state.generation:
        objects.reload(state, worker)
    submitter = span.open_task.submitter
    submitter.batches += 1
    batch.load = 1 if may_go_ahead(span) else 2
    submitter.load += batch.load
    submitter.last_run = state.last_run
    worker.batches += 1
    group.batches += 1
    worker.provisioner.idle.discard(worker.id)
    if span.stop - span.start > 1 or batch.runs > 1 or group.batches > group.slots:
        state.rebalance_due = True
    state.effects.append(Send(worker.id, Assign(assignments, group.allocation), payload))
    queue.relist(group)
    share = state.policy.jobs_per_worker
    if share is not None and worker.taken >= share:
        for other in worker.slot_groups:
            other.queue.unlist(other)


def _begin_run(
    state: CoreState, span: Span, group: SlotGroup, batch: Batch, now: float
) -> Assignment:
    one, calls, hard = span.open_task, span.stop - span.start, group.queue.hard
    task = one.task
    limit = task.timeout
    if hard is not None:
        limit = hard if limit is None else min(limit, hard)
    state.last_run = number = state.last_run + 1
    run = Run(number, span, group, batch, span.start, now, now, limit)
    state.runs[number] = group.worker.runs[number] = run
    one.runs[number] = None
    batch.runs += 1
    group.queue.running += calls
    group.worker.taken += calls
    return Assignment(
        number,
        task.id,
        one.function.function.digest,
        span.start,
        span.stop,
        span.attempt,
        task.form,
        task.watched,
        task.controlled,
        limit,
        0 if span.demand is ANY else span.demand.memory_limit,
        task.first,
        len(task.payload),
        task.name,
        not task.retries,
        bool(one.kept),
    )
