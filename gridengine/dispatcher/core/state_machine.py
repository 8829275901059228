"""`StateMachine.handle(event, now)` takes one event and returns the effects to be performed.

There is no clock, socket, thread, file or pickle in it, so that every failure can be played in a
test.

What it promises: each call of each task is settled exactly once, whatever workers do; no work for
one event grows with the number of tasks that wait or workers that are connected (but for
cancelling, the tick and the scheduler's reports).

Calls wait as *spans*: consecutive calls of one task, with the number of the attempt. A span, or as
much of it as measured durations say is a sensible piece of work, becomes a *run* on a worker. Runs
are numbered and never repeated: a result of a run that is no more is late, and dropped.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection
from typing import Any

from gridengine.dispatcher.core import (
    allocator,
    cancellation,
    dependencies,
    failures,
    kept_results,
    nested,
    objects,
    outcomes,
    worker_lifecycle,
    worker_messages,
    worker_startup,
)
from gridengine.dispatcher.core.calls import OpenTask, Pace, RemoteObject, Span, Submitter
from gridengine.dispatcher.core.events import (
    CancelRequested,
    Closing,
    Continue,
    Effect,
    Event,
    Explained,
    Launched,
    LaunchFailed,
    Lost,
    Polled,
    Rebalance,
    RecallRequested,
    Received,
    ReferencesReleased,
    Released,
    ResultAsked,
    ResultWanted,
    Submitted,
    Supplied,
    Tick,
)
from gridengine.dispatcher.core.feasibility import can_hold
from gridengine.dispatcher.core.long_waits import LongWait
from gridengine.dispatcher.core.model import SILENT, Phase, Run, TaskQueue
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.tasks import Task
from gridengine.wire.messages import Hello


class StateMachine:
    """Decides for one dispatcher. `handle` is the only way in; its effects are to be performed in
    order. `state` is for looking.
    """

    def __init__(self, policy: Policy) -> None:
        self.state = CoreState(policy)
        self._long_wait = LongWait()

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event at the (monotonic) time `now`; return what is to be done, in order."""
        state = self.state
        state.effects = []
        tick = type(event) is Tick
        _HANDLERS[type(event)](state, event, now)
        if tick:
            state.effects += self._long_wait.check(state, now)
        while True:
            if state.orphans or state.returning:
                nested.settle(state, now)
            if state.linked or state.begun:
                _begin_dependents(state, now)
            if tick or state.dirty_queues or state.freed_slots or state.room_freed:
                allocator.settle(state, now, again=tick)
            if not state.linked and not state.begun:
                break
            tick = False
        if state.scale_due:
            state.scale_due = False
            if not state.closing:
                _scale(state, now)
        return state.effects


def _scale(state: CoreState, now: float) -> None:
    """Have as many workers requested, or withdrawn, as the queues need."""
    total = sum(one.size_for_others for one in state.provisioners.values())
    for one, needed in state.needed_slots().items():
        total -= one.size_for_others
        state.effects += one.scale(now, needed, others=total)
        total += one.size_for_others


# ------------------------------------------------------------------ what clients ask


def _submitted(state: CoreState, event: Submitted, now: float) -> None:
    if not event.tasks:
        return
    for task in event.tasks:
        if task.id in state.open_tasks or task.count < 1:
            raise ValueError(f"task {task.id} was submitted twice, or has no calls")
    state.generation = max(state.generation, event.generation)
    known = objects.use_function(state, event.function)
    parent = state.runs.get(event.parent)
    known.open += 1  # though what it needs has failed and it is settled at once, others may follow
    queues: dict[TaskQueue, None] = {}
    for task in event.tasks:
        one = _open(state, task, known, now, parent)
        if (not task.after and not task.kept) or dependencies.link(state, one):
            queue = state.queue_for(task.demand)
            if queue.put(Span(one, 0, task.count, task.demand)):
                state.dirty_queues[queue] = None
            queues[queue] = None
    known.open -= 1
    if not known.open:
        objects.retire(state, known)
    if state.closing or (event.parent and parent is None):
        everything = [(task.id, 0, task.count) for task in event.tasks]
        cancellation.reject(state, everything, signal.SIGKILL)
    else:
        _provide(state, queues, one, now)


