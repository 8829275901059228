"""Calls that need the results of other calls: their inputs, and what follows from an outcome.

Each result that other calls need has a number, its *reference*. Its maker (a call, or the client),
its dependents and its release may come in any order. `pass_on` works off a chain of calls in a
loop, one ended task after the other, without recursion.
"""

from __future__ import annotations

from gridengine.dispatcher.core import events, objects, outcomes, pulls
from gridengine.dispatcher.core.calls import AwaitedResult, OpenTask, added, without
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.workers_and_queues import Worker, WorkerPhase
from gridengine.errors import Cancelled, GridEngineError, call_words
from gridengine.requests import (
    CallsFinished,
    NamesForgotten,
    ResultData,
    ResultWanted,
    Supplied,
    Task,
    WantAnswered,
)
from gridengine.resources.demand import ANY
from gridengine.serialize.payload import Payload, PayloadAtWorker
from gridengine.serialize.references import can_go_on
from gridengine.wire.messages import Fetched, Forget, Keep, Pulled, Result, input_name

MOST_NAMED = 6
"""A failure names at most this many of the calls through which it came: the first and the last."""


def link(state: CoreState, one: OpenTask, task: Task) -> bool:
    """Note the results that a new task makes for other calls, and its inputs. Return whether it may
    begin.
    """
    known, early = state.awaited, state.released_early
    for index, reference in task.kept:
        _keep(one, index, _to_be_made(state, reference))
    after = task.after
    if not after:
        return True
    inputs: list[AwaitedResult] = []
    failed, missing = None, 0
    for reference in after if len(after) == 1 else dict.fromkeys(after):
        awaited = known.get(reference)
        if awaited is None:
            awaited = known[reference] = AwaitedResult(reference)
        inputs.append(awaited)
        awaited.open += 1
        if awaited.data is None:
            waiting = awaited.waiting
            awaited.waiting = added(waiting, one) if waiting else (one,)
            missing += 1
        elif outcomes.has_failed(awaited.data):
            failed = awaited
    one.inputs, one.missing = tuple(inputs), missing
    if missing and state.story is not None:
        state.story.move(one.only_span(), "missing")
    if failed is not None:
        outcomes.settle_failed_input(state, one, failed)
    elif missing and (one.kept in inputs or (early and not early.isdisjoint(after))):
        wrong = "needs its own result" if one.kept in inputs else "needs a result that was let go"
        hint = "report this as a fault of gridengine"
        error = GridEngineError(f"{outcomes.name_of(one.only_span(), 0)} {wrong}", hint=hint)
        outcomes.settle(state, one.only_span(), error=error, exitcode=1)
    return not missing and failed is None


def _keep(one: OpenTask, index: int, awaited: AwaitedResult) -> None:
    """Note that others need the result of a call."""
    if one.count == 1:
        one.kept = awaited
    elif isinstance(one.kept, dict):
        one.kept[index] = awaited
    else:
        one.kept = {index: awaited}


def _to_be_made(state: CoreState, reference: int) -> AwaitedResult:
    """Return the record of a result that a call has still to make. If the reference has been
    released already, the record is a new one that the core does not store.
    """
    awaited = state.awaited.get(reference)
    if awaited is None:
        awaited = AwaitedResult(reference, int(reference not in state.released_early))
        if awaited.held:
            state.awaited[reference] = awaited
    return awaited


def wanted(state: CoreState, event: ResultWanted) -> None:
    """Keep the result of an unsettled call; ask the client for the result of a settled one."""
    index, reference = event.index, event.reference
    one = state.open_tasks.get(event.task)
    if one is None or one.is_settled(index):
        state.effects.append(WantAnswered(reference, missing=True))
        return
    _keep(one, index, _to_be_made(state, reference))
    if one.runs:
        one.change(wanted_late={*one.details.wanted_late, index})
        for run in map(state.runs.__getitem__, one.runs):
            if run.done <= index < run.span.stop:
                keep = Keep(run.number, index, reference)
                state.effects.append(events.Send(run.worker.id, keep))
    else:
        state.effects.append(WantAnswered(reference, missing=False))


def supplied(state: CoreState, event: Supplied) -> None:
    """Take in a result that the client has."""
    if event.reference in state.awaited or event.reference not in state.released_early:
        _arrive(state, _to_be_made(state, event.reference), event.data)
    else:
        state.released_early.discard(event.reference)


