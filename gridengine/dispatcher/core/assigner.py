"""Assigns queued calls to workers, by the slots that queues have and by where their inputs are.

A large result stays at the worker that made it. A call that needs it goes there; or its worker gets
the result from there (`pulls`); or the result comes here once, for this and all other workers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from gridengine.dispatcher.core import books, objects, outcomes, pulls
from gridengine.dispatcher.core.calls import AwaitedResult, OpenTask, Span, added, without
from gridengine.dispatcher.core.events import Send
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.workers_and_queues import (
    READY,
    Batch,
    Run,
    SlotGroup,
    TaskQueue,
    Worker,
)
from gridengine.resources.demand import ANY
from gridengine.serialize.payload import Buffer, Payload
from gridengine.status.watch_events import STARTED
from gridengine.wire.messages import Assign, Assignment, Input

MOST_ASSIGNED = 2000
"""One event assigns at most this many runs of a queue: some ten milliseconds' work."""


def fill(state: CoreState, queue: TaskQueue) -> None:
    """Assign calls of a queue while it has calls and slots."""
    last = state.last_run + MOST_ASSIGNED
    while queue.calls:
        near = nearest(state, queue) if state.has_away else None
        group = near or queue.take_slot_group()
        if group is None:
            return
        if state.last_run >= last:
            queue.relist(group)
            state.deferred[queue] = None
            return
        if group.worker.leave_at == math.inf or state.stays_for(queue, group.worker):
            _assign(state, queue, group)


def try_passed_over(state: CoreState) -> None:
    """Try the workers again that were about to leave too soon for the call whose turn it was."""
    passed, state.passed_over = state.passed_over, {}
    for id in passed:
        if (worker := state.workers.get(id)) is not None and not worker.closed_because:
            books.reconsider(state, worker)


def _assign(state: CoreState, queue: TaskQueue, group: SlotGroup) -> None:
    """Assign the next calls of a queue to a worker, as one batch."""
    worker = group.worker
    spans = queue.next_spans(worker)
    if state.has_away:
        spans = at_hand(state, spans, worker)
        if not spans:
            queue.relist(group)
            return
    ahead, load = group.batches >= group.slots, 1 if queue.may_go_ahead(spans[0]) else 2
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
    if group.listed is None and worker.is_spent:
        worker.unlist()


def _begin_run(
    state: CoreState, span: Span, group: SlotGroup, batch: Batch, payload: list[Buffer]
) -> Assignment:
    """Note a run, and add its arguments and inputs to the payload of its batch."""
    one, worker, begin = span.open_task, group.worker, len(payload)
    options = one.options
    inputs: Sequence[Input] = ()
    payload += one.payload
    if one.inputs:
        inputs = objects.give_inputs(state, worker, one.inputs, payload)
    for shared in one.details.needs:
        if worker.id not in shared.workers:
            objects.define(state, worker, shared)
    saved: Sequence[tuple[int, int]] = ()
    if state.saved and one.id in state.saved:
        saved = _add_saved(state.saved[one.id], span, payload)
    state.last_run = number = state.last_run + 1
    run = begin_run(state, number, span, group, batch, state.now)
    if state.log.events is not None:
        outcomes.note_calls(state, STARTED, span, worker.hello.host, worker.job)
    made = one.kept
    if made is not None and isinstance(made, AwaitedResult) and made.waiting:
        made.run = number
    # Six by position: of a call with more keywords CPython makes a dictionary, which takes 1 us.
    return Assignment(
        number,
        one.id,
        one.function.function.digest,
        span.start,
        span.stop,
        span.attempt,
        form=options.form,
        watched=options.watched,
        controlled=options.controlled,
        timeout=run.limit,
        memory=0 if span.demand is ANY else span.demand.memory_limit,
        first=one.first,
        buffers=len(payload) - begin,
        name=options.name,
        once=not options.retries,
        kept=() if made is None else one.kept_within(span.start, span.stop),
        inputs=inputs,
        saved=saved,
    )


def _add_saved(
    states: Mapping[int, Payload], span: Span, payload: list[Buffer]
) -> list[tuple[int, int]]:
    """Add the states that these calls have saved to a payload; return the number of buffers of
    each.
    """
    saved = [(index, states[index]) for index in sorted(states) if span.start <= index < span.stop]
    for _, state in saved:
        payload += state
    return [(index, len(state)) for index, state in saved]


def begin_run(
    state: CoreState, number: int, span: Span, group: SlotGroup, batch: Batch, since: float
) -> Run:
    """Record a run that a worker has or is about to be given."""
    one, worker, hard = span.open_task, group.worker, group.queue.hard
    limit = one.options.timeout
    if hard is not None:
        limit = hard if limit is None else min(limit, hard)
    run = Run(
        number, span, group, batch=batch, done=span.start, since=since, touched=since, limit=limit
    )
    state.runs[number] = worker.runs[number] = run
    runs = one.runs
    if not runs:
        one.runs = (number,)
    elif isinstance(runs, dict):
        runs[number] = None
    else:
        one.runs = dict.fromkeys((*runs, number))
    if state.story is not None:
        state.story.move(span, "assigned", f"to {worker.id.hex()[:8]} as run {number}")
    return run


TRANSFER_RATE = 50e6
"""The assumed speed, in bytes per second, at which a result travels from worker to worker."""


