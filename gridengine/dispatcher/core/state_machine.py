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
from collections.abc import Callable, Collection, Sequence
from typing import Any

from gridengine.dispatcher.core import (
    adoption,
    allocator,
    cancellation,
    clients,
    dependencies,
    failures,
    kept_results,
    nested,
    objects,
    outcomes,
    scaling,
    worker_lifecycle,
    worker_messages,
    worker_startup,
)
from gridengine.dispatcher.core.calls import OpenTask, Pace, RemoteObject, Span, Submitter
from gridengine.dispatcher.core.events import (
    CancelRequested,
    ClientJoined,
    ClientLeft,
    Closing,
    Continue,
    Drained,
    DrainHosts,
    Draining,
    Effect,
    Event,
    Explained,
    Launch,
    Launched,
    LaunchFailed,
    Lost,
    Polled,
    Rebalance,
    RecallRequested,
    Received,
    ReferencesReleased,
    Released,
    Restored,
    ResultAsked,
    ResultWanted,
    Scaled,
    Submitted,
    SubmittedAlike,
    Supplied,
    Tick,
)
from gridengine.dispatcher.core.feasibility import can_hold
from gridengine.dispatcher.core.long_waits import LongWait
from gridengine.dispatcher.core.model import SILENT, Phase, Run, TaskQueue
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.task_blocks import TaskBlock
from gridengine.dispatcher.core.tasks import Task
from gridengine.dispatcher.core.watch_events import REQUESTED, WAITING
from gridengine.errors import UNNUMBERED
from gridengine.resources.demand import ANY
from gridengine.wire.messages import NUMBER_BITS, Hello


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
        if state.log.events is not None:
            state.log.events.now = now
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
            if not (state.closing or state.draining):
                _scale(state, now)
        if state.draining and not state.runs:
            state.effects.append(Drained())
        return state.effects


def _scale(state: CoreState, now: float) -> None:
    """Have as many workers requested, or withdrawn, as the queues need."""
    total = sum(one.size_for_others for one in state.provisioners.values())
    needed_slots = list(state.needed_slots().items())
    if state.active_clients > 1:
        # First those that have no workers: else others would take the place again that was made
        # for them.
        needed_slots.sort(key=lambda pair: pair[0].size > 0)
    for one, needed in needed_slots:
        total -= one.size_for_others
        least = state.policy.min_workers if one is state.common else 0
        effects = one.scale(now, needed, others=total, least=least)
        if state.log.events is not None:
            _note_requested(state, effects)
        state.effects += effects
        total += one.size_for_others


def _note_requested(state: CoreState, effects: Sequence[Effect]) -> None:
    """Have who follows told of the workers that the scheduler is asked for."""
    from gridengine.dispatcher.core.status_views import request_words  # few follow

    for effect in effects:
        if isinstance(effect, Launch):
            request = request_words(effect.demand.request)
            state.log.note(REQUESTED, effect.count, function=effect.label, reason=request)


# ------------------------------------------------------------------ what clients ask


def _submitted(state: CoreState, event: Submitted, now: float) -> None:
    if not event.tasks:
        return
    known, blocks = state.open_tasks, state.blocks
    for task in event.tasks:
        if task.id in known or task.count < 1 or (blocks.tasks and blocks.find(task.id)):
            raise ValueError(f"task {task.id} was submitted twice, or has no calls")
    if event.generation > state.generation:
        state.generation = event.generation
    function = state.objects.get(event.function.digest)
    if function is None or not function.open:
        function = objects.use_function(state, event.function)
    parent = state.runs.get(event.parent) if event.parent else None
    # Though what it needs has failed and it is settled at once, others may follow:
    function.open += 1
    queues: dict[TaskQueue, None] = {}
    for task in event.tasks:
        one = _open(state, task, function, now, parent, event.detached)
        if (not task.after and not task.kept) or dependencies.link(state, one):
            demand = task.demand
            queue = state.common_queue if demand is ANY else state.queue_for(demand)
            if queue.put(Span(one, 0, task.count, demand)):
                state.dirty_queues[queue] = None
            queues[queue] = None
    function.open -= 1
    if not function.open:
        objects.retire(state, function)
    if state.closing or (event.parent and parent is None):
        everything = [(task.id, 0, task.count) for task in event.tasks]
        cancellation.reject(state, everything, signal.SIGKILL)
    else:
        if state.log.events is not None:
            calls = sum(one.count for one in event.tasks)
            state.log.note(WAITING, calls, function=event.function.name)
        _provide(state, queues, one.submitter, one.task.name, now)


def _open(
    state: CoreState,
    task: Task,
    function: RemoteObject,
    now: float,
    parent: Run | None,
    detached: bool,
) -> OpenTask:
    needs: tuple[RemoteObject, ...] = ()
    if task.needs or function.function.needs:
        needs = objects.use_shared(state, function.function, task)
    submitter = state.submitters.get(task.submitter)
    if submitter is None or submitter.function is not function:
        submitter = _submitter_of(state, task, function, parent, detached=detached)
    submitter.open += 1
    submitter.count_unsettled(function, task.count)
    if task.first + task.count > function.counts.numbered and task.first != UNNUMBERED:
        function.counts.numbered = task.first + task.count
    function.open += 1
    state.last_order += 1
    state.open_tasks[task.id] = one = OpenTask(
        task, function, task.count, submitter, submitter.pace, needs, state.last_order, now
    )
    if parent is not None and not detached:
        nested.adopt(parent, one)
    return one


