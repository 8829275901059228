"""How many workers there should be: the requests to the scheduler, its reports, and which workers
leave when there are too many.

If the user has not named the cluster, a map that takes milliseconds is not worth an array of a
thousand jobs. So a few workers are requested at first, and one more slot for each `WORTH_SECONDS`
of waiting work. The estimate of the work takes the pace of earlier calls, and of calls in progress.
If the few workers have waited for `QUEUED_SECONDS`, all workers are requested: otherwise long calls
would wait in the batch system's queue twice.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence

from msgspec.structs import replace

from gridengine.dispatcher.core import (
    allocator,
    books,
    clients,
    events,
    worker_lifecycle,
    worker_startup,
)
from gridengine.dispatcher.core.events import Launch, Scaled
from gridengine.dispatcher.core.launches import LaunchedWorker
from gridengine.dispatcher.core.outcomes import give_up
from gridengine.dispatcher.core.provisioner import Provisioner
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.workers_and_queues import READY, TaskQueue, Worker, WorkerPhase
from gridengine.requests import Effect
from gridengine.schedulers.launcher import Handle, Report, WorkerStatus
from gridengine.status.watch_events import REQUESTED, RUNNING, SCHEDULER

WORTH_SECONDS = 10.0
QUEUED_SECONDS = 60.0


def scale(state: CoreState) -> None:
    """Request or withdraw workers, as the queues need."""
    total = sum(one.size_for_others for one in state.provisioners.values())
    needed_slots = list(state.needed_slots().items())
    if state.policy.first_workers:
        worth = _worth_slots(state)
        needed_slots = [(one, int(min(needed, worth[one]))) for one, needed in needed_slots]
    if state.active_clients > 1:
        # First the demands without workers: otherwise others would take the room that was made for
        # these.
        needed_slots.sort(key=lambda pair: pair[0].size > 0)
    for one, needed in needed_slots:
        total -= one.size_for_others
        least = state.policy.min_workers if one is state.common else 0
        effects = one.scale(state.now, needed, others=total, least=least)
        if state.log.events is not None:
            _note_requested(state, effects)
        state.effects += effects
        total += one.size_for_others


def _worth_slots(state: CoreState) -> Mapping[Provisioner, float]:
    """Return how many slots the waiting calls of each provisioner are worth."""
    worth = defaultdict[Provisioner, float](float)
    for queue in state.queues.values():
        if queue.calls:
            worth[queue.provisioner] += queue.calls * _seconds_of(state, queue) / WORTH_SECONDS
    slots = state.policy.slots
    for one in worth:
        since = one.unserved_since
        if since is not None and state.now - since > QUEUED_SECONDS:
            one.waited_long = True
        if one.waited_long:
            worth[one] = math.inf
        else:
            worth[one] = max(worth[one], (state.policy.first_workers - one.busy) * slots)
    return worth


def _seconds_of(state: CoreState, queue: TaskQueue) -> float:
    """Return an estimate of the seconds that the next call of a queue takes. Jobs count as endless,
    since they may wait for each other.
    """
    first = queue.waiting.first().open_task
    if first.options.watched:
        return math.inf
    seconds = first.function.pace.seconds or 0.0
    # Calls that have never had a worker wait behind others', for as long as those run.
    latest = state.runs.get(first.submitter.last_run) or next(iter(state.runs.values()), None)
    return seconds if latest is None else max(seconds, state.now - latest.touched)


def _note_requested(state: CoreState, effects: Sequence[Effect]) -> None:
    """Tell followers which workers are requested."""
    from gridengine.status.rows import request_words  # few follow

    for effect in effects:
        if isinstance(effect, Launch):
            request = request_words(effect.demand.request)
            state.log.note(REQUESTED, effect.count, function=effect.label, reason=request)


def scaled(state: CoreState, event: Scaled) -> None:
    """Change the bounds: workers are requested at once, and too many leave."""
    first = state.first_policy
    minimum = first.min_workers if event.minimum is None else event.minimum
    maximum = first.max_workers if event.maximum is None else event.maximum
    if not 0 <= minimum <= maximum:
        raise ValueError(f"there cannot be from {minimum} to {maximum} workers")
    state.policy = replace(state.policy, min_workers=minimum, max_workers=maximum)
    for one in state.provisioners.values():
        one.policy = state.policy
        one.demand_since, one.keep_again_at = -math.inf, state.now
    keep_bounds(state)
    state.agenda.scale = True


def keep_bounds(state: CoreState) -> None:
    """Have workers leave until no more than `max_workers` stay; if there are too few, let workers
    stay that were about to leave.

    Of each demand, workers that have not connected leave first, then idle workers, then busy ones
    when their calls have ended. The latest workers leave first.
    """
    here = defaultdict[Provisioner, list[Worker]](list)
    for worker in reversed(state.workers.values()):
        if worker.id in worker.provisioner.by_hand:
            continue
        here[worker.provisioner].append(worker)
    provisioners = [one for one in state.provisioners.values() if one.elastic]
    total = sum(_staying(one, here[one], one.suspended) for one in provisioners)
    for one in provisioners:
        # Counted as `scale` counts: otherwise workers that are withdrawn here would be requested
        # again.
        total -= _staying(one, here[one], one.suspended)
        taking_none = {id for id, takes_none in one.suspended.items() if takes_none}
        excess = total + _staying(one, here[one], taking_none) - state.policy.max_workers
        retiring = [worker for worker in here[one] if worker.id in state.retiring]
        for worker in retiring[: max(-excess, 0)]:
            _retain(state, worker)
        if excess > 0:
            _reduce(state, one, here[one], excess)
        total += _staying(one, here[one], one.suspended)


def _staying(one: Provisioner, workers: Iterable[Worker], suspended: Container[bytes]) -> int:
    """Return how many workers will stay: those that are expected, and those of these workers that
    neither leave nor are suspended.
    """
    return len(one.expected) + sum(
        not (worker.is_leaving or worker.id in suspended) for worker in workers
    )


def _reduce(state: CoreState, one: Provisioner, workers: Iterable[Worker], excess: int) -> None:
    coming = sorted(one.expected.values(), key=lambda one: one.state is WorkerStatus.QUEUED)[::-1][
        :excess
    ]
    state.effects += one.withdraw(coming)
    staying = [worker for worker in workers if not worker.is_leaving]
    for worker in sorted(staying, key=lambda worker: worker.batches > 0)[: excess - len(coming)]:
        _retire(state, worker)


def make_room(state: CoreState) -> None:
    """Have one worker leave so that a client without a share of the workers gets one. This matters
    where each demand has workers of its own, and `max_workers` allows no more. Only one leaves at a
    time, since another may become idle meanwhile.
    """
    if state.yielding in state.workers or not _lacks_room(state):
        return
    busy = max(
        (
            worker
            for worker in state.workers.values()
            if worker.phase is READY
            and not (worker.draining or worker.waiting)
            and worker.batches
            and worker.provisioner.elastic
        ),
        key=_share_of,
        default=None,
    )
    if busy is not None:
        state.yielding = busy.id
        worker_lifecycle.drain_worker(state, busy)
        clients.recall(state, busy)


def _lacks_room(state: CoreState) -> bool:
    total = sum(one.size_for_others for one in state.provisioners.values())
    return total >= state.policy.max_workers and any(
        queue.calls
        and queue.provisioner.elastic
        and not queue.provisioner.size
        and not queue.waiting.first().open_task.submitter.client.load
        for queue in state.queues.values()
    )


def _share_of(worker: Worker) -> float:
    """Return the greatest share of a client with calls on this worker."""
    return max(run.span.open_task.submitter.client.share for run in worker.runs.values())


def _retire(state: CoreState, worker: Worker) -> None:
    """Have a worker leave when its calls have ended."""
    worker_lifecycle.drain_worker(state, worker)
    if worker.phase is not WorkerPhase.STOPPING:
        state.retiring[worker.id] = worker
        clients.recall(state, worker)


def _retain(state: CoreState, worker: Worker) -> None:
    """Let a worker stay that was about to leave."""
    worker.draining = False
    books.note_suspended(worker)
    del state.retiring[worker.id]
    if worker.phase is READY:
        allocator.resume_worker(state, worker)


def launched(state: CoreState, event: events.Launched) -> None:
    """Note the workers that the scheduler has started; some may have connected already."""
    provisioner = state.provisioner_for(event.demand)
    state.say(state.log.launched(event.handles, event.asked, provisioner.label, state.now))
    for id, launch in provisioner.add_launched(event.handles, state.now):
        worker = state.workers.get(id)
        if worker is not None:
            worker_startup.launch_known(state, worker, provisioner, launch)
    if state.closing:
        state.effects += provisioner.withdraw()
    elif state.policy is not state.first_policy:
        keep_bounds(state)
    if not event.handles:
        provisioner.hold_back(state.now)
    state.agenda.scale = True


def launch_failed(state: CoreState, event: events.LaunchFailed) -> None:
    """Note that the scheduler has started no workers."""
    provisioner = state.provisioner_for(event.demand)
    provisioner.requested = 0
    provisioner.reason = event.error.message
    state.log.note(SCHEDULER, reason=event.error.message)
    if event.for_now or provisioner.size:
        provisioner.hold_back(state.now)
        when = " for now" * event.for_now
        state.effects.append(events.Warn(f"no workers were started{when}: {event.error.message}"))
    elif (error := provisioner.starts.refused(event.error)) is not None:
        give_up(state, error, [provisioner])
    else:
        provisioner.hold_back(state.now)


def polled(state: CoreState, event: events.Polled) -> None:
    """Note the scheduler's reports of workers."""
    if state.log.events is not None:
        _note_running(state, event.reports)
    for provisioner in list(state.provisioners.values()):
        for launch in provisioner.update(event.reports, state.now):
            if launch.worker is None and provisioner.knows(launch):
                _start_failed(state, provisioner, launch)
        for launch in provisioner.launched.values():
            worker = state.workers.get(launch.worker) if launch.worker is not None else None
            if worker is not None and min(launch.ends_at, launch.lasts_seconds) < math.inf:
                worker_startup.limit_stay(state, worker)
        never = None if provisioner.workers else provisioner.impossible()
        if never is not None:
            error = provisioner.starts.refused(never)
            if error is not None:
                give_up(state, error, [provisioner])
            else:
                provisioner.hold_back(state.now)
                state.effects += provisioner.withdraw()
    state.agenda.scale = True


