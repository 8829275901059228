"""Calls that need the results of others: what they wait for, and what becomes of them when that is
there, or has failed.

A result that others need has a number, its *reference*. Who makes it (a call, or the client) and
who needs it may come in any order, and so may its release. A chain of calls is worked off by a
loop: `settle` takes one task after the other that the event has brought an end to.
"""

from __future__ import annotations

from gridengine.dispatcher.core import failures, objects, outcomes
from gridengine.dispatcher.core.calls import NONE, AwaitedResult, OpenTask
from gridengine.dispatcher.core.events import (
    ReferencesReleased,
    ResultExpected,
    ResultMissing,
    ResultWanted,
    Supplied,
)
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.tasks import CallsFinished, ResultData
from gridengine.errors import Cancelled, GridEngineError, call_words
from gridengine.serialize.references import can_go_on

MOST_NAMED = 6
"""How many of the calls are named by which a failure has come: the first and the last."""


def link(state: CoreState, one: OpenTask) -> bool:
    """Note which results of a new task others need, and which it needs; return whether it may
    begin.
    """
    task, known, early = one.task, state.awaited, state.released_early
    for index, reference in task.kept:
        _keep(one, index, _to_be_made(state, reference))
    if not task.after:
        return True
    inputs: list[AwaitedResult] = []
    failed, wrong, missing = None, "", 0
    for reference in task.after if len(task.after) == 1 else dict.fromkeys(task.after):
        awaited = known.get(reference)
        if awaited is None:
            awaited = known[reference] = AwaitedResult(reference)
        inputs.append(awaited)
        awaited.open += 1
        if awaited.data is None:
            if awaited.waiting:
                awaited.waiting[task.id] = one
            else:
                awaited.waiting = {task.id: one}
            missing += 1
            if awaited is one.kept:
                wrong = "needs its own result"
            elif early and reference in early:
                wrong = "needs a result that was let go"
        elif outcomes.has_failed(awaited.data):
            failed = awaited
    one.inputs, one.missing = tuple(inputs), missing
    if failed is not None:
        outcomes.settle_failed_input(state, one, failed)
    elif wrong:
        hint = "report this as a fault of gridengine"
        error = GridEngineError(f"{failures.name_of(one.only_span(), 0)} {wrong}", hint=hint)
        outcomes.settle(state, one.only_span(), error=error, exitcode=1)
    return not missing and failed is None


def _keep(one: OpenTask, index: int, awaited: AwaitedResult) -> None:
    """Note that others need the result of a call."""
    if one.task.count == 1:
        one.kept = awaited
    elif isinstance(one.kept, dict):
        one.kept[index] = awaited
    else:
        one.kept = {index: awaited}


def _to_be_made(state: CoreState, reference: int) -> AwaitedResult:
    """Return what a reference stands for, which a call is to make; it is known to nobody else when
    it was released before.
    """
    awaited = state.awaited.get(reference)
    if awaited is None:
        awaited = AwaitedResult(reference, reference not in state.released_early)
        if awaited.held:
            state.awaited[reference] = awaited
    return awaited


# ------------------------------------------------------------------ what clients say


def wanted(state: CoreState, event: ResultWanted, now: float) -> None:
    """Keep the results of calls that are not settled; the client is to supply those of others."""
    for task, index, reference in event.calls:
        one = state.open_tasks.get(task)
        if one is None or one.is_settled(index):
            state.effects.append(ResultMissing(reference))
            continue
        _keep(one, index, _to_be_made(state, reference))
        if one.runs:
            one.wanted_late = {*one.wanted_late, index}
        else:
            state.effects.append(ResultExpected(reference))


def supplied(state: CoreState, event: Supplied, now: float) -> None:
    """Take in a result that the client has."""
    if event.reference in state.awaited or event.reference not in state.released_early:
        _arrive(state, _to_be_made(state, event.reference), event.data)
    else:
        state.released_early.discard(event.reference)