def _submitter_of(
    state: CoreState,
    task: Task,
    function: RemoteObject,
    parent: Run | None = None,
    *,
    detached: bool = False,
) -> Submitter:
    """Return who submits a task of this function, for a call of that run if there is one."""
    submitter = state.submitters.get(task.submitter)
    if submitter is None:
        client, depth, pace = state.own, 0, Pace(function.pace.seconds)
        if parent is not None:
            above = parent.span.open_task.submitter
            client, depth = above.client, 0 if detached else above.depth + 1
        elif number := task.submitter >> NUMBER_BITS:
            client = state.clients.get(number, client)
        submitter = Submitter(task.submitter, function, pace, client, depth=depth)
        submitter.plain = not depth and client is state.own
        state.submitters[task.submitter] = submitter
        if not client.submitters:
            state.active_clients += 1
        client.submitters += 1
    elif submitter.function is not function:
        submitter.function, submitter.pace = function, Pace(function.pace.seconds)
    return submitter


def _submitted_alike(state: CoreState, event: SubmittedAlike, now: float) -> None:
    """Have tasks wait as a block."""
    task, count = event.alike.task, len(event.alike.payloads)
    if state.has_any(range(task.id, task.id + count)):
        raise ValueError(f"a task of {task.id} to {task.id + count} was submitted twice")
    function = objects.use_function(state, event.function)
    submitter = _submitter_of(state, task, function)
    submitter.open += count
    submitter.count_unsettled(function, count)
    if task.first + count > function.counts.numbered and task.first != UNNUMBERED:
        function.counts.numbered = task.first + count
    function.open += count
    block = TaskBlock(
        event.alike, function, submitter, submitter.pace, state.last_order + 1, now, state.blocks
    )
    state.last_order += count
    state.blocks.add(block)
    queue = state.queue_for(task.demand)
    if queue.put_block(block):
        state.dirty_queues[queue] = None
    if state.closing:
        cancellation.reject(state, [(one, 0, 1) for one in block.numbers], signal.SIGKILL)
    else:
        state.log.note(WAITING, count, function=event.function.name)
        _provide(state, (queue,), submitter, task.name, now)


def _begin_dependents(state: CoreState, now: float) -> None:
    """Pass on what has become of calls, and assign to workers those that can begin now."""
    dependencies.settle(state)
    begun, state.begun = state.begun, {}
    state.dirty_queues.update(dict.fromkeys(begun))
    for queue, one in begun.items():
        _provide(state, (queue,), one.submitter, one.task.name, now)


def _provide(
    state: CoreState,
    queues: Collection[TaskQueue],
    submitter: Submitter,
    name: str,
    now: float,
) -> None:
    """Assign calls that have just come, such as one of this submitter and name, to workers, and get
    more of these if they are too few.
    """
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
            provisioner.label = name or submitter.function.function.name
            state.scale_due = True


def _restored(state: CoreState, event: Restored, now: float) -> None:
    worker_startup.restored(state, event, now)
    for submitted in event.submitted:
        _submitted(state, submitted, now)
    adoption.assign_restored(state, event, now)
    for worker in [one for one in state.workers.values() if one.hello is worker_startup.UNKNOWN]:
        worker_lifecycle.lose(state, worker, "ended with its dispatcher", now)
    state.scale_due = True


def _check_possible(state: CoreState, queue: TaskQueue) -> None:
    try:
        can_hold(state.policy, queue.demand.resources)
    except BaseException as error:  # a kind may be a user's own
        outcomes.fail(state, [queue], failures.cannot_give(queue.demand.resources, error))


def _draining(state: CoreState, event: Draining, now: float) -> None:
    state.draining = True


def _closing(state: CoreState, event: Closing, now: float) -> None:
    state.closing = True
    state.open_all()
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
        worker_lifecycle.finished_batch(state, worker, now)
    handler = worker_messages.HANDLERS.get(type(message))
    if handler is not None:
        handler(state, worker, message, event.buffers, now)


def _tick(state: CoreState, event: Tick, now: float) -> None:
    worker_lifecycle.check_workers(state, now)
    if state.retiring:
        scaling.keep_bounds(state, now)
    if state.active_clients > 1 and state.policy.pooled:
        scaling.make_room(state, now)
    worker_startup.check_launches(state, now)
    kept_results.give_up_waiting(state, now)
    state.effects += state.log.tick(state.figures, now, busy=state.has_tasks)
    state.scale_due = True


def _continue(state: CoreState, event: Continue, now: float) -> None:
    state.dirty_queues.update(state.deferred)
    state.deferred = {}


_HANDLERS: dict[type, Callable[[CoreState, Any, float], None]] = {
    ClientJoined: clients.joined,
    ClientLeft: clients.left,
    Submitted: _submitted,
    SubmittedAlike: _submitted_alike,
    CancelRequested: cancellation.cancel_requested,
    RecallRequested: cancellation.recall_requested,
    Released: objects.released,
    ResultWanted: dependencies.wanted,
    Supplied: dependencies.supplied,
    ReferencesReleased: dependencies.released,
    ResultAsked: kept_results.asked,
    Restored: _restored,
    DrainHosts: worker_lifecycle.drain,
    Received: _received,
    Scaled: scaling.scaled,
    Launched: worker_startup.launched,
    LaunchFailed: worker_startup.launch_failed,
    Polled: worker_startup.polled,
    Explained: worker_startup.explained,
    Tick: _tick,
    Rebalance: cancellation.rebalance,
    Continue: _continue,
    Draining: _draining,
    Closing: _closing,
}
"""The event table."""
