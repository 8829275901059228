"""Connected workers that fall silent, leave, are stopped or lost; what follows for their calls."""

from __future__ import annotations

from functools import partial
from itertools import islice

from msgspec.structs import replace

from gridengine.dispatcher.core import allocator, books, clients, objects, outcomes, pulls
from gridengine.dispatcher.core.calls import Span
from gridengine.dispatcher.core.events import DrainHosts, Lost, Send
from gridengine.dispatcher.core.launches import LaunchedWorker, keys_of
from gridengine.dispatcher.core.provisioner import Provisioner
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.verdicts import FREE, OWN, Fact, Fault, judge
from gridengine.dispatcher.core.workers_and_queues import READY, Run, TaskQueue, Worker, WorkerPhase
from gridengine.errors import OutOfMemory, TimeoutError
from gridengine.schedulers.launcher import WorkerStatus
from gridengine.serialize.payload import Payload
from gridengine.status.watch_events import IDLE, LEAVING, SILENT
from gridengine.wire.messages import TERMINATED, Goodbye, Hello, LeaveBy, Leaving, Stop

GRACE_SECONDS = 0.5
LEAVE_SECONDS = 10.0
HAND_OVER_RATE = 10e6
"""A worker that leaves hands over its results at this many bytes per second at least."""
YIELD_SECONDS = 0.5
"""How long an idle worker stays where calls of another demand may wait for its
place.
"""
FEW_WORKERS, ROUND_TICKS = 500, 8
"""A tick looks at this many workers, or at an eighth of all if that is more. So each has its turn
within some two seconds; a worker counts as silent after six.
"""
WHOLE_LIFE = 0.8
"""A call fails if it had more than this part of the life of a worker whose walltime is over:
further attempts would end in the same way.
"""


def check_workers(state: CoreState, unread: float) -> None:
    """Look whether workers are still there, and still needed. Of many workers this looks at a part,
    so that a tick costs little, and all have had their turn after `ROUND_TICKS`.

    Args:
        unread: see `Tick`.
    """
    now, displaced = state.now, _displaced(state)
    _note_idle(state)
    heard_since = now - 3 * state.policy.beat_seconds
    suspended = WorkerStatus.SUSPENDED
    for worker in _next_to_check(state):
        if (
            worker.batches
            and worker.heard_at >= heard_since
            and worker.leave_at > now
            and worker.phase is READY
            and (
                (launch := worker.launch) is None
                or (launch.ended_at is None and launch.state is not suspended)
            )
        ):
            continue  # it works, as most do
        _check(state, worker, displaced, unread)


