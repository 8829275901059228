"""Workers from their launch to their first message: the scheduler's reports, and who connects."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gridengine.dispatcher.core import adoption, allocator, books, events, scaling, worker_lifecycle
from gridengine.dispatcher.core.model import Worker
from gridengine.dispatcher.core.outcomes import fail, give_up
from gridengine.dispatcher.core.policy import booked, spare_of
from gridengine.dispatcher.core.provisioner import LaunchedWorker, Provisioner, keys_of
from gridengine.dispatcher.core.run_log import RUNNING, SCHEDULER
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.states import Phase
from gridengine.display import plural
from gridengine.errors import ConfigurationError, VersionMismatch
from gridengine.resources.base import Resource
from gridengine.resources.demand import decode_demand
from gridengine.schedulers.launcher import Handle, Report, WorkerStatus
from gridengine.wire.messages import VERSION, Held, Hello, Refuse, Stop, Welcome

UNKNOWN = Hello(VERSION, "", "", "", "the dispatcher's machine", 0, 1, "")
"""In place of what a worker said that has ended with its dispatcher."""


def launched(state: CoreState, event: events.Launched) -> None:
    """Note the workers that the scheduler has started; some may have connected already."""
    provisioner = state.provisioner_for(event.demand)
    state.effects += state.log.launched(event, provisioner.label, state.now)
    for id, launch in provisioner.add_launched(event.handles, state.now):
        worker = state.workers.get(id)
        if worker is not None:
            worker.launch = launch
            _move(state, worker, provisioner)
            state.effects += state.log.connected(worker, state.now)
    if state.closing:
        state.effects += provisioner.withdraw()
    elif state.policy is not state.first_policy:
        scaling.keep_bounds(state)
    if not event.handles:
        provisioner.hold_back(state.now)
    state.agenda.scale = True


def _move(state: CoreState, worker: Worker, provisioner: Provisioner) -> None:
    """Move a worker to the provisioner that launched it: it connected before its launch was
    known.
    """
    if worker.provisioner is not provisioner:
        books.move_worker(worker, provisioner)
    if not (worker.open or worker.absent or worker.to_release is not None) and (
        worker.phase is not Phase.STOPPING
    ):
        _open(state, worker)


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
    else:
        give_up(state, event.error, [provisioner])


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
                _limit_stay(state, worker)
        error = None if provisioner.workers else provisioner.impossible()
        if error is not None:
            give_up(state, error, [provisioner])
    state.agenda.scale = True


def _note_running(state: CoreState, reports: Mapping[Handle, Report]) -> None:
    """Tell followers which jobs the batch system has begun to run."""
    begun = WorkerStatus.RUNNING
    for launch in state.launched_workers():
        report = reports.get(launch.handle)
        if report is not None and report.state is begun and launch.state is not begun:
            state.log.note(RUNNING, job=launch.handle.id, reason=report.reason)


def explained(state: CoreState, event: events.Explained) -> None:
    """Note what a queued worker waits for, or what keeps a running one from connecting."""
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
    if error is not None and provisioner.workers:
        state.effects.append(events.Warn(error.message))
    elif error is not None:
        give_up(state, error, [provisioner])


def connected(state: CoreState, id: bytes, hello: Hello) -> None:
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
        worker_lifecycle.forget_launch(state, id, launch, provisioner)
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
    state.effects.append(events.Send(id, Welcome(state.policy.epoch)))
    if launch is not None:
        state.effects += state.log.connected(worker, state.now)
    if worker.phase is Phase.STOPPING:
        state.effects.append(events.Send(id, Stop()))
    elif withdrawn or state.closing:
        worker_lifecycle.stop(state, worker)
    else:
        _admit(state, worker)


def _held_by(state: CoreState, hello: Hello) -> Resource | None:
    """Return the resources that a worker says it holds, with one core if it names none; None if it
    says nothing.

    Raises:
        ConfigurationError: its words cannot be understood, or calls do not share workers.
    """
    if not hello.resources:
        return None
    if state.shared is None:
        raise ConfigurationError(
            "calls of this dispatcher have workers of their own, each with what its calls ask for",
            hint="start this worker without --cores and its like; or the dispatcher with what its "
            "workers hold, for calls to share them (--cores 4; in a script worker_resources=)",
        )
    try:
        return booked(decode_demand([*hello.resources], 1.0).resources)
    except (TypeError, ValueError, LookupError) as error:
        raise ConfigurationError(f"{hello.resources!r} are no resources: {error}") from error


def is_by_hand(state: CoreState, worker: Worker) -> bool:
    """Return whether no scheduler started this worker, where such workers may come. A scheduler's
    worker whose launch is not known yet may look the same.
    """
    return state.policy.keeps_others and worker.launch is None and not worker.hello.elapsed


def _add(state: CoreState, id: bytes, hello: Hello, provisioner: Provisioner) -> Worker:
    now, generation = state.now, state.generation
    worker = Worker(id, hello, now, now, provisioner, since=now, generation=generation)
    books.add_worker(state, worker)
    return worker


def _admit(state: CoreState, worker: Worker) -> None:
    """Let a worker go on with what it has, and give out its slots."""
    held = worker.hello.held
    if worker.absent:
        adoption.take_back(state, worker, held or Held())
    elif held is not None:
        adoption.drop(state, worker, held)
    requesting = sum(one.requested > 0 for one in state.provisioners.values())
    if worker.open or worker.to_release is not None:
        _limit_stay(state, worker)
    elif worker.launch is not None or worker.hello.functions or requesting < 2:
        _open(state, worker)
    # else it may be any of them, and waits for its launch to be known


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
        if state.shared is not None:  # else it is refused when it comes back
            worker.held = _held_by(state, hello)
        books.enter(state, worker, Phase.SILENT)


def _limit_stay(state: CoreState, worker: Worker) -> None:
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


def _open(state: CoreState, worker: Worker) -> None:
    """Note how long a worker stays, and give out its slots."""
    provisioner = worker.provisioner
    _limit_stay(state, worker)
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
    state.effects += [events.Send(id, Refuse(reason)), events.Lost(id)]


def _mismatch(
    state: CoreState, hello: Hello, launch: LaunchedWorker | None
) -> VersionMismatch | None:
    policy = state.policy
    ours = VERSION, policy.version, policy.python
    theirs = hello.protocol, hello.version, hello.python
    if theirs == ours or (hello.functions and hello.protocol == VERSION):
        return None  # whoever has functions of its own need not be of this package
    return VersionMismatch(
        f"the worker on {hello.host} has gridengine {hello.version} (protocol {hello.protocol}) on "
        f"Python {hello.python}, "
        f"the dispatcher gridengine {policy.version} (protocol {VERSION}) on Python "
        f"{policy.python}",
        host=hello.host,
        job=launch.handle.id if launch is not None else None,
        log=hello.log or None,
        hint="install the same versions on both sides, or set python=",
    )
