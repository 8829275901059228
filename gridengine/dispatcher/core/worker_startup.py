"""Workers that connect: new workers, and workers of an earlier dispatcher process with the calls
that they run.

A worker of an earlier process that has not come back yet is *absent*: it is silent, and has the
runs that it was known to have. So it can be lost as other workers are, and its calls run again, or
fail, by the same rules.
"""

from __future__ import annotations

import math
import signal
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from gridengine.dispatcher.core import (
    allocator,
    assigner,
    books,
    events,
    outcomes,
    worker_lifecycle,
)
from gridengine.dispatcher.core.calls import OpenTask, Ranges, Span, left_of
from gridengine.dispatcher.core.events import Restored, Send, StateSaved
from gridengine.dispatcher.core.launches import LaunchedWorker, keys_of
from gridengine.dispatcher.core.outcomes import end_run, fail, give_up, note_move, requeue
from gridengine.dispatcher.core.policy import booked, spare_of
from gridengine.dispatcher.core.provisioner import Provisioner
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.verdicts import Fault, judge
from gridengine.dispatcher.core.workers_and_queues import (
    Batch,
    Run,
    SlotGroup,
    TaskQueue,
    Worker,
    WorkerPhase,
)
from gridengine.display import plural
from gridengine.errors import ConfigurationError, VersionMismatch
from gridengine.resources.base import Resource
from gridengine.resources.demand import decode_demand
from gridengine.serialize.payload import Payload
from gridengine.wire import messages

UNKNOWN = messages.Hello(
    protocol=messages.VERSION,
    version="",
    python="",
    run_id="",
    host="the dispatcher's machine",
    pid=0,
    slots=1,
    log="",
)
"""Stands for the `Hello` of a worker that ended together with its dispatcher."""
TOLD_SECONDS = 1.0
"""A worker's calls are told of its end again when it has changed by more."""


def connected(state: CoreState, id: bytes, hello: messages.Hello) -> None:
    """Take in a worker that says hello, or refuse it."""
    absent = state.workers.get(id)
    if absent is not None and not absent.absent:
        return
    run_id = state.policy.run_id
    if hello.run_id != run_id or hello.slots < 1:
        words = f"the worker's is {hello.run_id}, with {plural(hello.slots, 'slot')}"
        _refuse(state, id, f"this dispatcher's run is {run_id}; {words}")
        return
    try:
        held = _held_by(state, hello)
    except ConfigurationError as error:
        _refuse(state, id, str(error))
        return
    keys = keys_of(hello.log, hello.pid)
    withdrawn = any(key in state.withdrawn for key in keys)
    provisioner, launch = state.common, None
    if hello.functions:
        provisioner = state.announced
    elif absent is not None:
        provisioner, launch = absent.provisioner, absent.launch
    if launch is None and not withdrawn and not hello.functions:
        provisioner, launch = _recognise(state, id, keys)
    mismatch = _mismatch(state, hello, launch)
    if mismatch is not None:
        _refuse(state, id, mismatch.message)
        if absent is not None:
            worker_lifecycle.lose(state, absent, "came back with another version")
        worker_lifecycle.forget_launch(state, id, hello, launch, provisioner)
        provisioner.hold_back(state.now)
        if not state.workers:
            give_up(state, mismatch, state.provisioners.values())
        return
    provisioner.reset_failures()
    worker = absent or _add(state, id, hello, provisioner)
    books.change_slots(state, worker, hello.slots)
    worker.hello, worker.launch, worker.held = hello, launch, held
    worker.heard_at = worker.idle_since = state.now
    if worker.provisioner is not provisioner:
        books.move_worker(worker, provisioner)
    if is_by_hand(state, worker) and not provisioner.requested:
        provisioner.by_hand.add(id)
    state.effects.append(events.Send(id, messages.Welcome(state.policy.epoch)))
    if launch is not None:
        _recognised(state, worker, launch)
    if worker.phase is WorkerPhase.STOPPING:
        state.effects.append(events.Send(id, messages.Stop()))
    elif withdrawn or state.closing:
        worker_lifecycle.stop(state, worker)
    else:
        _admit(state, worker)


def _held_by(state: CoreState, hello: messages.Hello) -> Resource | None:
    """Return the resources that a worker says it holds, with one core if it names none; None if it
    says nothing.

    Raises:
        ConfigurationError: its words cannot be understood, or calls do not share workers.
    """
    if not hello.resources:
        return None
    if state.shared is None:
        raise ConfigurationError(
            "each worker of this dispatcher has the resources that its own calls request",
            hint="start this worker without --cores and similar options; or the dispatcher with "
            "the resources of its workers, so that calls share them (--cores 4; in a script "
            "worker_resources=)",
        )
    try:
        return booked(decode_demand([*hello.resources], 1.0).resources)
    except (TypeError, ValueError, LookupError) as error:
        raise ConfigurationError(f"{hello.resources!r} are no resources: {error}") from error