def forgotten(state: CoreState, event: NamesForgotten) -> None:
    """Forget shared objects and results to which no new call can refer, once no call needs them."""
    for name in event.shared:
        objects.released(state, name)
    for reference in event.references:
        awaited = state.awaited.get(reference)
        if awaited is None:
            state.released_early.add(reference)
        else:
            awaited.held -= 1
            if not awaited.held and not awaited.open:
                objects.forget(state, awaited)


def pass_on(state: CoreState) -> None:
    """Pass on the outcomes of the calls that this event has settled, and then of the calls that are
    settled because an input has failed.
    """
    while state.agenda.linked:
        linked, state.agenda.linked = state.agenda.linked, []
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
    """Release the inputs of an ended call. Forget those that no other call needs."""
    for awaited in one.inputs:
        awaited.open -= 1
        if one.missing:
            awaited.waiting = without(awaited.waiting, one)
        if awaited.open:
            continue
        if not awaited.held:
            objects.forget(state, awaited)
        elif awaited.remote is not None:
            objects.rest_result(state, awaited.remote)


def _settle_kept(
    state: CoreState, one: OpenTask, finished: CallsFinished, index: int, awaited: AwaitedResult
) -> None:
    """Take in the outcome of a call whose result others need.

    The client supplies the result instead if the call was recalled, or if others asked for the
    result only after the call was assigned and its payload cannot be forwarded as it is.
    """
    payload = finished.payload
    known = awaited if awaited.held or awaited.open else state.awaited.get(awaited.reference)
    awaited = known or awaited
    if index in one.details.wanted_late:
        one.change(wanted_late=one.details.wanted_late - {index})
        values = finished.stop - finished.start
        if (
            payload is not None
            and not finished.raised
            and type(payload) is not PayloadAtWorker
            and not can_go_on(payload, values)
        ):
            state.effects.append(WantAnswered(awaited.reference, missing=True))
            return
        state.effects.append(WantAnswered(awaited.reference, missing=False))
    if finished.recalled and not finished.path:
        return
    if type(payload) is PayloadAtWorker:
        _keep_away(state, one, payload, index, awaited)
    elif known is None:
        state.released_early.discard(awaited.reference)
    elif payload is not None and not finished.raised:
        _arrive(state, awaited, ResultData(payload, index - finished.start))
    else:
        _arrive(state, awaited, _failure_of(one, finished, index))


def _keep_away(
    state: CoreState, one: OpenTask, payload: PayloadAtWorker, index: int, awaited: AwaitedResult
) -> None:
    """Record a result that stays at its worker. Have the worker forget the result if neither the
    caller nor a call can ask for it.
    """
    reference, worker = payload.reference, state.workers.get(payload.worker)
    if one.count == 1:
        one.kept = None  # the result may refer to its maker: this avoids a reference cycle
    if reference not in state.awaited:
        state.released_early.discard(reference)
        if not one.details.remade:
            state.awaited[reference] = awaited
    if not one.details.remade:
        awaited.told, awaited.held = True, awaited.held + 1
    if reference in state.awaited and awaited.data is None:
        objects.note_maker(awaited, one, index)
        _arrive(state, awaited, ResultData(payload))
    elif worker is not None and (name := input_name(reference)) not in worker.functions:
        state.effects.append(events.Send(worker.id, Forget([name])))


def _failure_of(one: OpenTask, finished: CallsFinished, index: int) -> ResultData:
    """Return the failure of one call, with the functions through which it came."""
    function, path = one.function.function, finished.path
    name = function.name if path else call_words(function.name, one.first, index)
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
    """Note that a result has come, and begin or settle the calls that wait for it."""
    if awaited.data is not None:
        return
    awaited.data = data
    payload = data.payload
    if type(payload) is PayloadAtWorker:
        awaited.data = ResultData(())  # it goes when the caller has released it
        objects.keep_away(state, awaited, payload.size, state.workers.get(payload.worker))
        if awaited.asked:
            objects.bring(state, awaited)
    elif payload is not None and not data.raised:
        objects.keep_result(state, awaited, payload)
    if awaited.told and type(payload) is not PayloadAtWorker:
        state.effects.append(events.ResultFetched(awaited.reference, data))
    if awaited.waiting:
        begin_waiting(state, awaited)
    elif not awaited.open and not awaited.held:
        objects.forget(state, awaited)