def released(state: CoreState, event: ReferencesReleased, now: float) -> None:
    """Forget results that nobody can refer to any more, once no call needs them."""
    for reference in event.references:
        awaited = state.awaited.get(reference)
        if awaited is None:
            state.released_early.add(reference)
        else:
            awaited.held = False
            if not awaited.open:
                _forget(state, awaited)


# ------------------------------------------------------------------ what becomes of them


def settle(state: CoreState) -> None:
    """Pass on what has become of the calls that were settled in this event, and of those that this
    settles in turn.
    """
    while state.linked:
        linked, state.linked = state.linked, []
        for one, finished in linked:
            if isinstance(one.kept, AwaitedResult):
                _settle_kept(state, one, finished, 0, one.kept)
            elif one.kept:
                for index in range(finished.start, finished.stop):
                    if index in one.kept:
                        _settle_kept(state, one, finished, index, one.kept.pop(index))
            if finished.last:
                _let_go(state, one)


def _let_go(state: CoreState, one: OpenTask) -> None:
    """Forget the results that an ended call needed, if no other does, and none will."""
    for awaited in one.inputs:
        awaited.open -= 1
        if one.missing and awaited.waiting:
            awaited.waiting.pop(one.task.id, None)
        if awaited.open:
            continue
        if not awaited.held:
            _forget(state, awaited)
        elif awaited.remote is not None:
            objects.rest_result(state, awaited.remote)


def _settle_kept(
    state: CoreState, one: OpenTask, finished: CallsFinished, index: int, awaited: AwaitedResult
) -> None:
    """Take in what came of a call whose result others need.

    One that was taken back is handed in again, or the client supplies what became of it. So it does
    when others were found to need the result only after the call had been assigned, and it cannot
    go on as it came.
    """
    payload = finished.payload
    if index in one.wanted_late:
        one.wanted_late -= {index}
        values = finished.stop - finished.start
        if payload is not None and not finished.raised and not can_go_on(payload, values):
            state.effects.append(ResultMissing(awaited.reference))
            return
        state.effects.append(ResultExpected(awaited.reference))
    if finished.recalled and not finished.path:
        return
    if not awaited.held and not awaited.open:
        state.released_early.discard(awaited.reference)
    elif payload is not None and not finished.raised:
        _arrive(state, awaited, ResultData(payload, index - finished.start))
    else:
        _arrive(state, awaited, _failure_of(one, finished, index))


def _failure_of(one: OpenTask, finished: CallsFinished, index: int) -> ResultData:
    """Return what came of one of the calls that have failed, and by which way it goes on."""
    function, path = one.function.function, finished.path
    name = function.name if path else call_words(function.name, one.task.first, index)
    if len(path) >= MOST_NAMED:
        path = *path[: MOST_NAMED // 2], "...", *path[1 - MOST_NAMED // 2 :]
    return ResultData(
        finished.payload,
        raised=finished.raised,
        error=finished.error,
        cancelled=finished.recalled or isinstance(finished.error, Cancelled),
        path=(*path, name),
    )


def _arrive(state: CoreState, awaited: AwaitedResult, data: ResultData) -> None:
    """Begin the dependents that have waited for this result alone; settle all if it has failed."""
    if awaited.data is not None:
        return
    awaited.data = data
    failed = data.payload is None or data.raised
    if data.payload is not None and not failed:
        objects.keep_result(state, awaited, data.payload)
    if awaited.waiting:
        waiting, awaited.waiting = awaited.waiting, NONE
        for one in waiting.values():
            if not one.unsettled:
                continue
            one.missing -= 1
            if one.runs:  # it follows who made this, or comes back
                continue
            if failed:
                outcomes.settle_failed_input(state, one, awaited)
            elif not one.missing:  # before others: what its inputs take is free the sooner
                span = one.only_span()
                queue = state.queue_for(span.demand)
                queue.put_back(span)
                state.begun[queue] = one
    elif not awaited.open and not awaited.held:
        _forget(state, awaited)


def _forget(state: CoreState, awaited: AwaitedResult) -> None:
    del state.awaited[awaited.reference]
    if awaited.data is None:
        state.released_early.add(awaited.reference)
    elif awaited.remote is not None:
        objects.forget_result(state, awaited.remote)