def is_by_hand(state: CoreState, worker: Worker) -> bool:
    """Return whether people, not a scheduler, started this worker; only where such workers may
    come. A scheduler's worker whose launch is not known yet may look the same.
    """
    return state.policy.keeps_others and worker.launch is None and not worker.hello.elapsed


def _add(state: CoreState, id: bytes, hello: messages.Hello, provisioner: Provisioner) -> Worker:
    now, generation = state.now, state.generation
    worker = Worker(
        id=id,
        hello=hello,
        heard_at=now,
        idle_since=now,
        provisioner=provisioner,
        since=now,
        generation=generation,
    )
    books.add_worker(state, worker)
    return worker


def _admit(state: CoreState, worker: Worker) -> None:
    """Let a worker go on with the runs that it holds, and give out its slots."""
    held = worker.hello.held
    if worker.absent:
        take_back(state, worker, held or messages.Held())
    elif held is not None:
        drop(state, worker, held)
    requesting = sum(one.requested > 0 for one in state.provisioners.values())
    if worker.open or worker.to_release is not None:
        limit_stay(state, worker)
    elif worker.launch is not None or worker.hello.functions or requesting < 2:
        _open(state, worker)
    # otherwise the worker's demand is known only with its launch


def restored(state: CoreState, event: events.Restored) -> None:
    """Note launches and workers of an earlier dispatcher process. Workers that ended with it are
    added too, to be lost with their calls.
    """
    for known in event.launched:
        state.agenda.changed_queues[state.queue_for(known.demand)] = None
        provisioner = state.provisioner_for(known.demand)
        provisioner.add_launched(known.handles, state.now)
        for one in provisioner.launched.values():
            one.earlier = True
    hellos = {run.worker: UNKNOWN for run in event.runs}
    hellos |= {worker.id: worker.hello for worker in event.workers}
    for id, hello in hellos.items():
        if id in state.workers:
            continue
        provisioner, launch = _recognise(state, id, keys_of(hello.log, hello.pid))
        worker = _add(state, id, hello, provisioner)
        worker.launch, worker.absent = launch, True
        if state.shared is not None:  # otherwise the worker is refused when it comes back
            worker.held = _held_by(state, hello)
        books.enter(state, worker, WorkerPhase.SILENT)


def limit_stay(state: CoreState, worker: Worker) -> None:
    """Note when a worker is to leave: a little before the batch system ends it.

    The batch system's word on that counts more than the script's request: the limit may be the
    site's, and an administrator may have changed it.
    """
    if worker.hello.functions:
        return
    launch, elapsed = worker.launch, worker.hello.elapsed
    if launch is not None and launch.ends_at < math.inf:
        worker.leave_at = launch.ends_at - spare_of(launch.ends_at - worker.since + elapsed)
    elif launch is not None and launch.lasts_seconds < math.inf:
        lasts = launch.lasts_seconds
        worker.leave_at = worker.since + lasts - spare_of(lasts) - elapsed
    else:
        stay = state.policy.stay(worker.provisioner.demand.resources)
        worker.leave_at = state.now + stay - elapsed
    if worker.leave_at < math.inf and abs(worker.leave_at - worker.told_leave_at) > TOLD_SECONDS:
        worker.told_leave_at = worker.leave_at
        left = worker.leave_at - state.now
        state.effects.append(events.Send(worker.id, messages.LeaveBy(left)))


def _open(state: CoreState, worker: Worker) -> None:
    """Note how long a worker stays, and give out its slots."""
    provisioner = worker.provisioner
    limit_stay(state, worker)
    error = allocator.open_worker(state, worker)
    if error is not None:
        fail(state, [state.queue_for(provisioner.demand)], error)
        worker_lifecycle.stop(state, worker)


def _recognise(
    state: CoreState, id: bytes, keys: list[str]
) -> tuple[Provisioner, LaunchedWorker | None]:
    """Return the provisioner of a connecting worker, and its launch if that is known yet."""
    for provisioner in state.provisioners.values():
        launch = provisioner.recognise(id, keys)
        if launch is not None:
            return provisioner, launch
    state.unmatched.update(dict.fromkeys(keys, id))
    requesting = (one for one in state.provisioners.values() if one.requested)
    return next(requesting, state.common), None


def _refuse(state: CoreState, id: bytes, reason: str) -> None:
    state.effects += [events.Send(id, messages.Refuse(reason)), events.Lost(id)]


