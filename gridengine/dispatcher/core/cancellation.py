"""Cancels calls, and recalls calls from workers that have not begun them: for their submitter, or
for the sake of other calls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice

from gridengine.dispatcher.core.calls import OpenTask, Span, Unwanted
from gridengine.dispatcher.core.events import CancelRequested, Rebalance, RecallRequested, Send
from gridengine.dispatcher.core.model import Run, Worker
from gridengine.dispatcher.core.outcomes import cut, settle_unwanted
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.states import Phase
from gridengine.wire.messages import Cancel, Recall

LATE_SECONDS = 0.05
SHARE_SECONDS = 0.05
"""How often calls are recalled at most for submitters that have no share of the workers yet."""
MOST_SEARCHED = 200
"""How many runs are searched for workers that have too much."""


def cancel_requested(state: CoreState, event: CancelRequested) -> None:
    """Settle the waiting ones of these tasks and calls, and have workers end the others."""
    state.open(event.tasks)
    tasks = [state.open_tasks[task] for task in event.tasks if task in state.open_tasks]
    calls = [*((one.task.id, 0, one.task.count) for one in tasks), *event.calls]
    for worker, runs in reject(state, calls, event.signal):
        numbers = [run.number for run in runs]
        state.effects.append(Send(worker.id, Cancel(numbers, event.signal)))
    state.agenda.scale = True


def recall_requested(state: CoreState, event: RecallRequested) -> None:
    """Settle the waiting ones of these calls, and have workers return what they have not begun. A
    worker returns all of that: runners let go of it as a whole.
    """
    for worker, runs in reject(state, event.calls, 0):
        begun = worker.under_way()
        if any(run.number not in begun or _is_unwanted_after(run) for run in runs):
            recall(state, worker, worker.spare())
    state.agenda.scale = True


def _is_unwanted_after(run: Run) -> bool:
    """Return whether calls of a run after its next one are unwanted."""
    unwanted = run.span.open_task.unwanted
    return any(one.start < run.span.stop and run.done + 1 < one.stop for one in unwanted)


def reject(
    state: CoreState, calls: Iterable[tuple[int, int, int]], number: int
) -> list[tuple[Worker, list[Run]]]:
    """Settle the waiting ones of these calls (task, start, stop) and mark the others as unwanted;
    return the runs of the others by worker.
    """
    rejected: dict[int, list[Unwanted]] = {}
    calls = list(calls)
    state.open(task for task, _, _ in calls)
    for task, start, stop in calls:
        if task in state.open_tasks:
            rejected.setdefault(task, []).append(Unwanted(start, stop, number))
    tasks = [state.open_tasks[task] for task in rejected]
    runs: dict[int, Run] = {}
    for one in tasks:
        if one.missing and not one.runs:  # it waits for its inputs, in no queue
            span = one.only_span()
            if number or span.attempt == 1:
                settle_unwanted(state, span, number)
            continue
        for unwanted in rejected[one.task.id]:
            its = _runs_of(state, one, unwanted)
            if its and unwanted not in one.unwanted:
                one.unwanted = *one.unwanted, unwanted
            runs |= {run.number: run for run in its}
    _take_waiting(state, rejected, tasks)
    return _by_worker(runs.values())


def _runs_of(state: CoreState, one: OpenTask, unwanted: Unwanted) -> list[Run]:
    return [
        run
        for run in map(state.runs.__getitem__, one.runs)
        if unwanted.start < run.span.stop
        and run.done < unwanted.stop
        and (unwanted.signal or run.span.attempt == 1)
    ]


def _take_waiting(
    state: CoreState, rejected: Mapping[int, list[Unwanted]], tasks: Collection[OpenTask]
) -> None:
    """Take rejected calls of these tasks out of all queues, and settle them."""

    def split(span: Span) -> tuple[list[Span], list[Span]]:
        stays, goes = [span], list[Span]()
        for one in rejected.get(span.open_task.task.id, ()):
            if one.signal or span.attempt == 1:
                stays, parts = cut(stays, one)
                goes += parts
        return stays, goes

    for queue in state.queues.values():
        for span in queue.take_out(split, tasks):
            settle_unwanted(state, span, rejected[span.open_task.task.id][0].signal)
        state.agenda.changed_queues[queue] = None


def _by_worker(runs: Iterable[Run]) -> list[tuple[Worker, list[Run]]]:
    found: dict[bytes, tuple[Worker, list[Run]]] = {}
    for run in runs:
        found.setdefault(run.worker.id, (run.worker, []))[1].append(run)
    return list(found.values())


def recall_for_new_submitter(state: CoreState) -> None:
    """Recall unbegun calls for a submitter without a share, at most every `SHARE_SECONDS`."""
    if state.rebalance_due and state.now - state.recalled_for_new_at >= SHARE_SECONDS:
        state.recalled_for_new_at = state.now
        for worker in _busy_workers(state):
            recall(state, worker, worker.spare())


def rebalance(state: CoreState, event: Rebalance) -> None:
    """Where calls take longer than those before them, recall the calls that wait behind them."""
    state.rebalance_due = False
    for worker in _busy_workers(state):
        begun, spare = worker.under_way(), worker.spare()
        state.rebalance_due = state.rebalance_due or bool(spare)
        late = [
            run
            for number in begun
            if not (run := worker.runs[number]).batch.waiting
            and state.now - _last_sign(run, state.now) > LATE_SECONDS
        ]
        if worker.phase is not Phase.READY or not spare or not late:
            continue
        for run in late:
            run.span.open_task.pace.exceeded(state.now - _last_sign(run, state.now))
            if not run.late:
                run.late = True
                run.slot_group.late += 1
                run.slot_group.queue.relist(run.slot_group)
        recall(state, worker, spare)


def _busy_workers(state: CoreState) -> list[Worker]:
    return [worker for worker, _ in _by_worker(islice(state.runs.values(), MOST_SEARCHED))]


def _last_sign(run: Run, now: float) -> float:
    """Return since when the core waits for the next result of a run. A run that waited at its
    worker begins when it is first looked at.
    """
    if run.batch.answered_at is None:
        run.batch.answered_at = now
    return max(run.batch.answered_at, run.touched)


def recall(state: CoreState, worker: Worker, runs: Sequence[Run]) -> None:
    """Have a worker return the unbegun calls of these runs."""
    if worker.phase is Phase.READY and runs:
        for run in runs:
            run.touched, run.recalled = state.now, True
        state.effects.append(Send(worker.id, Recall([run.number for run in runs])))
