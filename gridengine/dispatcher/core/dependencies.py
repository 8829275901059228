"""Calls that need the results of others: what they wait for, and what becomes of them when that is
there, or has failed.

A result that others need has a number, its *reference*. Who makes it (a call, or the client) and
who needs it may come in any order, and so may its release. A chain of calls is worked off by a
loop: `settle` takes one task after the other that the event has brought an end to.
"""

from __future__ import annotations

from gridengine.dispatcher.core import failures, lineage, objects, outcomes
from gridengine.dispatcher.core.calls import AwaitedResult, OpenTask, Span
from gridengine.dispatcher.core.events import (
    ReferencesReleased,
    ResultExpected,
    ResultFetched,
    ResultMissing,
    ResultWanted,
    Send,
    Supplied,
)
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.tasks import CallsFinished, ResultData
from gridengine.errors import Cancelled, GridEngineError, call_words
from gridengine.serialize.kept_payload import KeptPayload
from gridengine.serialize.references import can_go_on
from gridengine.wire.messages import Forget, Keep, input_name

MOST_NAMED = 6
"""How many of the calls are named by which a failure has come: the first and the last."""


def link(state: CoreState, one: OpenTask) -> bool:
    """Note which results of a new task others need, and which it needs; return whether it may
    begin.
    """
    task, known = one.task, state.awaited
    if task.kept:
        one.kept = dict(task.kept)
    if not task.after:
        return True
    own, early = one.kept and one.kept.get(0), state.released_early
    inputs, failed, wrong = list[AwaitedResult](), None, ""
    for reference in task.after if len(task.after) == 1 else dict.fromkeys(task.after):
        awaited = known.get(reference)
        if awaited is None:
            awaited = known[reference] = AwaitedResult(reference)
        inputs.append(awaited)
        awaited.open += 1
        if awaited.data is None:
            awaited.waiting[task.id] = one
            one.missing += 1
            if reference == own:
                wrong = "needs its own result"
            elif early and reference in early:
                wrong = "needs a result that was let go"
        elif has_failed(awaited.data):
            failed = awaited
    one.inputs = tuple(inputs)
    if failed is not None:
        fail(state, one, failed)
    elif wrong:
        hint = "report this as a fault of gridengine"
        error = GridEngineError(f"{failures.name_of(_span(one), 0)} {wrong}", hint=hint)
        outcomes.settle(state, _span(one), error=error, exitcode=1)
    return not one.missing and failed is None


def _made(state: CoreState, reference: int) -> AwaitedResult | None:
    """Return what a reference stands for, which has been made; None when nobody needs it any
    more.
    """
    awaited = state.awaited.get(reference)
    if awaited is None and reference in state.released_early:
        state.released_early.discard(reference)
    elif awaited is None:
        awaited = state.awaited[reference] = AwaitedResult(reference)
    return awaited


def _span(one: OpenTask) -> Span:
    return one.span or Span(one, 0, 1, one.task.demand)


def has_failed(data: ResultData) -> bool:
    """Return whether there is no value: whoever needs it fails too."""
    return data.payload is None or data.raised


# ------------------------------------------------------------------ what clients say


def wanted(state: CoreState, event: ResultWanted, now: float) -> None:
    """Keep the results of calls that are not settled; the client is to supply those of others."""
    for task, index, reference in event.calls:
        one = state.open_tasks.get(task)
        if one is None or one.is_settled(index):
            state.effects.append(ResultMissing(reference))
            continue
        one.kept = {**(one.kept or {}), index: reference}
        if one.runs:
            one.wanted_late = {*one.wanted_late, index}
            for run in map(state.runs.__getitem__, one.runs):
                if run.done <= index < run.span.stop:
                    keep = Keep(run.number, index, reference)
                    state.effects.append(Send(run.worker.id, keep))
        else:
            state.effects.append(ResultExpected(reference))


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
            awaited.held -= 1
            lineage.forget(state, awaited)


# ------------------------------------------------------------------ what becomes of them