def at_hand(state: CoreState, spans: Iterable[Span], worker: Worker) -> list[Span]:
    """Return the calls of a batch that this worker can be given.

    Such a call has no inputs; or the worker has its inputs, can be sent them, or makes them earlier
    in this batch. Each other call is in no queue until its inputs are here, or until the worker
    that has them has room. A call with a failed input is settled.
    """
    found: list[Span] = []
    coming: set[AwaitedResult] = set()
    for span in spans:
        one = span.open_task
        if one.missing:  # it follows the calls that make its inputs
            fits = all(needed.data is not None or needed in coming for needed in one.inputs)
        else:
            fits = not one.inputs or _has_inputs(state, span, worker)
        if fits:
            found.append(span)
            if isinstance(one.kept, AwaitedResult):
                coming.add(one.kept)
    return found


def _has_inputs(state: CoreState, span: Span, worker: Worker) -> bool:
    """Return whether a worker can be given the inputs of a call; otherwise have the call wait for
    them.
    """
    one = span.open_task
    away = [awaited for awaited in one.inputs if _is_away(awaited, worker)]
    for awaited in away:
        if awaited.data is not None and outcomes.has_failed(awaited.data):
            outcomes.settle_failed_input(state, one, awaited)
            return False
    if not away:
        return True
    near = _is_sooner_there(state, span, away)
    if not near and all(one.remote and pulls.may_pull(state, worker, one.remote) for one in away):
        return True
    one.missing = len(away)
    one.change(again=(span.demand, span.attempt))
    outcomes.note_move(state, span, "missing", "its inputs are elsewhere")
    for awaited in away:
        awaited.waiting = added(awaited.waiting, one)
        if not near:
            objects.bring(state, awaited)
    return False


def _is_sooner_there(state: CoreState, span: Span, away: Sequence[AwaitedResult]) -> bool:
    """Have a call wait, once, for the worker that has its inputs, if that worker likely has room
    before the inputs could be fetched. Return whether the call waits.
    """
    holders = [each.remote.workers for each in away if each.remote and each.remote.asked is None]
    there = set.intersection(*holders) if len(holders) == len(away) else set()
    holder = state.workers.get(next(iter(there), b""))
    one = span.open_task
    if holder is None or holder.phase is not READY or holder.draining or one.details.near_until:
        return False
    waiting = state.near.get(holder.id, {})
    seconds = sum(each.remote.size for each in away if each.remote) / TRANSFER_RATE
    if _seconds_to_room(holder, span, state.now) * (1 + len(waiting)) > seconds:
        return False
    one.change(near_until=state.now + seconds)
    state.near.setdefault(holder.id, {})[one.id] = one
    return True


def _seconds_to_room(worker: Worker, span: Span, now: float) -> float:
    """Return in how many seconds the first call on a worker ends that leaves room for this call."""
    return min(
        (
            max(run.span.open_task.pace.seconds - (now - run.touched), 0.0)
            for run in worker.runs.values()
            if run.span.demand == span.demand and run.span.open_task.pace.seconds is not None
        ),
        default=math.inf,
    )


def go_near(state: CoreState, worker: Worker) -> None:
    """Queue a call that has waited for this worker, which has room now."""
    waiting = state.near.get(worker.id, {})
    while waiting and not _go_on(state, waiting.pop(next(iter(waiting)))):
        pass
    if not waiting:
        state.near.pop(worker.id, None)


def give_up_waiting(state: CoreState) -> None:
    """Queue, for any worker, calls that have waited long enough for one worker, or for one that is
    gone.
    """
    for id, waiting in list(state.near.items()):
        worker = state.workers.get(id)
        for task, one in list(waiting.items()):
            if worker is None or worker.phase is not READY or state.now >= one.details.near_until:
                del waiting[task]
                _go_on(state, one)
        if not waiting:
            del state.near[id]


def _go_on(state: CoreState, one: OpenTask) -> bool:
    """Have a call wait for any worker; return False if it does already, or has ended."""
    missing = [awaited for awaited in one.inputs if one in awaited.waiting]
    if not missing:
        return False
    for awaited in missing:
        awaited.waiting = without(awaited.waiting, one)
    one.missing, span = 0, one.only_span()
    outcomes.note_move(state, span, "waiting", "for any worker")
    queue = state.queue_for(span.demand)
    queue.put_back(span)
    state.agenda.changed_queues[queue] = None
    return True


def _is_away(awaited: AwaitedResult, worker: Worker) -> bool:
    remote, data = awaited.remote, awaited.data
    if remote is not None:
        return remote.away and worker.id not in remote.workers and worker.id not in remote.pulls
    return data is None or outcomes.has_failed(data)


def nearest(state: CoreState, queue: TaskQueue) -> SlotGroup | None:
    """Return, and unlist, free slots of the worker that has most bytes of the next call's inputs;
    None if it has none.
    """
    sizes: dict[bytes, int] = {}
    for awaited in queue.waiting.first().open_task.inputs:
        if (remote := awaited.remote) is not None:
            for worker in remote.workers:
                sizes[worker] = sizes.get(worker, 0) + remote.size
    if not sizes:
        return None
    for group in state.workers[max(sizes, key=sizes.__getitem__)].slot_groups:
        if group in queue.idle:
            queue.unlist(group)
            return group
    return None