def _mismatch(
    state: CoreState, hello: messages.Hello, launch: LaunchedWorker | None
) -> VersionMismatch | None:
    policy = state.policy
    ours = messages.VERSION, policy.version, policy.python
    theirs = hello.protocol, hello.version, hello.python
    if theirs == ours or (hello.functions and hello.protocol == messages.VERSION):
        return None  # a worker that announces functions may be another program than this package
    return VersionMismatch(
        f"the worker on {hello.host} has gridengine {hello.version} (protocol {hello.protocol}) on "
        f"Python {hello.python}, "
        f"the dispatcher gridengine {policy.version} (protocol {messages.VERSION}) on Python "
        f"{policy.python}",
        host=hello.host,
        job=launch.handle.id if launch is not None else None,
        log=hello.log or None,
        hint="install the same versions on both sides, or set python=",
    )


def launch_known(
    state: CoreState, worker: Worker, provisioner: Provisioner, launch: LaunchedWorker
) -> None:
    """Note the launch of a worker that connected before its launch was known."""
    worker.launch = launch
    for key in keys_of(worker.hello.log, worker.hello.pid):  # another launch is another worker's
        if state.unmatched.get(key) == worker.id:
            del state.unmatched[key]
    if worker.provisioner is not provisioner:
        books.move_worker(worker, provisioner)
    if not (worker.open or worker.absent or worker.to_release is not None) and (
        worker.phase is not WorkerPhase.STOPPING
    ):
        _open(state, worker)
    _recognised(state, worker, launch)


def _recognised(state: CoreState, worker: Worker, launch: LaunchedWorker) -> None:
    """Note the path of the worker's log on this machine, and say that the worker has connected."""
    if launch.handle.log not in ("", worker.hello.log):
        worker.hello = replace(worker.hello, log=launch.handle.log)
    after = None if worker.provisioner.workers > 1 else state.now - launch.launched_at
    state.say(state.log.connected(worker.hello, worker.job, after, state.now))


LEFT_OUT = "its dispatcher was started again, and the outcome of the call is not known"


def assign_restored(state: CoreState, event: Restored) -> None:
    """Take settled and assigned calls of the resubmitted tasks out of the queues, and give the
    assigned ones to their absent workers.
    """
    waiting: dict[int, Ranges] = {}
    named = *event.settled, *event.saved, *(run.task for run in event.runs)
    tasks = {task: state.open_tasks[task] for task in named if task in state.open_tasks}
    for task, ranges in event.settled.items():
        if (one := tasks.get(task)) is not None:
            calls = sum(stop - start for start, stop in ranges)
            books.count_outcomes(state, one, calls, None)
            for start, stop in ranges:
                note_move(state, Span(one, start, stop, one.options.demand), "settled", "before")
            one.change(settled=list(ranges))
            waiting[task] = one.left
    _take_up_saved(state, event.saved)
    assigned = []
    for run in sorted(event.runs, key=lambda run: run.number, reverse=True):
        if (one := tasks.get(run.task)) is None:
            continue
        left = waiting.get(run.task, one.left)
        its = [
            (max(start, run.start), min(stop, run.stop))
            for start, stop in left
            if start < run.stop and run.start < stop
        ]
        if its:  # calls that were settled or assigned again before are not in these runs
            assigned.append((run, its[-1]))
            left = left_of(left, its[-1:])
        waiting[run.task] = left
    _take_out(state, waiting, tasks.values())
    groups: dict[tuple[bytes, TaskQueue], SlotGroup] = {}
    for run, (start, stop) in reversed(assigned):
        one, worker = tasks[run.task], state.workers[run.worker]
        queue = state.queue_for(one.options.demand)
        group = groups.setdefault((worker.id, queue), SlotGroup(worker, queue, 0))
        span = Span(one, start, stop, one.options.demand, run.attempt)
        _begin(state, run.number, span, group, Batch(), state.now)


def _take_up_saved(state: CoreState, saved: Mapping[int, Mapping[int, Payload]]) -> None:
    """Hold the states that calls have saved, except those of settled calls."""
    for task, states in saved.items():
        one = state.open_tasks.get(task)
        for index, payload in states.items():
            if one is None or one.is_settled(index):
                state.effects.append(StateSaved(task, index, None))
            else:
                state.saved.setdefault(task, {})[index] = payload


def _take_out(state: CoreState, waiting: Mapping[int, Ranges], tasks: Collection[OpenTask]) -> None:
    """Take the calls of these tasks out of the queues, but for the ranges that are to wait."""

    def split(span: Span) -> tuple[list[Span], list[Span]]:
        ranges = waiting.get(span.open_task.id)
        return ([span], []) if ranges is None else span.split(ranges)[::-1]

    for queue in state.queues.values() if waiting else ():
        queue.take_out(split, tasks)
        state.agenda.changed_queues[queue] = None


def _begin(
    state: CoreState, number: int, span: Span, group: SlotGroup, batch: Batch, since: float
) -> None:
    """Record a run that a worker brings from the earlier process, and count it."""
    assigner.begin_run(state, number, span, group, batch, since)
    if batch.runs:
        books.count_running(group, span.open_task, span.calls)
    else:
        books.begin_batch(group, batch, span.open_task, span.calls)
    batch.runs += 1