def _next_to_check(state: CoreState) -> list[Worker]:
    workers, first = list(state.workers.values()), state.checked_workers
    state.checked_workers = stop = first + max(FEW_WORKERS, len(workers) // ROUND_TICKS)
    if stop >= len(workers):
        state.checked_workers = 0
    return workers[first:stop]


def _note_idle(state: CoreState) -> None:
    """Tell those who watch which workers have become idle since the previous tick."""
    events = state.log.events
    if events is not None:
        for worker in state.workers.values():
            if (
                worker.idle_since > events.ticked_at
                and worker.phase is READY
                and not worker.batches
            ):
                _note(state, worker, IDLE)
        events.ticked_at = state.now


def forgive_silence(state: CoreState, seconds: float) -> None:
    """Count these seconds as no silence of the workers."""
    for worker in state.workers.values():
        worker.heard_at = min(state.now, worker.heard_at + seconds)


def _check(state: CoreState, worker: Worker, displaced: list[TaskQueue], unread: float) -> None:
    launch, silence = worker.launch, state.now - unread - worker.heard_at
    beat, ready = state.policy.beat_seconds, worker.phase is WorkerPhase.READY
    if (
        launch is not None
        and launch.ended_at is not None
        and min(state.now - launch.ended_at, silence) > _grace_seconds(state, worker, launch)
    ):
        reason = launch.report.reason if launch.report is not None else ""
        lose(state, worker, f"ended: {reason}" if reason else "ended")
    elif (
        worker.phase is WorkerPhase.STOPPING
        and state.now - unread - worker.stopping_since > _leave_seconds(state, worker)
    ):
        dismiss(state, worker, worker.exit_reason or "does not leave")
    elif launch is not None and launch.state is WorkerStatus.SUSPENDED:
        worker.heard_at = state.now
        _set_silent(state, worker)
    elif silence > state.policy.lease_seconds + 2 * beat:
        dismiss(state, worker, f"has not been heard of for {silence:.0f} s")
    elif silence > 3 * beat:
        _set_silent(state, worker)
    elif ready and worker.hello.functions:
        return  # nobody else has them, and it was not asked for
    elif ready and not worker.batches and _is_superfluous(state, worker, displaced):
        stop(state, worker)
    elif ready and state.now >= worker.leave_at:
        _relieve(state, worker)


def _note(state: CoreState, worker: Worker, kind: str, reason: str = "") -> None:
    state.log.note(kind, host=worker.hello.host, job=worker.job, reason=reason)


def _leave_seconds(state: CoreState, worker: Worker) -> float:
    """Return how long a worker may take to leave: it hands over the results that only it has."""
    held = sum(state.objects[one].size for one in worker.functions & state.away.keys())
    return LEAVE_SECONDS + held / HAND_OVER_RATE


def _grace_seconds(state: CoreState, worker: Worker, launch: LaunchedWorker) -> float:
    """Return how long a worker may be silent after its cluster task has ended. If the batch system
    merely lost sight of the task, the worker has its whole lease.
    """
    report = launch.report
    if report is not None and report.uncertain and worker.phase is not WorkerPhase.STOPPING:
        return state.policy.lease_seconds + 2 * state.policy.beat_seconds
    return GRACE_SECONDS


def _is_superfluous(state: CoreState, worker: Worker, displaced: list[TaskQueue]) -> bool:
    """Return whether an idle worker is to leave: it was idle for long and more than `min_workers`
    stay, another demand needs its place, or its time is nearly over.
    """
    if worker.id in worker.provisioner.by_hand:
        return False
    idle, leaving = state.now - worker.idle_since, state.phases[WorkerPhase.STOPPING]
    elastic = (one for one in state.provisioners.values() if one.elastic)
    staying = sum(one.workers - len(one.by_hand) for one in elastic) - leaving
    if (idle >= state.policy.idle_seconds and staying > state.policy.min_workers) or (
        idle >= YIELD_SECONDS
        and any(queue.provisioner is not worker.provisioner for queue in displaced)
    ):
        return True
    waiting = [group.queue.soft for group in worker.slot_groups if group.queue.calls]
    return not worker.has_seconds(max(waiting, default=0.0), state.now)


def _displaced(state: CoreState) -> list[TaskQueue]:
    """Return up to two queues whose calls find no room: they have no idle slot, and the workers
    that they need are not there.
    """
    short = (
        queue
        for queue in state.queues.values()
        if queue.calls
        and not queue.idle
        and not queue.demand.function
        and (queue.provisioner.expected or not queue.provisioner.requested)
    )
    return list(islice(short, 2))


def _set_silent(state: CoreState, worker: Worker) -> None:
    """Assign nothing to a worker until it is heard again, and wait for no result of it that another
    worker has.
    """
    if worker.phase is WorkerPhase.READY:
        books.enter(state, worker, WorkerPhase.SILENT)
        _note(state, worker, SILENT)
        worker.unlist()
        objects.ask_others(state, worker)


def heard_again(state: CoreState, worker: Worker) -> None:
    """Assign calls again to a worker that was silent."""
    books.enter(state, worker, WorkerPhase.READY)
    allocator.resume_worker(state, worker)


def finished_batch(state: CoreState, worker: Worker) -> None:
    """If a worker is idle, note since when; stop it if it drains or has done its share."""
    if worker.phase is READY and not worker.batches:
        worker.idle_since = state.now
        if worker.to_release is not None:
            allocator.open_emptied(state, worker)
        if worker.draining or worker.is_spent:
            stop(state, worker)


def drain(state: CoreState, event: DrainHosts) -> None:
    """Have the workers on these hosts leave when their calls have ended."""
    for worker in list(state.workers.values()):
        if worker.hello.host in event.hosts and worker.phase is READY and not worker.draining:
            if worker.batches and not worker.hello.functions:
                state.effects.append(Send(worker.id, LeaveBy()))
            drain_worker(state, worker)
    state.agenda.scale = True


def leaving(state: CoreState, worker: Worker, message: Leaving, buffers: Payload) -> None:
    """Assign nothing more to a worker that waits for its calls to save their states."""
    if worker.phase in (READY, WorkerPhase.SILENT) and not worker.draining:
        drain_worker(state, worker)
        clients.recall(state, worker)
        state.agenda.scale = True


def interrupted(state: CoreState, run: Run, span: Span, payload: Payload) -> None:
    """Run a call again that has stopped because its worker is to leave; no attempt is charged. The
    worker gets nothing more, since its next calls would stop at once.

    A call fails if it had nearly all of the worker's life and has saved nothing: another worker
    would not be enough either.
    """
    worker, facts = run.worker, outcomes.facts_of(state, span)
    if run.saved != span.start and not worker.is_leaving and _had_whole_life(state, run):
        facts.add(Fact.WHOLE_LIFE)
    if judge(Fault.INTERRUPTED, facts) is OWN:
        outcomes.settle(state, span, payload, raised=True, exitcode=1)
    else:
        outcomes.requeue(state, span)  # a cancelled call is settled there
    leaving(state, worker, Leaving(), ())


def drain_worker(state: CoreState, worker: Worker) -> None:
    """Have a worker leave when its calls have ended."""
    worker.draining = True
    books.note_suspended(worker)
    worker.unlist()
    if worker.phase is READY and not worker.batches:
        stop(state, worker)


def _relieve(state: CoreState, worker: Worker) -> None:
    """Stop a worker whose walltime is nearly over. Its calls run elsewhere, and no attempt is
    charged; a call that had nearly all of that time fails. Calls that may run only once stay until
    the worker has said which of them have begun.
    """
    begun, fault = worker.under_way(), Fault.WORKER_OVER_TIME
    for run in reversed(list(worker.runs.values())):
        if run.span.open_task.options.retries:
            outcomes.end_run(state, run)
            _end_lost(state, run, fault, "had no walltime left", begun, told=True)
    stop(state, worker)
    state.agenda.scale = True


def _had_whole_life(state: CoreState, run: Run) -> bool:
    """Return whether the call in progress had nearly all of its worker's life and has saved
    nothing, so that another worker would not do either.
    """
    now = state.now
    return not run.has_saved and now - run.touched > WHOLE_LIFE * (now - run.worker.since)


def stop(state: CoreState, worker: Worker) -> None:
    """Tell a worker to leave. It need not hand over results that another worker has too."""
    _close(state, worker)
    for name in [] if worker.runs else sorted(worker.functions & state.away.keys()):
        known = state.objects[name]
        if any(state.workers[other].phase is READY for other in known.workers):
            objects.forget_at(state, known, worker.id)
    state.effects.append(Send(worker.id, Stop()))


def _close(state: CoreState, worker: Worker) -> None:
    """Assign nothing to a worker any more, and have no other get results from it."""
    worker.stopping_since = state.now
    pulls.give_up_from(state, worker)
    state.retiring.pop(worker.id, None)
    books.enter(state, worker, WorkerPhase.STOPPING)
    _note(state, worker, LEAVING, worker.exit_reason)
    allocator.close_worker(state, worker)


def goodbye(state: CoreState, worker: Worker, message: Goodbye, buffers: Payload) -> None:
    """Handle a worker's goodbye. Its results have come before, so only the calls that its runners
    were running can be to blame for its end.

    If somebody else ended the worker, its calls wait for the batch system's report, which says
    whether they are to blame.
    """
    waiting = pulls.runs_that_wait(worker)
    worker.blamed_runs = set(message.begun or ()) or worker.under_way() - waiting
    worker.knows_begun = message.begun is not None
    reason, launch = f"left ({message.reason})", worker.launch
    if state.now >= worker.leave_at:
        reason = "had to leave: its walltime was nearly over"
    awaited = (
        state.policy.pooled
        and launch is not None
        and launch.ended_at is None
        and worker.provisioner.knows(launch)
    )
    terminated = message.reason == TERMINATED and worker.phase is not WorkerPhase.STOPPING
    if terminated and awaited and worker.runs:
        worker.exit_reason = reason
        _close(state, worker)
    else:
        lose(state, worker, reason)


def dismiss(state: CoreState, worker: Worker, reason: str) -> None:
    """Give up a worker that may still be there: its cluster task must end, since its calls run
    elsewhere.
    """
    if worker.launch is not None:
        state.effects += worker.provisioner.withdraw([worker.launch])
    lose(state, worker, reason)


def forget_launch(
    state: CoreState,
    id: bytes,
    hello: Hello,
    launch: LaunchedWorker | None,
    provisioner: Provisioner,
) -> None:
    """Forget how a worker was launched, and how it may be recognised."""
    if launch is not None:
        provisioner.drop(launch)
    for key in keys_of(hello.log, hello.pid):
        if state.unmatched.get(key) == id:
            del state.unmatched[key]


def lose(state: CoreState, worker: Worker, reason: str) -> None:
    """Forget a worker that is gone; its calls wait again, or fail after their last attempt."""
    calls: int | None = sum(run.span.stop - run.done for run in worker.runs.values())
    if not calls and worker.phase is WorkerPhase.STOPPING:
        calls = None
    state.say(state.log.lost(worker.hello, worker.job, reason, calls, state.now))
    books.remove_worker(state, worker)
    allocator.close_worker(state, worker)
    forget_launch(state, worker.id, worker.hello, worker.launch, worker.provisioner)
    state.effects.append(Lost(worker.id))
    asked = []
    pulls.give_up_from(state, worker)
    for digest in worker.functions:
        known = state.objects[digest]
        known.workers.discard(worker.id)
        pulls.end(state, known, worker.id)
        if known.asked == worker.id:
            asked.append(digest)
    objects.bring_again(state, asked)
    fault, told = _fault_of(state, worker), worker.blamed_runs is not None
    begun = worker.under_way() if worker.blamed_runs is None else worker.blamed_runs
    for run in reversed(list(worker.runs.values())):
        outcomes.end_run(state, run)
        _end_lost(state, run, fault, reason, begun, told=told)
    state.agenda.scale = True


def _fault_of(state: CoreState, worker: Worker) -> Fault:
    """Return why a worker is gone, as far as the batch system says."""
    report = worker.launch.report if worker.launch is not None else None
    fault = report.fault if report is not None else None
    if fault is OutOfMemory:
        return Fault.WORKER_OUT_OF_MEMORY
    if fault is TimeoutError or state.now >= worker.leave_at:
        return Fault.WORKER_OVER_TIME
    if report is None:
        return Fault.LOST
    return Fault.DELETED if report.deleted else Fault.MADE_ROOM if report.blameless else Fault.LOST


def _end_lost(
    state: CoreState, run: Run, fault: Fault, reason: str, begun: set[int], *, told: bool
) -> None:
    """Decide on the calls of a run whose worker is gone. `begun`: the runs whose first open call
    was in progress, as far as is known.

    If the worker was `told` to leave, it has sent all results: only these calls are to blame.
    Otherwise all calls of the worker may be. So may calls that run only once, unless the worker
    has said which have begun.
    """
    span, options = run.rest, run.span.open_task.options
    known = told and bool(run.worker.knows_begun or options.retries)
    if known and run.number not in begun:
        outcomes.requeue(state, span)
        return
    first, others = replace(span, stop=span.start + 1), replace(span, start=span.start + 1)
    theirs = FREE if known else judge(fault, outcomes.facts_of(state, others))
    facts = outcomes.facts_of(state, first)
    if state.shared is not None:
        facts.add(Fact.STUCK)  # all workers are alike
    if run.number in begun:
        facts.add(Fact.IN_PROGRESS)
    if known and run.has_saved:
        facts.add(Fact.SAVED)
    if _had_whole_life(state, run):
        facts.add(Fact.WHOLE_LIFE)
    its = judge(fault, facts)
    parts = [(span, its)] if its == theirs else [(others, theirs), (first, its)]
    for part, verdict in parts:
        if part.start == span.start or (part.calls and verdict is not FREE):
            outcomes.record_attempt(state, run, part.start, f"the worker {reason}")
        if part.calls:
            why = partial(outcomes.why_lost, state, run, part, reason)
            outcomes.follow(state, run, part, verdict, why)