def begin_waiting(state: CoreState, awaited: AwaitedResult) -> None:
    """Queue the calls that lacked only this result. If the result is a failure, settle all that
    wait.
    """
    assert awaited.data is not None
    failed = outcomes.has_failed(awaited.data)
    waiting, awaited.waiting = awaited.waiting, ()
    for one in waiting:
        if not one.unsettled:
            continue
        one.missing -= 1
        if one.runs:  # it is in a batch behind the maker, or its worker gives it back
            continue
        if failed:
            outcomes.settle_failed_input(state, one, awaited)
        elif not one.missing:  # before others: the memory of its inputs is free sooner
            span = one.only_span()
            demand = span.demand
            if state.story is not None:
                state.story.move(span, "waiting", "its inputs are there")
            queue = state.common_queue if demand is ANY else state.queue_for(demand)
            queue.put_back(span)
            state.agenda.begun[queue] = one


def fetched(state: CoreState, worker: Worker, message: Fetched, buffers: Payload) -> None:
    """Take in a result that a worker sends, because it was asked or because it leaves. Without
    buffers, the worker says that it does not have the result.
    """
    name = message.name
    known, awaited = state.objects.get(name), state.awaited.get(int.from_bytes(name, "big"))
    if known is None or not known.away or awaited is None:
        return
    if not buffers:
        known.workers.discard(worker.id)
        worker.functions.discard(name)
        if known.asked == worker.id:
            objects.bring_again(state, [name])
        return
    del state.away[name]
    if worker.phase is WorkerPhase.STOPPING:
        worker.stopping_since = state.now  # it makes progress: the rest has the whole time again
    payload = outcomes.unwritable(buffers)
    known.function = objects.result_function(name, payload)
    known.away, known.asked = False, None
    awaited.data = ResultData(payload)
    objects.forget_maker(state, awaited)
    if awaited.told:
        state.effects.append(events.ResultFetched(awaited.reference, awaited.data))
    begin_waiting(state, awaited)


def pulled(state: CoreState, worker: Worker, message: Pulled, buffers: Payload) -> None:
    """Note that a worker has got a result from another one, or could not get it, unless it was told
    to forget the result meanwhile.
    """
    known = state.objects.get(message.name)
    if known is None or known.pulls.get(worker.id, (b"", None))[1] != message.number:
        return
    pulls.answered(state, worker, known, message)
    if known.asked == worker.id:
        objects.bring_again(state, [message.name])


def asked(state: CoreState, event: events.ResultAsked) -> None:
    """Bring a result here, because the caller asks for it."""
    awaited = state.awaited.get(event.reference)
    if awaited is None:
        error = GridEngineError("a result was let go", hint="report this as a fault of gridengine")
        state.effects.append(events.ResultFetched(event.reference, ResultData(error=error)))
    elif awaited.remote is not None and awaited.remote.away:
        awaited.asked = True
        objects.bring(state, awaited)
    elif awaited.data is None:
        awaited.asked = True  # it is being made again
    else:
        state.effects.append(events.ResultFetched(event.reference, awaited.data))


def forget_before_closing(state: CoreState, *, everything: bool) -> None:
    """Have workers forget results that the caller will not ask for; otherwise they would hand them
    over before they leave.
    """
    for name in list(state.away):
        if everything or not state.awaited[int.from_bytes(name, "big")].told:
            objects.forget_at_workers(state, state.objects[name])
            del state.away[name]


def drop_late(state: CoreState, worker: Worker, result: Result) -> None:
    """Have a worker forget a result whose run has ended already, unless another run made the result
    too.
    """
    if result.held is not None and (name := input_name(result.held[0])) not in worker.functions:
        state.effects.append(events.Send(worker.id, Forget([name])))


def may_stay(one: OpenTask, result: Result) -> bool:
    """Return whether a result may stay at its worker: the worker holds it as the result of one
    call, under a reference that this call has.
    """
    start, stop = result.start, result.start + 1
    return (
        result.held is not None
        and result.stop == stop
        and ((start, result.held[0]) in one.kept_within(start, stop))
    )
