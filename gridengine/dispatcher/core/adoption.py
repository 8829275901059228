"""What an earlier dispatcher process has left: calls that its workers may be running, and the
workers that come back with them.

A worker that has not come back yet is *absent*: it is silent, and has the runs that it was known to
have. So it is lost as other workers are, and its calls run again, or not, by the same rules.
"""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from gridengine.dispatcher.core import allocator, books, failures, outcomes
from gridengine.dispatcher.core.calls import OpenTask, Span
from gridengine.dispatcher.core.events import Restored, Send
from gridengine.dispatcher.core.model import Batch, Run, SlotGroup, TaskQueue, Worker
from gridengine.dispatcher.core.outcomes import end_run, note_move, requeue
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.states import Phase
from gridengine.wire.messages import NAME_BYTES, Cancel, Forget, Held, HeldBatch, HeldRun, Release

Ranges: TypeAlias = list[tuple[int, int]]
"""Calls of a task, each from one to before another, in order."""
LEFT_OUT = "its dispatcher was started again, and what came of the call is not known"


def assign_restored(state: CoreState, event: Restored) -> None:
    """Take settled and assigned calls of the resubmitted tasks out of the queues, and give the
    assigned ones to their absent workers.
    """
    waiting: dict[int, Ranges] = {}
    named = *event.settled, *(run.task for run in event.runs)
    state.open(named)
    tasks = {task: state.open_tasks[task] for task in named if task in state.open_tasks}
    for task, ranges in event.settled.items():
        if (one := tasks.get(task)) is not None:
            calls = sum(stop - start for start, stop in ranges)
            books.settle(state, one, calls, None)
            for start, stop in ranges:
                note_move(state, Span(one, start, stop, one.task.demand), "settled", "before")
            one.settled = list(ranges)
            waiting[task] = _open_calls(one)
    assigned = []
    for run in sorted(event.runs, key=lambda run: run.number, reverse=True):
        if (one := tasks.get(run.task)) is None:
            continue
        left = waiting[run.task] if run.task in waiting else _open_calls(one)
        its = [
            (max(start, run.start), min(stop, run.stop))
            for start, stop in left
            if start < run.stop and run.start < stop
        ]
        if its:  # what was settled, or assigned again, before these has had its outcome
            assigned.append((run, its[-1]))
            left = _without(left, its[-1:])
        waiting[run.task] = left
    _take_out(state, waiting, tasks.values())
    groups: dict[tuple[bytes, TaskQueue], SlotGroup] = {}
    for run, (start, stop) in reversed(assigned):
        one, worker = tasks[run.task], state.workers[run.worker]
        queue = state.queue_for(one.task.demand)
        group = groups.setdefault((worker.id, queue), SlotGroup(worker, queue, 0))
        span = Span(one, start, stop, one.task.demand, run.attempt)
        _begin(state, run.number, span, group, Batch(), state.now)


def _open_calls(one: OpenTask) -> Ranges:
    return _without([(0, one.task.count)], one.settled or ())


def _without(ranges: Ranges, others: Sequence[tuple[int, int]]) -> Ranges:
    """Return the first ranges without the second ones."""
    for start, stop in others:
        ranges = [
            part
            for first, last in ranges
            for part in ((first, min(last, start)), (max(first, stop), last))
            if part[0] < part[1]
        ]
    return ranges


def _take_out(state: CoreState, waiting: Mapping[int, Ranges], tasks: Collection[OpenTask]) -> None:
    """Have only these calls of these tasks wait."""

    def split(span: Span) -> tuple[list[Span], list[Span]]:
        ranges = waiting.get(span.open_task.task.id)
        if ranges is None:
            return [span], []
        others = _without([(span.start, span.stop)], ranges)
        stays = _without([(span.start, span.stop)], others)
        kept, taken = (
            [replace(span, start=start, stop=stop) for start, stop in parts]
            for parts in (stays, others)
        )
        return kept, taken

    for queue in state.queues.values() if waiting else ():
        queue.take_out(split, tasks)
        state.agenda.changed_queues[queue] = None


def _begin(
    state: CoreState, number: int, span: Span, group: SlotGroup, batch: Batch, now: float
) -> None:
    """Note that a worker has a run, as `assigner` does (a call more for each run would be felt)."""
    one, worker, hard = span.open_task, group.worker, group.queue.hard
    limit = one.task.timeout
    if hard is not None:
        limit = hard if limit is None else min(limit, hard)
    run = Run(number, span, group, batch, span.start, now, now, limit)
    state.runs[number] = worker.runs[number] = run
    one.runs = {**one.runs, number: None}
    note_move(state, span, "assigned", f"to {worker.id.hex()[:8]} as run {number}")
    if batch.runs:
        books.count_running(group, span.open_task, span.calls)
    else:
        books.begin_batch(group, batch, span.open_task, span.calls)
    batch.runs += 1


