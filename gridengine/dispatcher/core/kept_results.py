"""Large results that stay at the workers that made them: calls that need them go there, or the
results come here, once, for all other users.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gridengine.dispatcher.core import dependencies, objects
from gridengine.dispatcher.core.calls import AwaitedResult, OpenTask, Span
from gridengine.dispatcher.core.events import ResultAsked, ResultFetched, Send
from gridengine.dispatcher.core.model import SlotGroup, TaskQueue, Worker
from gridengine.dispatcher.core.outcomes import (
    has_failed,
    note_move,
    settle_failed_input,
    unwritable,
)
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.states import READY, Phase
from gridengine.dispatcher.core.tasks import ResultData
from gridengine.errors import GridEngineError
from gridengine.serialize.payload import Payload
from gridengine.wire.messages import Fetched, Forget, Result, input_name

TRANSFER_RATE = 50e6
"""How many bytes per second are taken to come from one worker to another."""


def at_hand(state: CoreState, spans: Iterable[Span], worker: Worker) -> list[Span]:
    """Return the calls of a batch whose inputs this worker has, can be sent, or makes before them.
    The others wait, in no queue, until their inputs are here, or the worker that has them has room;
    or their inputs have failed.
    """
    found: list[Span] = []
    coming: set[AwaitedResult] = set()
    for span in spans:
        one = span.open_task
        if one.missing:  # it follows those that make what it needs
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
        if awaited.data is not None and has_failed(awaited.data):
            settle_failed_input(state, one, awaited)
            return False
    if not away:
        return True
    near = _is_sooner_there(state, span, away)
    one.missing, one.again = len(away), (span.demand, span.attempt)
    note_move(state, span, "missing", "its inputs are elsewhere")
    for awaited in away:
        awaited.add_waiting(one)
        if not near:
            objects.bring(state, awaited)
    return False


def _is_sooner_there(state: CoreState, span: Span, away: Sequence[AwaitedResult]) -> bool:
    """Have a call wait, once, for the worker that has its inputs, if that worker likely has room
    before they could be fetched; return whether it waits.
    """
    holders = [one.remote.workers for one in away if one.remote and one.remote.asked is None]
    there = set.intersection(*holders) if len(holders) == len(away) else set()
    holder = state.workers.get(next(iter(there), b""))
    if holder is None or holder.phase is not READY or holder.draining or span.open_task.near_until:
        return False
    waiting = state.near.get(holder.id, {})
    seconds = sum(one.remote.size for one in away if one.remote) / TRANSFER_RATE
    if _seconds_to_room(holder, span, state.now) * (1 + len(waiting)) > seconds:
        return False
    span.open_task.near_until = state.now + seconds
    state.near.setdefault(holder.id, {})[span.open_task.task.id] = span.open_task
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
            if worker is None or worker.phase is not READY or state.now >= one.near_until:
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
        awaited.drop_waiting(one)
    one.missing, span = 0, one.only_span()
    note_move(state, span, "waiting", "for any worker")
    queue = state.queue_for(span.demand)
    queue.put_back(span)
    state.agenda.changed_queues[queue] = None
    return True


def _is_away(awaited: AwaitedResult, worker: Worker) -> bool:
    remote, data = awaited.remote, awaited.data
    if remote is not None:
        return remote.away and worker.id not in remote.workers
    return data is None or has_failed(data)


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


def fetched(state: CoreState, worker: Worker, message: Fetched, buffers: Payload) -> None:
    """Take in a result that a worker sends, asked or because it leaves; or hear that it does not
    have it.
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
    if worker.phase is Phase.STOPPING:
        worker.stopping_since = state.now  # it is getting on: what is left has its own time
    payload = unwritable(buffers)
    known.function = objects.result_function(name, payload)
    known.away, known.asked = False, None
    awaited.data = ResultData(payload)
    objects.forget_maker(state, awaited)
    if awaited.told:
        state.effects.append(ResultFetched(awaited.reference, awaited.data))
    dependencies.begin_waiting(state, awaited)


def asked(state: CoreState, event: ResultAsked) -> None:
    """Have a result come here that the caller asks for."""
    awaited = state.awaited.get(event.reference)
    if awaited is None:
        error = GridEngineError("a result was let go", hint="report this as a fault of gridengine")
        state.effects.append(ResultFetched(event.reference, ResultData(error=error)))
    elif awaited.remote is not None and awaited.remote.away:
        awaited.asked = True
        objects.bring(state, awaited)
    elif awaited.data is None:
        awaited.asked = True  # it is being made again
    else:
        state.effects.append(ResultFetched(event.reference, awaited.data))


def forget_before_closing(state: CoreState, *, everything: bool) -> None:
    """Have workers forget results that the caller will not ask for; otherwise they would hand them
    over before they leave.
    """
    for name in list(state.away):
        if everything or not state.awaited[int.from_bytes(name, "big")].told:
            objects.forget_at_workers(state, state.objects[name])
            del state.away[name]


def drop_late(state: CoreState, worker: Worker, result: Result) -> None:
    """Have a worker forget the result of a run that is no more, unless another run made it too."""
    if result.held is not None and (name := input_name(result.held[0])) not in worker.functions:
        state.effects.append(Send(worker.id, Forget([name])))


def is_kept(one: OpenTask, result: Result) -> bool:
    """Return whether a worker may keep this result."""
    start, stop = result.start, result.start + 1
    return (
        result.held is not None
        and result.stop == stop
        and ((start, result.held[0]) in one.kept_within(start, stop))
    )
