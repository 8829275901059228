"""Workers from their launch to their first message: the scheduler's reports, and who connects."""

from __future__ import annotations

from gridengine.dispatcher.core import allocator, worker_lifecycle
from gridengine.dispatcher.core.events import (
    Explained,
    Launched,
    LaunchFailed,
    Lost,
    Polled,
    Send,
    Warn,
)
from gridengine.dispatcher.core.model import Phase, Worker
from gridengine.dispatcher.core.outcomes import fail, give_up
from gridengine.dispatcher.core.provisioner import LaunchedWorker, Provisioner, keys_of
from gridengine.dispatcher.core.state import CoreState
from gridengine.errors import VersionMismatch
from gridengine.resources.units import plural
from gridengine.wire.messages import VERSION, Hello, Refuse, Welcome

# ------------------------------------------------------------------ what the scheduler reports


def launched(state: CoreState, event: Launched, now: float) -> None:
    """Note the workers that the scheduler has started, some of which may have connected already."""
    provisioner = state.provisioner_for(event.demand)
    state.effects += state.log.launched(event, provisioner.label, now)
    for id, launch in provisioner.add_launched(event.handles, now):
        worker = state.workers.get(id)
        if worker is not None:
            worker.launch = launch
            _move(state, worker, provisioner, now)
            state.effects += state.log.connected(worker, now)
    if state.closing:
        state.effects += provisioner.withdraw()
    if not event.handles:
        provisioner.hold_back(now)
    state.scale_due = True


def _move(state: CoreState, worker: Worker, provisioner: Provisioner, now: float) -> None:
    """Move a worker to the provisioner that launched it: it connected before that was known."""
    before = worker.provisioner
    if before is not provisioner:
        before.workers -= 1
        provisioner.workers += 1
        if worker.id in before.idle:
            before.idle.remove(worker.id)
            provisioner.idle.add(worker.id)
        worker.provisioner = provisioner
    if not worker.open and worker.phase is not Phase.STOPPING:
        _open(state, worker, now)


def launch_failed(state: CoreState, event: LaunchFailed, now: float) -> None:
    """Note that the scheduler has started none."""
    provisioner = state.provisioner_for(event.demand)
    provisioner.requested = 0
    provisioner.reason = event.error.message
    if event.for_now or provisioner.size:
        provisioner.hold_back(now)
        state.effects.append(
            Warn(
                f"no workers were started{' for now' if event.for_now else ''}: "
                f"{event.error.message}"
            )
        )
    else:
        give_up(state, event.error, now, [provisioner])


def polled(state: CoreState, event: Polled, now: float) -> None:
    """Note what the scheduler reports of workers."""
    for provisioner in list(state.provisioners.values()):
        for launch in provisioner.update(event.reports, now):
            if launch.worker is None and provisioner.knows(launch):
                _start_failed(state, provisioner, launch, now)
        error = None if provisioner.workers else provisioner.impossible()
        if error is not None:
            give_up(state, error, now, [provisioner])
    state.scale_due = True


def explained(state: CoreState, event: Explained, now: float) -> None:
    """Note what a queued worker waits for, or keeps one that runs from connecting."""
    for provisioner in state.provisioners.values():
        provisioner.explained(event.handle, event.words, now, running=event.running)


def check_launches(state: CoreState, now: float) -> None:
    """Withdraw the workers that have not connected in time, and fail calls that have waited for
    too long for the first.
    """
    needed = state.needed_slots()
    for provisioner in list(state.provisioners.values()):
        for launch in provisioner.overdue(now):
            if provisioner.knows(launch):
                state.effects.append(
                    Warn(
                        f"cluster job {launch.handle.id} runs and has not connected in time; it "
                        "is stopped"
                    )
                )
                state.effects += provisioner.withdraw([launch])
                _start_failed(state, provisioner, launch, now)
        state.effects += provisioner.explain(now, waited_for=needed[provisioner] > 0)
        state.effects += provisioner.look_into(now)
        late = provisioner.start_timed_out(now)
        if late is not None:
            give_up(state, late, now, [provisioner])
    state.forget_provisioners(now)


def _start_failed(
    state: CoreState, provisioner: Provisioner, launch: LaunchedWorker, now: float
) -> None:
    """A launched worker ended and never connected."""
    none_connected = not state.log.connected_workers
    error = provisioner.start_failed(launch, now, none_connected=none_connected)
    if error is not None and provisioner.workers:
        state.effects.append(Warn(error.message))
    elif error is not None:
        give_up(state, error, now, [provisioner])


# ------------------------------------------------------------------ who connects


def connected(state: CoreState, id: bytes, hello: Hello, now: float) -> None:
    """Take in a worker that says hello, or refuse it."""
    if id in state.workers:
        return
    run_id = state.policy.run_id
    if hello.run_id != run_id or hello.slots < 1:
        words = f"the worker's is {hello.run_id}, with {plural(hello.slots, 'slot')}"
        _refuse(state, id, f"this dispatcher's run is {run_id}; {words}")
        return
    keys = keys_of(hello.log, hello.pid)
    withdrawn = any(key in state.withdrawn for key in keys)
    provisioner, launch = (state.common, None) if withdrawn else _recognise(state, id, keys)
    mismatch = _mismatch(state, hello, launch)
    if mismatch is not None:
        _refuse(state, id, mismatch.message)
        worker_lifecycle.forget_launch(state, id, launch, provisioner)
        provisioner.hold_back(now)
        if not state.workers:
            give_up(state, mismatch, now, state.provisioners.values())
        return
    provisioner.reset_failures()
    worker = Worker(
        id, hello, now, now, provisioner, launch=launch, since=now, generation=state.generation
    )
    state.workers[id] = worker
    state.phases[worker.phase] += 1
    provisioner.workers += 1
    provisioner.idle.add(id)
    state.effects.append(Send(id, Welcome()))
    if launch is not None:
        state.effects += state.log.connected(worker, now)
    if withdrawn or state.closing:
        worker_lifecycle.stop(state, worker, now)
    elif launch is not None or sum(one.requested > 0 for one in state.provisioners.values()) < 2:
        _open(state, worker, now)
    # else it may be any of them, and waits for its launch to be known


def _open(state: CoreState, worker: Worker, now: float) -> None:
    """Note for how long a worker will be there, and have its slots given out."""
    provisioner = worker.provisioner
    stay = state.policy.stay(provisioner.demand.resources)
    worker.leave_at = now + stay - worker.hello.elapsed
    error = allocator.open_worker(state, worker, now)
    if error is not None:
        fail(state, [state.queue_for(provisioner.demand)], error)
        worker_lifecycle.stop(state, worker, now)


def _recognise(
    state: CoreState, id: bytes, keys: list[str]
) -> tuple[Provisioner, LaunchedWorker | None]:
    """Return the provisioner of a worker that connects, and its launch, if that is known yet."""
    for provisioner in state.provisioners.values():
        launch = provisioner.recognise(id, keys)
        if launch is not None:
            return provisioner, launch
    state.unmatched.update(dict.fromkeys(keys, id))
    requesting = (one for one in state.provisioners.values() if one.requested)
    return next(requesting, state.common), None


def _refuse(state: CoreState, id: bytes, reason: str) -> None:
    state.effects += [Send(id, Refuse(reason)), Lost(id)]


def _mismatch(
    state: CoreState, hello: Hello, launch: LaunchedWorker | None
) -> VersionMismatch | None:
    policy = state.policy
    ours = VERSION, policy.version, policy.python
    if (hello.protocol, hello.version, hello.python) == ours:
        return None
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