def take_back(state: CoreState, worker: Worker, held: Held) -> None:
    """Let an absent worker go on with the calls that it has and that are still wanted. What it lost
    waits again; what nobody wants is ended.

    Its slots are given out at once if one queue has all of them, which keeps its allocation.
    Otherwise they are given out when all its runs have ended: nobody knows which resources these
    have.
    """
    worker.absent = False
    worker.taken = held.taken
    before = dict(worker.runs)
    for run in reversed(before.values()):
        end_run(state, run)
        state.agenda.freed_slots.pop(run.slot_group, None)
    books.enter(state, worker, Phase.READY)
    groups: dict[tuple[int, TaskQueue], SlotGroup] = {}
    for batch in held.batches:
        _go_on(state, worker, batch, before, groups)
    for run in reversed(before.values()):
        requeue(state, run.rest)  # it never came there, or was given back
    _end_others(state, worker, held)
    released = list(held.allocations)
    if len(groups) == 1 and state.shared is None:
        [group] = groups.values()
        group.slots = 1 if group.allocation else worker.hello.slots
        released = [one for one in released if one != group.allocation]
        group.queue.add(group)
        state.agenda.changed_queues[group.queue] = None
        worker.open = True
    elif groups:
        worker.to_release, released = released, []
    _release(state, worker, released)


def open_emptied(state: CoreState, worker: Worker) -> None:
    """Give out the slots of a worker whose earlier runs have all ended."""
    _release(state, worker, worker.to_release or [])
    worker.to_release = None
    allocator.open_worker(state, worker)


def _go_on(
    state: CoreState,
    worker: Worker,
    held: HeldBatch,
    before: dict[int, Run],
    groups: dict[tuple[int, TaskQueue], SlotGroup],
) -> None:
    """Let a worker go on with a batch, but for calls that are settled or unwanted."""
    batch = Batch()
    for item in held.runs:
        run = before.get(item.run)
        if run is None or not _is_part(item, run):
            continue  # `_end_others` ends it
        del before[item.run]
        span = run.rest
        start, stop = max(item.done, span.start), max(item.stop, span.start)
        _leave_out(state, run, replace(span, stop=min(start, span.stop)))
        requeue(state, replace(span, start=stop))
        if start < stop:
            queue = run.slot_group.queue
            if state.shared is None:
                queue = state.queue_for(worker.provisioner.demand)
            group = SlotGroup(worker, queue, 0, held.allocation)
            group = groups.setdefault((held.allocation, queue), group)
            going = replace(span, start=start, stop=stop)
            _begin(state, run.number, going, group, batch, run.since)


def _is_part(item: HeldRun, run: Run) -> bool:
    """Return whether the run that a worker reports is part of the run that it was assigned."""
    return item.task == run.span.open_task.task.id and item.done <= item.stop <= run.span.stop


def _leave_out(state: CoreState, run: Run, span: Span) -> None:
    """Run calls again, where allowed, that the worker says it has answered."""
    if span.open_task.task.retries or not span.calls:
        requeue(state, span)
        return
    outcomes.record_attempt(state, run, span.start, LEFT_OUT)
    error = failures.why_lost(run.worker, span, f"comes back, but {LEFT_OUT}", None)
    outcomes.settle_failed(state, span, error, -signal.SIGKILL)


def _end_others(state: CoreState, worker: Worker, held: Held) -> None:
    """Have a worker end the runs that nobody wants, and forget the objects that no task uses."""
    runs = [item.run for batch in held.batches for item in batch.runs]
    _end(state, worker, [run for run in runs if run not in worker.runs], signal.SIGKILL)
    unwanted = defaultdict[int, list[int]](list)
    for run in worker.runs.values():
        one = run.span.open_task
        numbers = [one.cancelled_by(index) for index in range(run.done, run.span.stop)]
        if one.unwanted and any(numbers):
            unwanted[max(numbers)].append(run.number)
    for number, its in unwanted.items():
        _end(state, worker, its, number)
    forgotten = []
    for name in held.defined:
        if (known := state.objects.get(name)) is not None:
            known.workers.add(worker.id)
            worker.functions.add(name)
        elif not (worker.runs and len(name) == NAME_BYTES):  # inputs of what waits there
            forgotten.append(name)
    if forgotten:
        state.effects.append(Send(worker.id, Forget(forgotten)))


def _end(state: CoreState, worker: Worker, runs: Sequence[int], number: int) -> None:
    if runs:
        state.effects.append(Send(worker.id, Cancel(list(runs), number)))


def _release(state: CoreState, worker: Worker, allocations: Sequence[int]) -> None:
    if allocations:
        state.effects.append(Send(worker.id, Release(list(allocations))))


def drop(state: CoreState, worker: Worker, held: Held) -> None:
    """Have a worker that is as good as a new one end all that it has."""
    _end_others(state, worker, held)
    _release(state, worker, held.allocations)