def _open(
    state: CoreState, task: Task, function: RemoteObject, now: float, parent: Run | None
) -> OpenTask:
    needs: tuple[RemoteObject, ...] = ()
    if task.needs or function.function.needs:
        needs = objects.use_shared(state, function.function, task)
    submitter = state.submitters.get(task.submitter)
    if submitter is None:
        depth = 0 if parent is None else parent.span.open_task.submitter.depth + 1
        pace = Pace(function.pace.seconds)
        submitter = Submitter(task.submitter, function, pace, depth=depth)
        state.submitters[task.submitter] = submitter
    elif submitter.function is not function:
        submitter.function, submitter.pace = function, Pace(function.pace.seconds)
    submitter.open += 1
    function.open += 1
    state.last_order += 1
    state.open_tasks[task.id] = one = OpenTask(
        task, function, task.count, submitter, submitter.pace, needs, state.last_order, now
    )
    if parent is not None:
        nested.adopt(parent, one)
    return one


def _begin_dependents(state: CoreState, now: float) -> None:
    """Pass on what has become of calls, and assign to workers those that can begin now."""
    dependencies.settle(state)
    begun, state.begun = state.begun, {}
    state.dirty_queues.update(dict.fromkeys(begun))
    for queue, one in begun.items():
        _provide(state, (queue,), one, now)


def _provide(state: CoreState, queues: Collection[TaskQueue], one: OpenTask, now: float) -> None:
    """Assign calls that have just come, such as this, to workers, and get more of these if they are
    too few.
    """
    submitter = one.submitter
    for queue in queues:
        if queue.soft:
            _check_possible(state, queue)
    if state.dirty_queues:
        allocator.settle(state, now)
    for queue in queues:
        if not queue.calls:
            continue
        if not submitter.load and not queue.idle:
            cancellation.recall_for_new_submitter(state, now)
        provisioner = queue.provisioner
        if provisioner.size < state.policy.max_workers and provisioner.may_ask(now):
            provisioner.label = one.task.name or submitter.function.function.name
            state.scale_due = True


def _check_possible(state: CoreState, queue: TaskQueue) -> None:
    try:
        can_hold(state.policy, queue.demand.resources)
    except BaseException as error:  # a kind may be a user's own
        outcomes.fail(state, [queue], failures.cannot_give(queue.demand.resources, error))


def _closing(state: CoreState, event: Closing, now: float) -> None:
    state.closing = True
    everything = [(task, 0, one.task.count) for task, one in state.open_tasks.items()]
    cancellation.reject(state, everything, signal.SIGKILL)
    for run in list(state.runs.values()):
        outcomes.end_run(state, run)
        outcomes.requeue(state, run.rest)
    kept_results.forget_before_closing(state, everything=event.for_good)
    for worker in list(state.workers.values()):
        if worker.exit_reason:
            worker_lifecycle.lose(state, worker, worker.exit_reason, now)
        elif worker.phase is not Phase.STOPPING:
            worker_lifecycle.stop(state, worker, now)
    for provisioner in state.provisioners.values():
        state.effects += provisioner.withdraw()
    state.effects += state.log.closed(state.figures, now)


# ------------------------------------------------------------------ what workers say, and time


def _received(state: CoreState, event: Received, now: float) -> None:
    message, worker = event.message, state.workers.get(event.worker)
    if type(message) is Hello:
        worker_startup.connected(state, event.worker, message, now)
        return
    if worker is None:
        state.effects.append(Lost(event.worker))
        return
    worker.heard_at = now
    if worker.phase is SILENT:
        worker_lifecycle.heard_again(state, worker)
        if not worker.batches:
            worker_lifecycle.finished_batch(state, worker, now)
    handler = worker_messages.HANDLERS.get(type(message))
    if handler is not None:
        handler(state, worker, message, event.buffers, now)


def _tick(state: CoreState, event: Tick, now: float) -> None:
    worker_lifecycle.check_workers(state, now)
    worker_startup.check_launches(state, now)
    kept_results.give_up_waiting(state, now)
    state.effects += state.log.tick(state.figures, now, busy=bool(state.open_tasks))
    state.scale_due = True


def _continue(state: CoreState, event: Continue, now: float) -> None:
    state.dirty_queues.update(state.deferred)
    state.deferred = {}


_HANDLERS: dict[type, Callable[[CoreState, Any, float], None]] = {
    Submitted: _submitted,
    CancelRequested: cancellation.cancel_requested,
    RecallRequested: cancellation.recall_requested,
    Released: objects.released,
    ResultWanted: dependencies.wanted,
    Supplied: dependencies.supplied,
    ReferencesReleased: dependencies.released,
    ResultAsked: kept_results.asked,
    Received: _received,
    Launched: worker_startup.launched,
    LaunchFailed: worker_startup.launch_failed,
    Polled: worker_startup.polled,
    Explained: worker_startup.explained,
    Tick: _tick,
    Rebalance: cancellation.rebalance,
    Continue: _continue,
    Closing: _closing,
}
"""The event table."""