def _note_running(state: CoreState, reports: Mapping[Handle, Report]) -> None:
    """Tell followers which jobs the batch system has begun to run."""
    begun = WorkerStatus.RUNNING
    for launch in state.launched_workers():
        report = reports.get(launch.handle)
        if report is not None and report.state is begun and launch.state is not begun:
            state.log.note(RUNNING, job=launch.handle.id, reason=report.reason)


def explained(state: CoreState, event: events.Explained) -> None:
    """Note why a queued worker waits, or why a running one does not connect."""
    if not event.running:
        state.log.note(SCHEDULER, job=event.handle.id, reason=event.words)
    for provisioner in state.provisioners.values():
        provisioner.explained(event.handle, event.words, state.now, running=event.running)


def check_launches(state: CoreState) -> None:
    """Withdraw workers that have not connected in time, and fail calls that waited too long for
    one.
    """
    needed = state.needed_slots()
    for provisioner in list(state.provisioners.values()):
        for launch in provisioner.overdue(state.now):
            if provisioner.knows(launch):
                text = "runs and has not connected in time; it is stopped"
                state.effects.append(events.Warn(f"cluster job {launch.handle.id} {text}"))
                state.effects += provisioner.withdraw([launch])
                _start_failed(state, provisioner, launch)
        state.effects += provisioner.explain(state.now, waited_for=needed[provisioner] > 0)
        state.effects += provisioner.look_into(state.now)
        late = provisioner.start_timed_out(state.now)
        if late is not None:
            give_up(state, late, [provisioner])
    state.forget_provisioners()


def _start_failed(state: CoreState, provisioner: Provisioner, launch: LaunchedWorker) -> None:
    """Note that a launched worker ended before it connected."""
    none_connected = not state.log.connected_workers
    error = provisioner.start_failed(launch, state.now, none_connected=none_connected)
    if error is not None and not provisioner.workers:
        give_up(state, error, [provisioner])
        return
    if error is not None:
        state.effects.append(events.Warn(error.message))
    state.effects += provisioner.leave_out(launch, state.now)