def take_back(state: CoreState, worker: Worker, held: messages.Held) -> None:
    """Let an absent worker go on with the calls that it has and that are still wanted. Calls that
    it lost wait again; calls that nobody wants are ended.

    Its slots are given out at once if all its runs are of one queue, which keeps its allocation.
    Otherwise they are given out when all its runs have ended, since nobody knows which resources
    these runs have.
    """
    worker.absent = False
    worker.taken = held.taken
    before = dict(worker.runs)
    for run in reversed(before.values()):
        end_run(state, run)
        state.agenda.freed_slots.pop(run.slot_group, None)
    books.enter(state, worker, WorkerPhase.READY)
    groups: dict[tuple[int, TaskQueue], SlotGroup] = {}
    for batch in held.batches:
        _go_on(state, worker, batch, before, groups)
    for run in reversed(before.values()):
        requeue(state, run.rest)  # it never came there, or was given back
    _end_others(state, worker, held)
    released = list(held.allocations)
    if len(groups) == 1 and state.shared is None:
        [group] = groups.values()
        group.slots = 1 if group.allocation else worker.hello.slots
        released = [one for one in released if one != group.allocation]
        group.queue.add(group)
        state.agenda.changed_queues[group.queue] = None
        worker.open = True
    elif groups:
        worker.to_release, released = released, []
    allocator.end_allocations(state, worker, released)


def _go_on(
    state: CoreState,
    worker: Worker,
    held: messages.HeldBatch,
    before: dict[int, Run],
    groups: dict[tuple[int, TaskQueue], SlotGroup],
) -> None:
    """Let a worker go on with a batch, but for calls that are settled or unwanted."""
    batch = Batch()
    for item in held.runs:
        run = before.get(item.run)
        if run is None or not _is_part(item, run):
            continue  # `_end_others` ends it
        del before[item.run]
        span = run.rest
        start, stop = max(item.done, span.start), max(item.stop, span.start)
        _leave_out(state, run, replace(span, stop=min(start, span.stop)))
        requeue(state, replace(span, start=stop))
        if start < stop:
            queue = run.slot_group.queue
            if state.shared is None:
                queue = state.queue_for(worker.provisioner.demand)
            group = SlotGroup(worker, queue, 0, held.allocation)
            group = groups.setdefault((held.allocation, queue), group)
            going = replace(span, start=start, stop=stop)
            _begin(state, run.number, going, group, batch, run.since)


def _is_part(item: messages.HeldRun, run: Run) -> bool:
    """Return whether the run that a worker reports is part of the run that it was assigned."""
    return item.task == run.span.open_task.id and item.done <= item.stop <= run.span.stop


def _leave_out(state: CoreState, run: Run, span: Span) -> None:
    """Run calls again, where allowed, whose results the worker says it has sent and the core does
    not have.
    """
    verdict = judge(Fault.LEFT_OUT, outcomes.facts_of(state, span))
    if span.calls and not verdict.again:
        outcomes.record_attempt(state, run, span.start, LEFT_OUT)
    why = partial(outcomes.why_lost, state, run, span, f"comes back, but {LEFT_OUT}")
    outcomes.follow(state, run, span, verdict, why)


def _end_others(state: CoreState, worker: Worker, held: messages.Held) -> None:
    """Have a worker end the runs that nobody wants, and forget the objects that no task uses."""
    runs = [item.run for batch in held.batches for item in batch.runs]
    _end(state, worker, [run for run in runs if run not in worker.runs], signal.SIGKILL)
    unwanted = defaultdict[int, list[int]](list)
    for run in worker.runs.values():
        one = run.span.open_task
        numbers = [one.cancelled_by(index) for index in range(run.done, run.span.stop)]
        if one.details.unwanted and any(numbers):
            unwanted[max(numbers)].append(run.number)
    for number, its in unwanted.items():
        _end(state, worker, its, number)
    forgotten = []
    for name in held.defined:
        if (known := state.objects.get(name)) is not None:
            known.workers.add(worker.id)
            worker.functions.add(name)
        elif not (worker.runs and len(name) == messages.NAME_BYTES):  # its inputs wait
            forgotten.append(name)
    if forgotten:
        state.effects.append(Send(worker.id, messages.Forget(forgotten)))


def _end(state: CoreState, worker: Worker, runs: Sequence[int], number: int) -> None:
    if runs:
        state.effects.append(Send(worker.id, messages.Cancel(list(runs), number)))


def drop(state: CoreState, worker: Worker, held: messages.Held) -> None:
    """Have a worker end all its runs and allocations: from here on it is treated as a new one."""
    _end_others(state, worker, held)
    allocator.end_allocations(state, worker, held.allocations)
