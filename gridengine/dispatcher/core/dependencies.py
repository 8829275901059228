"""Calls that need the results of others: what they wait for, and what becomes of them when that is
there, or has failed.

A result that others need has a number, its *reference*. Who makes it (a call, or the client) and
who needs it may come in any order, and so may its release. A chain of calls is worked off by a
loop: `settle` takes one task after the other that the event has brought an end to.
"""

from __future__ import annotations

from gridengine.dispatcher.core import failures, objects, outcomes
from gridengine.dispatcher.core.calls import AwaitedResult, OpenTask, Span
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

MOST_NAMED = 6
"""How many of the calls are named by which a failure has come: the first and the last."""


def link(state: CoreState, one: OpenTask) -> bool:
    """Note which results of a new task others need, and which it needs; return whether it may
    begin.
    """
    task = one.task
    if task.kept:
        kept = ((index, _made(state, reference)) for index, reference in task.kept)
        one.kept = {index: awaited for index, awaited in kept if awaited is not None}
    if not task.after:
        return True
    own = {reference for _, reference in task.kept}
    for reference in dict.fromkeys(task.after):
        if reference in own or reference in state.released_early:
            what = "needs its own result" if reference in own else "needs a result that was let go"
            hint = "report this as a fault of gridengine"
            error = GridEngineError(f"{failures.name_of(_span(one), 0)} {what}", hint=hint)
            outcomes.settle(state, _span(one), error=error, exitcode=1)
            return False
        _need(one, _awaited(state, reference))
    failed = next((awaited for awaited in one.inputs if _has_failed(awaited)), None)
    if failed is not None:
        _fail(state, one, failed)
    return not one.missing and failed is None


def _need(one: OpenTask, awaited: AwaitedResult) -> None:
    one.inputs = *one.inputs, awaited
    awaited.open += 1
    if awaited.data is None:
        awaited.waiting[one.task.id] = one
        one.missing += 1


def _awaited(state: CoreState, reference: int) -> AwaitedResult:
    """Return what a reference stands for, which may be mentioned for the first time."""
    awaited = state.awaited.get(reference)
    if awaited is None:
        awaited = state.awaited[reference] = AwaitedResult(reference)
    return awaited


def _made(state: CoreState, reference: int) -> AwaitedResult | None:
    """Return what a reference stands for, which somebody is about to make; None when nobody needs
    it any more.
    """
    if reference in state.released_early:
        state.released_early.discard(reference)
        return None
    return _awaited(state, reference)


def _span(one: OpenTask) -> Span:
    return Span(one, 0, 1, one.task.demand)


def _has_failed(awaited: AwaitedResult) -> bool:
    data = awaited.data
    return data is not None and (data.payload is None or data.raised)


# ------------------------------------------------------------------ what clients say


def wanted(state: CoreState, event: ResultWanted, now: float) -> None:
    """Keep the results of calls that have not begun; the client is to supply those of others, which
    may be pickled together, and with classes that it alone knows.
    """
    for task, index, reference in event.calls:
        one = state.open_tasks.get(task)
        if one is None or one.runs or one.is_settled(index):
            state.effects.append(ResultMissing(reference))
            continue
        state.effects.append(ResultExpected(reference))
        awaited = _made(state, reference)
        if awaited is not None:
            one.kept = {**(one.kept or {}), index: awaited}


def supplied(state: CoreState, event: Supplied, now: float) -> None:
    """Take in a result that the client has."""
    awaited = _made(state, event.reference)
    if awaited is not None:
        _arrive(state, awaited, event.data)


def released(state: CoreState, event: ReferencesReleased, now: float) -> None:
    """Forget results that nobody can refer to any more, once no call needs them."""
    for reference in event.references:
        awaited = state.awaited.get(reference)
        if awaited is None:
            state.released_early.add(reference)
        else:
            awaited.held = False
            _forget_if_unused(state, awaited)


# ------------------------------------------------------------------ what becomes of them


def settle(state: CoreState) -> None:
    """Pass on what has become of the calls that were settled in this event, and of those that this
    settles in turn.
    """
    while state.linked:
        one, finished = state.linked.popleft()
        kept = one.kept
        if kept:
            for index in range(finished.start, finished.stop):
                awaited = kept.pop(index, None)
                # one that was taken back is handed in again, or the client supplies what became
                # of it
                if awaited is not None and (not finished.recalled or finished.path):
                    _arrive(state, awaited, _data_of(one, finished, index))
        if finished.last:
            for awaited in one.inputs:
                awaited.open -= 1
                awaited.waiting.pop(one.task.id, None)
                _forget_if_unused(state, awaited)


def _data_of(one: OpenTask, finished: CallsFinished, index: int) -> ResultData:
    """Return what came of one of the calls that have finished."""
    if finished.payload is not None and not finished.raised:
        return ResultData(finished.payload, index - finished.start)
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
    reference = awaited.reference
    if awaited.data is not None:
        return
    if state.awaited.get(reference) is not awaited:
        state.released_early.discard(reference)
        return
    awaited.data = data
    waiting, awaited.waiting = awaited.waiting, {}
    failed = _has_failed(awaited)
    if not failed:
        objects.keep_result(state, awaited, data)
    for one in waiting.values():
        if not one.unsettled:
            continue
        if failed:
            _fail(state, one, awaited)
            continue
        one.missing -= 1
        if not one.missing:
            _begin(state, one)
    _forget_if_unused(state, awaited)


def _begin(state: CoreState, one: OpenTask) -> None:
    """Have a call wait for a worker, before others of its submitter: what its inputs take is free
    the sooner.
    """
    queue = state.queue_for(one.task.demand)
    queue.put_back(_span(one))
    state.begun[queue] = one


def _fail(state: CoreState, one: OpenTask, awaited: AwaitedResult) -> None:
    data = awaited.data
    assert data is not None
    error = data.error
    if data.payload is None and error is None:
        error = failures.why_cancelled(_span(one), None)
    outcomes.settle(
        state,
        _span(one),
        data.payload,
        raised=data.raised,
        error=error,
        exitcode=1,
        recalled=data.cancelled,
        path=data.path or ("a future",),
    )


def _forget_if_unused(state: CoreState, awaited: AwaitedResult) -> None:
    if awaited.held or awaited.open:
        return
    del state.awaited[awaited.reference]
    if awaited.data is None:
        state.released_early.add(awaited.reference)
    else:
        objects.forget_result(state, awaited)
