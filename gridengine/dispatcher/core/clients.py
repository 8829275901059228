"""Clients of a dispatcher: which have joined, which tasks they submit, which calls they cancel or
recall. And the calls that the core itself recalls, for the sake of other calls.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice

from gridengine.dispatcher.core import allocator, books, dependencies, events, objects, outcomes
from gridengine.dispatcher.core.calls import (
    CoreClient,
    CoreSubmitter,
    OpenTask,
    Pace,
    RemoteObject,
    Span,
    Unwanted,
)
from gridengine.dispatcher.core.events import Rebalance, Send
from gridengine.dispatcher.core.outcomes import settle_unwanted
from gridengine.dispatcher.core.policy import can_hold
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.workers_and_queues import Run, TaskQueue, Worker, WorkerPhase
from gridengine.requests import CallsRecalled, Submitted, Task, TasksCancelled, Told
from gridengine.resources.demand import ANY
from gridengine.status.watch_events import WAITING
from gridengine.wire.messages import NUMBER_BITS, Cancel, Deliver, Recall


def joined(state: CoreState, event: events.ClientJoined) -> None:
    """Add a client, or change the weight of a client that has come back."""
    if event.number < 1 or not event.weight > 0:
        raise ValueError(f"a client cannot have number {event.number}, weight {event.weight}")
    client = state.clients.setdefault(event.number, CoreClient(event.number))
    client.left = False
    books.set_weight(client, event.weight)


def left(state: CoreState, event: events.ClientLeft) -> None:
    """Cancel the tasks of a client; calls that they have made end with them."""
    client = state.clients.get(event.number)
    if client is None or client is state.own:
        return
    client.left = True
    if client.submitters:  # else there is no need to look at all tasks
        found = _tasks_of(state, client)
        its = [one for one in found if not (one.details.parent or one.details.remade)]
        tasks = [one.id for one in sorted(its, key=lambda one: (one.order, one.id))]
        cancel_requested(state, TasksCancelled(tasks, signal.SIGTERM))
    if not client.submitters:
        state.clients.pop(client.number, None)


def _tasks_of(state: CoreState, client: CoreClient) -> Iterator[OpenTask]:
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


def submitted(state: CoreState, event: Submitted) -> None:
    """Open tasks of one function, queue the calls that may begin, and assign calls."""
    if not event.tasks:
        return
    known = state.open_tasks
    for task in event.tasks:
        if task.id in known or task.count < 1:
            raise ValueError(f"task {task.id} was submitted twice, or has no calls")
    if event.generation > state.generation:
        state.generation = event.generation
    function = state.objects.get(event.function.digest)
    if function is None or not function.open:
        function = objects.use_function(state, event.function)
    parent = state.runs.get(event.parent) if event.parent else None
    # Tasks whose inputs have failed are settled at once, and more may follow: keep the function.
    function.open += 1
    state.last_order += 1
    queues: dict[TaskQueue, None] = {}
    for task in event.tasks:
        one = _open(state, task, function, parent, event.detached)
        if (not task.after and not task.kept) or dependencies.link(state, one, task):
            demand = task.options.demand
            queue = state.common_queue if demand is ANY else state.queue_for(demand)
            if queue.put(Span(one, 0, task.count, demand)):
                state.agenda.changed_queues[queue] = None
            queues[queue] = None
    function.open -= 1
    if not function.open:
        objects.retire(state, function)
    if state.closing or (event.parent and parent is None):
        everything = [(task.id, 0, task.count) for task in event.tasks]
        reject(state, everything, signal.SIGKILL)
    else:
        if state.log.events is not None:
            calls = sum(one.count for one in event.tasks)
            state.log.note(WAITING, calls, function=event.function.name)
        provide(state, queues, one.submitter, one.options.name)


def _open(
    state: CoreState, task: Task, function: RemoteObject, parent: Run | None, detached: bool
) -> OpenTask:
    options, calls = task.options, task.count
    submitter = state.submitters.get(options.submitter)
    if submitter is None or submitter.function is not function:
        submitter = _submitter_of(state, options.submitter, function, parent, detached)
    books.open_task(submitter, function, calls, task.first)
    one = OpenTask(
        id=task.id,
        payload=task.payload,
        count=calls,
        options=options,
        first=task.first,
        function=function,
        submitter=submitter,
        pace=submitter.pace,
        unsettled=calls,
        order=state.last_order,
        since=state.now,
    )
    state.open_tasks[task.id] = one
    if task.needs or function.function.needs:
        one.change(needs=objects.use_shared(state, function.function, task))
    if parent is not None and not detached:
        one.change(parent=parent.number)
        if parent.children is None:
            parent.children = {}
        parent.children[task.id] = None
    return one


def _submitter_of(
    state: CoreState, number: int, function: RemoteObject, parent: Run | None, detached: bool
) -> CoreSubmitter:
    """Return the submitter of a task of this function, made at its first task. Tasks of a call
    (`parent`) belong to that call's client.
    """
    submitter = state.submitters.get(number)
    if submitter is None:
        client, depth, pace = state.own, 0, Pace(function.pace.seconds)
        if parent is not None:
            above = parent.span.open_task.submitter
            client, depth = above.client, 0 if detached else above.depth + 1
        elif number >> NUMBER_BITS:
            client = state.clients.get(number >> NUMBER_BITS, client)
        submitter = CoreSubmitter(number, function, pace, client, depth=depth)
        submitter.plain = not depth and client is state.own
        books.add_submitter(state, submitter)
    elif submitter.function is not function:
        submitter.function, submitter.pace = function, Pace(function.pace.seconds)
    return submitter


def provide(
    state: CoreState, queues: Collection[TaskQueue], submitter: CoreSubmitter, name: str
) -> None:
    """Assign calls that were just queued, one of them of this submitter and name, and have more
    workers requested if there are too few.
    """
    for queue in queues:
        if queue.soft:
            _check_possible(state, queue)
    if state.agenda.changed_queues:
        allocator.assign_all(state)
    for queue in queues:
        if not queue.calls:
            continue
        if not submitter.load and not queue.idle:
            recall_for_new_submitter(state)
        provisioner = queue.provisioner
        if provisioner.size < state.policy.max_workers and provisioner.may_ask(state.now):
            provisioner.label = name or submitter.function.function.name
            state.agenda.scale = True


def _check_possible(state: CoreState, queue: TaskQueue) -> None:
    try:
        can_hold(state.policy, queue.demand.resources)
    except BaseException as error:  # a kind may be a user's own
        outcomes.fail(state, [queue], outcomes.cannot_give(queue.demand.resources, error))


LATE_SECONDS = 0.05
SHARE_SECONDS = 0.05
"""Calls are recalled at most this often for submitters without a share of the workers."""
MOST_SEARCHED = 200
"""At most this many runs are searched for workers that have more than they need."""


def cancel_requested(state: CoreState, event: TasksCancelled) -> None:
    """Settle the calls that wait, of these tasks and calls; have workers end the calls that run."""
    tasks = [state.open_tasks[task] for task in event.tasks if task in state.open_tasks]
    calls = [*((one.id, 0, one.count) for one in tasks), *event.calls]
    for worker, runs in reject(state, calls, event.signal):
        numbers = [run.number for run in runs]
        state.effects.append(Send(worker.id, Cancel(numbers, event.signal)))
    state.agenda.scale = True


def recall_requested(state: CoreState, event: CallsRecalled) -> None:
    """Settle the calls that wait, and have workers return the calls that have not begun. A runner
    can only give up its whole batch, so a worker returns all calls that have not begun.
    """
    for worker, runs in reject(state, event.calls, 0):
        begun = worker.under_way()
        if any(run.number not in begun or _is_unwanted_after(run) for run in runs):
            recall(state, worker)
    state.agenda.scale = True


def _is_unwanted_after(run: Run) -> bool:
    """Return whether a run has unwanted calls beyond its next call."""
    unwanted = run.span.open_task.details.unwanted
    return any(one.start < run.span.stop and run.done + 1 < one.stop for one in unwanted)


def reject(
    state: CoreState, calls: Iterable[tuple[int, int, int]], number: int
) -> list[tuple[Worker, list[Run]]]:
    """Settle the waiting calls of these ranges (task, start, stop), and mark the assigned calls as
    unwanted. Return the runs of the assigned calls, by worker.
    """
    rejected: dict[int, list[Unwanted]] = {}
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
        for unwanted in rejected[one.id]:
            its = _runs_of(state, one, unwanted)
            known = one.details.unwanted
            if its and unwanted not in known:
                one.change(unwanted=(*known, unwanted))
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
        its = rejected.get(span.open_task.id, ())
        first = span.attempt == 1
        return span.split([(one.start, one.stop) for one in its if one.signal or first])

    for queue in state.queues.values():
        for span in queue.take_out(split, tasks):
            settle_unwanted(state, span, rejected[span.open_task.id][0].signal)
        state.agenda.changed_queues[queue] = None


def _by_worker(runs: Iterable[Run]) -> list[tuple[Worker, list[Run]]]:
    found: dict[bytes, tuple[Worker, list[Run]]] = {}
    for run in runs:
        found.setdefault(run.worker.id, (run.worker, []))[1].append(run)
    return list(found.values())


def recall_for_new_submitter(state: CoreState) -> None:
    """Recall unbegun calls for a submitter without a share, at most every `SHARE_SECONDS`, and not
    again before the workers can have answered.
    """
    seconds = SHARE_SECONDS + 2 * state.policy.message_seconds
    if state.rebalance_due and state.now - state.recalled_for_new_at >= seconds:
        state.recalled_for_new_at = state.now
        for worker in _busy_workers(state):
            recall(state, worker)


def rebalance(state: CoreState, event: Rebalance) -> None:
    """Recall the calls that wait at a worker behind a call that takes longer than earlier calls
    did.
    """
    state.rebalance_due = False
    trip = 2 * state.policy.message_seconds
    for worker in _busy_workers(state):
        begun, spare = worker.under_way(), worker.spare()
        state.rebalance_due = state.rebalance_due or bool(spare)
        late = [
            run
            for number in begun
            if not (run := worker.runs[number]).batch.waiting
            and state.now - _last_sign(run, state.now) > LATE_SECONDS + 2 * trip
        ]
        if worker.phase is not WorkerPhase.READY or not spare or not late:
            continue
        for run in late:
            run.span.open_task.pace.exceeded(state.now - _last_sign(run, state.now) - trip)
            if not run.late:
                run.late = True
                run.slot_group.late += 1
                run.slot_group.queue.relist(run.slot_group)
        recall(state, worker)


def told(state: CoreState, event: Told) -> None:
    """Pass a value on to the call in progress of a task. A task that does not run any more has an
    outcome, which its client is told.
    """
    one = state.open_tasks.get(event.task)
    for number in () if one is None else one.runs:
        worker = state.runs[number].worker
        message = Deliver(number, len(event.payload))
        state.effects.append(Send(worker.id, message, event.payload))


def _busy_workers(state: CoreState) -> list[Worker]:
    return [worker for worker, _ in _by_worker(islice(state.runs.values(), MOST_SEARCHED))]


def _last_sign(run: Run, now: float) -> float:
    """Return the time since which the core waits for the next result of a run. A run that waited at
    its worker counts as begun when this function first looks at it.
    """
    if run.batch.answered_at is None:
        run.batch.answered_at = now
    return max(run.batch.answered_at, run.touched)


def recall(state: CoreState, worker: Worker) -> None:
    """Have a worker return its unbegun calls."""
    if worker.phase is WorkerPhase.READY and (runs := worker.spare()):
        for run in runs:
            run.touched, run.recalled = state.now, True
        state.effects.append(Send(worker.id, Recall([run.number for run in runs])))
