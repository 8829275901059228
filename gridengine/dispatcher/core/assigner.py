"""Assign queued calls to the slots that their queues have."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from gridengine.dispatcher.core import books, kept_results, objects
from gridengine.dispatcher.core.calls import AwaitedResult, Span
from gridengine.dispatcher.core.events import Send
from gridengine.dispatcher.core.failures import name_of
from gridengine.dispatcher.core.model import Batch, Run, SlotGroup, TaskQueue, Worker, may_go_ahead
from gridengine.dispatcher.core.outcomes import begin_run
from gridengine.dispatcher.core.run_log import STARTED
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.status import WatchEvent
from gridengine.resources.demand import ANY
from gridengine.serialize.payload import Buffer
from gridengine.wire.messages import Assign, Assignment, Input

MOST_ASSIGNED = 2000
"""How many runs of one queue an event assigns at most: some ten milliseconds' work."""


def fill(state: CoreState, queue: TaskQueue) -> None:
    """Assign calls of a queue while it has calls and slots."""
    last = state.last_run + MOST_ASSIGNED
    while queue.calls and not (state.draining and is_held(state)):
        near = kept_results.nearest(state, queue) if state.has_away else None
        group = near or queue.take_slot_group()
        if group is None:
            return
        if state.last_run >= last:
            queue.relist(group)
            state.deferred[queue] = None
            return
        worker = group.worker
        if worker.leave_at == inf or worker.has_seconds(_seconds_of(queue, worker), state.now):
            _assign(state, queue, group)


def is_held(state: CoreState) -> bool:
    """Return whether no call may begin, since the dispatcher drains. Calls of running calls may:
    these need them to end.
    """
    return not any(submitter.depth for submitter in state.submitters.values())


def _seconds_of(queue: TaskQueue, worker: Worker) -> float:
    """Return for how long a worker must stay to be given the next call. A call that may run only
    once is expected to take as long as those before it, if another worker may have more time.
    """
    one = queue.waiting.first(worker.floor).open_task
    once = not one.task.retries and worker.taken
    return max(queue.soft, one.pace.seconds or 0.0) if once else queue.soft


def _assign(state: CoreState, queue: TaskQueue, group: SlotGroup) -> None:
    """Assign the next calls of a queue to a worker, as one batch."""
    worker = group.worker
    spans = queue.next_spans(worker)
    if state.has_away:
        spans = kept_results.at_hand(state, spans, worker)
        if not spans:
            queue.relist(group)
            return
    ahead, load = group.batches >= group.slots, 1 if may_go_ahead(spans[0]) else 2
    batch = Batch(len(spans), load, None if ahead else state.now)
    assignments: list[Assignment] = []
    payload: list[Buffer] = []
    calls = 0
    for span in spans:
        calls += span.stop - span.start
        assignments.append(_begin_run(state, span, group, batch, payload))
    one = span.open_task
    if worker.id not in one.function.workers:
        objects.define(state, worker, one.function)
    if worker.generation != state.generation:
        objects.reload(state, worker)
    worker.taken += calls
    books.begin_batch(group, batch, one, calls)
    submitter = one.submitter
    submitter.last_run = state.last_run
    submitter.client.last_turn = state.last_batch = state.last_batch + 1
    if calls > 1 or ahead:
        state.rebalance_due = True
    state.effects.append(Send(worker.id, Assign(assignments, group.allocation), payload))
    queue.relist(group)
    share = state.policy.jobs_per_worker
    if share is not None and worker.taken >= share:
        for other in worker.slot_groups:
            other.queue.unlist(other)


def _begin_run(
    state: CoreState, span: Span, group: SlotGroup, batch: Batch, payload: list[Buffer]
) -> Assignment:
    """Note a run, and add its arguments and inputs to the payload of its batch."""
    one, worker, begin = span.open_task, group.worker, len(payload)
    task = one.task
    inputs: Sequence[Input] = ()
    payload += task.payload
    if one.inputs:
        inputs = objects.give_inputs(state, worker, one.inputs, payload)
    for shared in one.needs:
        if worker.id not in shared.workers:
            objects.define(state, worker, shared)
    state.last_run = number = state.last_run + 1
    run = begin_run(state, number, span, group, batch, state.now)
    events = state.log.events
    if events is not None and events.takes(STARTED, span.calls):
        events.add(_started(run))
    made = one.kept
    if made is not None and isinstance(made, AwaitedResult) and made.waiting:
        made.run = number
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
        run.limit,
        0 if span.demand is ANY else span.demand.memory_limit,
        task.first,
        len(payload) - begin,
        task.name,
        not task.retries,
        () if made is None else one.kept_within(span.start, span.stop),
        inputs,
    )


def _started(run: Run) -> WatchEvent:
    span, worker = run.span, run.worker
    function, name = span.open_task.function.function.name, name_of(span, span.start)
    return WatchEvent(STARTED, span.calls, 0.0, function, name, worker.hello.host, worker.job)
