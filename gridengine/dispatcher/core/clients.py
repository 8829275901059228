"""Clients of a dispatcher: who has joined, with which weight, and which tasks they submit."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator

from gridengine.dispatcher.core import (
    allocator,
    books,
    cancellation,
    dependencies,
    events,
    failures,
    nested,
    objects,
    outcomes,
)
from gridengine.dispatcher.core.calls import Client, OpenTask, RemoteObject, Span, Submitter
from gridengine.dispatcher.core.fair_queue import TaskBlock
from gridengine.dispatcher.core.figures import Pace
from gridengine.dispatcher.core.model import Run, TaskQueue
from gridengine.dispatcher.core.policy import can_hold
from gridengine.dispatcher.core.run_log import WAITING
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.tasks import Task
from gridengine.resources.demand import ANY
from gridengine.wire.messages import NUMBER_BITS


def joined(state: CoreState, event: events.ClientJoined) -> None:
    """Add a client, or change the weight of one that is back."""
    if event.number < 1 or not event.weight > 0:
        raise ValueError(f"a client cannot have number {event.number}, weight {event.weight}")
    client = state.clients.setdefault(event.number, Client(event.number))
    client.left = False
    books.set_weight(client, event.weight)


def left(state: CoreState, event: events.ClientLeft) -> None:
    """Cancel the tasks of a client; calls that they have made end with them."""
    client = state.clients.get(event.number)
    if client is None or client is state.own:
        return
    client.left = True
    if client.submitters:  # else there is no need to look at all tasks
        state.open_blocks_of(client)
        found = [one for one in _tasks_of(state, client) if not (one.parent or one.remade)]
        tasks = [one.task.id for one in sorted(found, key=lambda one: one.order)]
        cancellation.cancel_requested(state, events.CancelRequested(tasks, signal.SIGTERM))
    if not client.submitters:
        state.clients.pop(client.number, None)


def _tasks_of(state: CoreState, client: Client) -> Iterator[OpenTask]:
    """Yield the open tasks of a client. The search begins at both ends: in a table with a million
    tasks of another client they are all near the beginning or all near the end.
    """
    left = sum(one.open for one in state.submitters.values() if one.client is client)
    tasks = state.open_tasks.values()
    for both in zip(tasks, reversed(tasks), strict=True):
        for one in both:
            if one.submitter.client is client:
                left -= 1
                yield one
            if not left:
                return


def submitted(state: CoreState, event: events.Submitted) -> None:
    """Open tasks of one function, queue the calls that may begin, and assign what can be."""
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
    # Tasks whose inputs have failed are settled at once, and more may follow: keep the function.
    function.open += 1
    queues: dict[TaskQueue, None] = {}
    for task in event.tasks:
        one = _open(state, task, function, parent, event.detached)
        if (not task.after and not task.kept) or dependencies.link(state, one):
            demand = task.demand
            queue = state.common_queue if demand is ANY else state.queue_for(demand)
            if queue.put(Span(one, 0, task.count, demand)):
                state.agenda.changed_queues[queue] = None
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
        provide(state, queues, one.submitter, one.task.name)


def _open(
    state: CoreState, task: Task, function: RemoteObject, parent: Run | None, detached: bool
) -> OpenTask:
    needs: tuple[RemoteObject, ...] = ()
    if task.needs or function.function.needs:
        needs = objects.use_shared(state, function.function, task)
    submitter = state.submitters.get(task.submitter)
    if submitter is None or submitter.function is not function:
        submitter = _submitter_of(state, task, function, parent, detached)
    books.open_tasks(submitter, function, 1, task.count)
    state.last_order += 1
    state.open_tasks[task.id] = one = OpenTask(
        task, function, task.count, submitter, submitter.pace, needs, state.last_order, state.now
    )
    if parent is not None and not detached:
        nested.adopt(parent, one)
    return one


def submitted_alike(state: CoreState, event: events.SubmittedAlike) -> None:
    """Queue tasks that are alike as one block."""
    task, count = event.alike.task, len(event.alike.payloads)
    if state.has_any(range(task.id, task.id + count)):
        raise ValueError(f"a task of {task.id} to {task.id + count} was submitted twice")
    function = objects.use_function(state, event.function)
    submitter = _submitter_of(state, task, function, None, False)
    books.open_tasks(submitter, function, count, count)
    order, pace = state.last_order + 1, submitter.pace
    block = TaskBlock(event.alike, function, submitter, pace, order, state.now, state.blocks)
    state.last_order += count
    state.blocks.add(block)
    queue = state.queue_for(task.demand)
    if queue.put_block(block):
        state.agenda.changed_queues[queue] = None
    if state.closing:
        cancellation.reject(state, [(one, 0, 1) for one in block.numbers], signal.SIGKILL)
    else:
        state.log.note(WAITING, count, function=event.function.name)
        provide(state, (queue,), submitter, task.name)


def _submitter_of(
    state: CoreState, task: Task, function: RemoteObject, parent: Run | None, detached: bool
) -> Submitter:
    """Return the submitter of a task of this function, made at its first task. Tasks of a call
    (`parent`) belong to that call's client.
    """
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
        books.add_submitter(state, submitter)
    elif submitter.function is not function:
        submitter.function, submitter.pace = function, Pace(function.pace.seconds)
    return submitter


def provide(
    state: CoreState, queues: Collection[TaskQueue], submitter: Submitter, name: str
) -> None:
    """Assign calls that were just queued, one of them of this submitter and name, and have more
    workers requested if there are too few.
    """
    for queue in queues:
        if queue.soft:
            _check_possible(state, queue)
    if state.agenda.changed_queues:
        allocator.settle(state)
    for queue in queues:
        if not queue.calls:
            continue
        if not submitter.load and not queue.idle:
            cancellation.recall_for_new_submitter(state)
        provisioner = queue.provisioner
        if provisioner.size < state.policy.max_workers and provisioner.may_ask(state.now):
            provisioner.label = name or submitter.function.function.name
            state.agenda.scale = True


def _check_possible(state: CoreState, queue: TaskQueue) -> None:
    try:
        can_hold(state.policy, queue.demand.resources)
    except BaseException as error:  # a kind may be a user's own
        outcomes.fail(state, [queue], failures.cannot_give(queue.demand.resources, error))
