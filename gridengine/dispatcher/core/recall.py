"""Calls that are cancelled, and calls that have not begun and are recalled from their workers: by
their submitter, or by the core for the sake of others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from gridengine.dispatcher.core.calls import OpenTask, Span, Unwanted
from gridengine.dispatcher.core.events import CancelRequested, Rebalance, RecallRequested, Send
from gridengine.dispatcher.core.model import Phase, Run, Worker
from gridengine.dispatcher.core.outcomes import (
    cut,
    drop_waiting,
    settle_cancelled,
    settle_recalled,
)
from gridengine.dispatcher.core.state import CoreState
from gridengine.wire.messages import Cancel, Recall

LATE_SECONDS = 0.05
SHARE_SECONDS = 0.05
"""How often calls are recalled at most for submitters that have no share of the workers yet."""
MOST_SEARCHED = 200
"""How many runs are searched for workers that have too much."""

Calls = tuple[int, int]
"""The first of some calls of a task, and the one after the last."""


def cancel_requested(state: CoreState, event: CancelRequested, now: float) -> None:
    """Settle what waits of tasks or calls that are to end, and have workers end what they have."""
    cancel(state, event.tasks, event.signal)
    calls = _by_task(state, event.calls)
    for span in _take_waiting(state, calls, last_attempt=math.inf):
        settle_cancelled(state, span, event.signal)
    runs = []
    for one, parts in _still_open(state, calls):
        for start, stop in parts:
            one.reject(Unwanted(start, stop, event.signal))
        runs += [run for run in _runs(state, one) if any(_overlaps(run, part) for part in parts)]
    _cancel_runs(state, runs, event.signal)
    state.scale_due = True


def cancel(state: CoreState, tasks: Iterable[int], number: int) -> None:
    """End these tasks by this signal."""
    cancelled = [state.open_tasks[id] for id in tasks if id in state.open_tasks]
    if not cancelled:
        return
    for one in cancelled:
        one.cancelled = number
    runs = [run for one in cancelled for run in _runs(state, one)]
    drop_waiting(
        state,
        lambda span: bool(span.open_task.cancelled),
        lambda state, span: settle_cancelled(state, span, number),
    )
    _cancel_runs(state, runs, number)


def _cancel_runs(state: CoreState, runs: Iterable[Run], number: int) -> None:
    for worker, its in _by_worker(runs):
        state.effects.append(Send(worker.id, Cancel([run.number for run in its], number)))


def recall_requested(state: CoreState, event: RecallRequested, now: float) -> None:
    """Take calls out of the queues, and have workers give back those that have not begun."""
    calls = _by_task(state, event.calls)
    for span in _take_waiting(state, calls, last_attempt=1):
        settle_recalled(state, span)
    for one, parts in _still_open(state, calls):
        for part in parts:
            _recall_assigned(state, one, part, now)
    state.scale_due = True


def _recall_assigned(state: CoreState, one: OpenTask, part: Calls, now: float) -> None:
    """Have workers that have such calls, not begun, give back all that has not begun: runners let
    go of it as a whole.
    """
    runs = [run for run in _runs(state, one) if run.span.attempt == 1 and _overlaps(run, part)]
    for worker, its in _by_worker(runs):
        begun = worker.under_way()
        if any(run.number not in begun or part[1] > run.done + 1 for run in its):
            one.reject(Unwanted(*part))
            _recall(state, worker, worker.spare(), now)


def _take_waiting(
    state: CoreState, calls: Mapping[int, Sequence[Calls]], *, last_attempt: float
) -> list[Span]:
    """Take such calls out of all queues, and return them."""

    def split(span: Span) -> tuple[list[Span], list[Span]]:
        stays, goes = [span], list[Span]()
        for part in calls.get(span.open_task.task.id, ()) if span.attempt <= last_attempt else ():
            pieces = [cut(one, *part) for one in stays]
            stays = [one for outside, _ in pieces for one in outside]
            goes += [one for _, inside in pieces for one in inside]
        return stays, goes

    submitters = dict.fromkeys(one.submitter for one, _ in _still_open(state, calls))
    taken: list[Span] = []
    for queue in state.queues.values():
        taken += queue.take_out(split, submitters)
        state.dirty_queues[queue] = None
    return taken


def _by_task(state: CoreState, calls: Iterable[tuple[int, int, int]]) -> dict[int, list[Calls]]:
    found: dict[int, list[Calls]] = {}
    for task, start, stop in calls:
        if task in state.open_tasks:
            found.setdefault(task, []).append((start, stop))
    return found


def _still_open(
    state: CoreState, calls: Mapping[int, Sequence[Calls]]
) -> list[tuple[OpenTask, Sequence[Calls]]]:
    open_tasks = state.open_tasks
    return [(open_tasks[task], parts) for task, parts in calls.items() if task in open_tasks]


def _runs(state: CoreState, one: OpenTask) -> list[Run]:
    return [state.runs[number] for number in one.runs]


def _overlaps(run: Run, part: Calls) -> bool:
    return part[0] < run.span.stop and run.done < part[1]


def _by_worker(runs: Iterable[Run]) -> list[tuple[Worker, list[Run]]]:
    found: dict[bytes, tuple[Worker, list[Run]]] = {}
    for run in runs:
        found.setdefault(run.worker.id, (run.worker, []))[1].append(run)
    return list(found.values())


# ------------------------------------------------------------------ for the sake of others


def recall_for_new_submitter(state: CoreState, now: float) -> None:
    """Have workers give back what they have not begun, for a submitter that has no share of them
    yet; every now and then.
    """
    if state.rebalance_due and now - state.recalled_for_new_at >= SHARE_SECONDS:
        state.recalled_for_new_at = now
        for worker in _busy_workers(state):
            _recall(state, worker, worker.spare(), now)


def rebalance(state: CoreState, event: Rebalance, now: float) -> None:
    """Where calls take longer than those before them did, recall what has not begun: it must not
    wait behind them.
    """
    state.rebalance_due = False
    for worker in _busy_workers(state):
        begun, spare = worker.under_way(), worker.spare()
        state.rebalance_due = state.rebalance_due or bool(spare)
        late = [
            run
            for number in begun
            if now - _last_sign(run := worker.runs[number], now) > LATE_SECONDS
        ]
        if worker.phase is not Phase.READY or not spare or not late:
            continue
        for run in late:
            run.span.open_task.pace.exceeded(now - _last_sign(run, now))
        _recall(state, worker, spare, now)


def _busy_workers(state: CoreState) -> list[Worker]:
    return [worker for worker, _ in _by_worker(islice(state.runs.values(), MOST_SEARCHED))]


def _last_sign(run: Run, now: float) -> float:
    """Return since when a result of a run that is under way is waited for. One that waited at its
    worker begins when that is first seen.
    """
    if run.batch.answered_at is None:
        run.batch.answered_at = now
    return max(run.batch.answered_at, run.touched)


def _recall(state: CoreState, worker: Worker, runs: Sequence[Run], now: float) -> None:
    """Have a worker give back of these runs what it has not begun."""
    if worker.phase is Phase.READY and runs:
        for run in runs:
            run.touched, run.recalled = now, True
        state.effects.append(Send(worker.id, Recall([run.number for run in runs])))