def settle(state: CoreState) -> None:
    """Pass on what has become of the calls that were settled in this event, and of those that this
    settles in turn.
    """
    linked = state.linked
    while linked:
        one, finished = linked.popleft()
        if kept := one.kept:
            for index in range(finished.start, finished.stop):
                if index in kept:
                    _settle_kept(state, one, finished, index)
        if finished.last:
            for awaited in one.inputs:
                awaited.open -= 1
                if one.missing:
                    awaited.waiting.pop(one.task.id, None)
                if not awaited.open and not awaited.held:
                    lineage.forget(state, awaited)
                elif not awaited.open and awaited.remote is not None:
                    objects.rest_result(state, awaited.remote)


def _settle_kept(state: CoreState, one: OpenTask, finished: CallsFinished, index: int) -> None:
    """Take in what came of a call whose result others need.

    One that was taken back is handed in again, or the client supplies what became of it. So it does
    when others were found to need the result only after the call had been assigned, and it cannot
    go on as it came.
    """
    assert one.kept is not None
    reference, payload = one.kept.pop(index), finished.payload
    if index in one.wanted_late:
        one.wanted_late -= {index}
        values = finished.stop - finished.start
        if (
            payload is not None
            and not finished.raised
            and type(payload) is not KeptPayload
            and not can_go_on(payload, values)
        ):
            state.effects.append(ResultMissing(reference))
            return
        state.effects.append(ResultExpected(reference))
    if finished.recalled and not finished.path:
        return
    if type(payload) is KeptPayload:
        _keep_away(state, one, payload, index)
        return
    awaited = state.awaited.get(reference) or _made(state, reference)
    if awaited is None:
        return
    if payload is not None and not finished.raised:
        data = ResultData(payload, index - finished.start)
    else:
        data = _failure_of(one, finished, index)
    _arrive(state, awaited, data)


def _keep_away(state: CoreState, one: OpenTask, payload: KeptPayload, index: int) -> None:
    """Note that a result stays with its worker, as long as the caller may ask for it, and others
    need it.
    """
    reference, worker = payload.reference, state.workers.get(payload.worker)
    awaited = state.awaited.get(reference) or _made(state, reference)
    if not one.remade:
        if awaited is None:
            awaited = state.awaited[reference] = AwaitedResult(reference, 0)
        awaited.told, awaited.held = True, awaited.held + 1
    if awaited is not None and awaited.data is None:
        lineage.note_maker(awaited, one, index)
        _arrive(state, awaited, ResultData(payload))
    elif worker is not None and (name := input_name(reference)) not in worker.functions:
        state.effects.append(Send(worker.id, Forget([name])))


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
    """Have a result for those who need it."""
    if awaited.data is not None:
        return
    awaited.data = data
    payload = data.payload
    if type(payload) is KeptPayload:
        awaited.data = ResultData(())  # it goes when the caller has it no more
        objects.keep_away(state, awaited, payload.size, state.workers.get(payload.worker))
        if awaited.asked:
            lineage.bring(state, awaited)
    elif not has_failed(data):
        objects.keep_result(state, awaited, data)
    if awaited.told and type(payload) is not KeptPayload:
        state.effects.append(ResultFetched(awaited.reference, data))
    if awaited.waiting:
        begin_waiting(state, awaited)
    elif not awaited.open and not awaited.held:
        lineage.forget(state, awaited)


def begin_waiting(state: CoreState, awaited: AwaitedResult) -> None:
    """Begin the calls that have waited for this result alone; settle all if it has failed."""
    assert awaited.data is not None
    failed = has_failed(awaited.data)
    waiting, awaited.waiting = awaited.waiting, {}
    for one in waiting.values():
        if not one.unsettled:
            continue
        if failed:
            fail(state, one, awaited)
            continue
        one.missing -= 1
        if not one.missing:
            _begin(state, one)


def _begin(state: CoreState, one: OpenTask) -> None:
    """Have a call wait for a worker, before others of its submitter: what its inputs take is free
    the sooner.
    """
    span = _span(one)
    queue = state.queue_for(span.demand)
    queue.put_back(span)
    state.begun[queue] = one


def fail(state: CoreState, one: OpenTask, awaited: AwaitedResult) -> None:
    """Settle a call as what it needs has failed."""
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
