"""The workers' life in the core: who calls home, who is looked after, who leaves and who is lost. Sans-I/O, functions over the core."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gridengine import blame
from gridengine.errors import OutOfMemory, TimeoutError, VersionMismatch
from gridengine.events import Launched, LaunchFailed, Lost, Polled, Send, Warn
from gridengine.fleet import Started as StartedWorker
from gridengine.fleet import keys_of
from gridengine.pools import WorkerPool
from gridengine.protocol import TERMINATED, VERSION, Goodbye, Hello, Payload, Refuse, Stop, Welcome
from gridengine.schedulers.base import TaskState
from gridengine.work import Phase, Span, Worker

if TYPE_CHECKING:
    from gridengine.state import DispatchState

SETTLE_SECONDS = 0.5
LEAVE_SECONDS = 10.0


def hello(core: DispatchState, id: bytes, hello: Hello, now: float) -> None:
    """A worker calls home: it is taken in, or refused."""
    if id in core.workers:
        return
    if hello.run_id != core.policy.run_id or hello.slots < 1:
        _refuse(core, id, f"this dispatcher's run is {core.policy.run_id}; the worker's is {hello.run_id}, with {hello.slots} slots")
        return
    keys = keys_of(hello.log, hello.pid)
    withdrawn = any(key in core.withdrawn for key in keys)
    pool, started = (core.common, None) if withdrawn else _recognise(core, id, keys)
    mismatch = _mismatch(core, hello, started)
    if mismatch is not None:
        _refuse(core, id, mismatch.message)
        _forget_launch(core, id, started, pool)
        pool.fleet.hold_back(now)
        if not core.workers:
            core.give_up(mismatch, now)
        return
    pool.fleet.welcomed()
    core.workers[id] = worker = Worker(id, hello, now, now, pool, started=started)
    pool.join(worker)
    core.effects.append(Send(id, Welcome()))
    if withdrawn or core.closing:
        stop(core, worker, now)
        return
    core.make_room(worker, now)


def _recognise(core: DispatchState, id: bytes, keys: list[str]) -> tuple[WorkerPool, StartedWorker | None]:
    """Return the pool of a worker that calls home, and its launch, if that is known yet."""
    for pool in core.pools.values():
        started = pool.fleet.called_home(id, keys)
        if started is not None:
            return pool, started
    core.strangers.update(dict.fromkeys(keys, id))
    return next((pool for pool in core.pools.values() if pool.fleet.asked), core.common), None


def _forget_launch(core: DispatchState, id: bytes, started: StartedWorker | None, pool: WorkerPool) -> None:
    if started is not None:
        pool.fleet.drop(started)
    for key in [key for key, stranger in core.strangers.items() if stranger == id]:
        del core.strangers[key]


def _refuse(core: DispatchState, id: bytes, reason: str) -> None:
    core.effects += [Send(id, Refuse(reason)), Lost(id)]


def _mismatch(core: DispatchState, hello: Hello, started: StartedWorker | None) -> VersionMismatch | None:
    if (hello.protocol, hello.version, hello.python) == (VERSION, core.policy.version, core.policy.python):
        return None
    return VersionMismatch(
        f"the worker on {hello.host} has gridengine {hello.version} (protocol {hello.protocol}) on Python {hello.python}, "
        f"the dispatcher gridengine {core.policy.version} (protocol {VERSION}) on Python {core.policy.python}",
        host=hello.host,
        job=started.handle.id if started is not None else None,
        log=hello.log or None,
        hint="install the same versions on both sides, or set python=",
    )


def goodbye(core: DispatchState, worker: Worker, message: Goodbye, buffers: Payload, now: float) -> None:
    """Who says goodbye has told all its results before: only the calls that its runners were in can be to blame.

    Whether they are, when somebody else ended the worker, is the batch system's to say, and it says it a little later.
    """
    worker.suspects = worker.under_way()
    farewell = f"left ({message.reason})"
    started = worker.started
    awaited = core.policy.pooled and started is not None and started.ended_at is None and worker.pool.fleet.knows(started)
    if message.reason == TERMINATED and awaited and worker.runs and worker.phase is not Phase.STOPPING:
        worker.farewell, worker.stopping_since = farewell, now
        worker.enter(Phase.STOPPING)
        worker.pool.place(worker)
    else:
        lose(core, worker, farewell, now)


def launched(core: DispatchState, event: Launched, now: float) -> None:
    """The scheduler has started workers, some of which may have called already."""
    pool = core.pool_for(event.demand)
    for id, started in pool.fleet.launched(event.handles, now):
        worker = core.workers.get(id)
        if worker is not None:
            worker.started = started
            _move(core, worker, pool)
    if core.closing:
        core.withdraw_expected()
    if not event.handles:
        pool.fleet.hold_back(now)
    core.scale(now)


def _move(core: DispatchState, worker: Worker, pool: WorkerPool) -> None:
    """A worker called home before it was known for whom it was launched."""
    if worker.pool is not pool:
        worker.pool.leave(worker)
        worker.pool = pool
        pool.join(worker)
        pool.place(worker)


def launch_failed(core: DispatchState, event: LaunchFailed, now: float) -> None:
    """The scheduler has started none."""
    pool = core.pool_for(event.demand)
    pool.fleet.asked = 0
    if event.for_now or pool.workers or pool.fleet.expected:
        pool.fleet.hold_back(now)
        core.effects.append(Warn(f"no workers were started{' for now' if event.for_now else ''}: {event.error.message}"))
    else:
        core.give_up(event.error, now, pool)


def polled(core: DispatchState, event: Polled, now: float) -> None:
    """The scheduler's word on workers."""
    for pool in list(core.pools.values()):
        for started in pool.fleet.polled(event.reports, now):
            if started.worker is None and pool.fleet.knows(started):
                start_failed(core, pool, started, now)
    core.scale(now)


def start_failed(core: DispatchState, pool: WorkerPool, started: StartedWorker, now: float) -> None:
    """A launched worker ended and never called home."""
    error = pool.fleet.start_failed(started, now)
    if error is not None and pool.workers:
        core.effects.append(Warn(error.message))
    elif error is not None:
        core.give_up(error, now, pool)


def look_after(core: DispatchState, worker: Worker, now: float) -> None:
    """See whether a worker is still there, and still needed."""
    started, silence = worker.started, now - worker.heard_at
    if started is not None and started.ended_at is not None and now - max(started.ended_at, worker.heard_at) > SETTLE_SECONDS:
        reason = started.report.reason if started.report is not None else ""
        lose(core, worker, f"ended: {reason}" if reason else "ended", now)
    elif worker.phase is Phase.STOPPING and now - worker.stopping_since > LEAVE_SECONDS:
        dismiss(core, worker, worker.farewell or "does not leave", now)
    elif started is not None and started.state is TaskState.SUSPENDED:
        worker.heard_at = now
        set_aside(core, worker)
    elif silence > core.policy.lease_seconds + 2 * core.policy.beat_seconds:
        dismiss(core, worker, f"has not been heard of for {silence:.0f} s", now)
    elif silence > 3 * core.policy.beat_seconds:
        set_aside(core, worker)
    elif worker.phase is Phase.READY and not worker.batches and now - worker.idle_since >= core.policy.idle_seconds:
        stop(core, worker, now)


def set_aside(core: DispatchState, worker: Worker) -> None:
    """Give a worker nothing more until it is heard again."""
    if worker.phase is Phase.READY:
        worker.enter(Phase.SILENT)
        worker.pool.place(worker)


def stop(core: DispatchState, worker: Worker, now: float) -> None:
    """Tell a worker to leave."""
    worker.enter(Phase.STOPPING)
    worker.stopping_since = now
    worker.pool.place(worker)
    core.effects.append(Send(worker.id, Stop()))


def dismiss(core: DispatchState, worker: Worker, reason: str, now: float) -> None:
    """Do without a worker that may still be there: its calls go elsewhere, so its cluster task must end."""
    if worker.started is not None:
        core.effects += worker.pool.fleet.withdraw([worker.started])
    lose(core, worker, reason, now)


def lose(core: DispatchState, worker: Worker, reason: str, now: float) -> None:
    """A worker is no more: what it was given waits again, or has been tried often enough.

    With `suspects` only the first open calls of these runs are charged with an attempt, else all the worker held; and none when the
    batch system says that they are not to blame.
    """
    suspects = worker.suspects
    worker.enter(Phase.GONE)
    del core.workers[worker.id]
    worker.pool.leave(worker)
    _forget_launch(core, worker.id, worker.started, worker.pool)
    core.effects.append(Lost(worker.id))
    for digest in worker.functions:
        core.functions[digest].workers.discard(worker.id)
    for run in reversed(list(worker.runs.values())):
        core.end_run(run)
        span = replace(run.span, start=run.done)
        if span.open.cancelled or (suspects is not None and run.number not in suspects):
            core.wait_or_cancel(span)
            continue
        if suspects is not None and span.calls > 1:
            core.wait_or_cancel(replace(span, start=span.start + 1))
            span = replace(span, stop=span.start + 1)
        core.remember(run, run.done, now, f"the worker {reason}")
        _retry_lost(core, worker, span, reason)
    for pool in list(core.pools.values()):
        core.hand_out(now, pool)
    core.scale(now)


def _retry_lost(core: DispatchState, worker: Worker, span: Span, reason: str) -> None:
    report = worker.started.report if worker.started is not None else None
    fault = report.fault if report is not None else None
    if report is not None and report.blameless:
        core.wait_or_cancel(span)
    elif span.attempt <= span.open.task.retries and fault is not TimeoutError:
        core.again(span, out_of_memory=fault is OutOfMemory)
    else:
        error = blame.why_lost(worker, span, reason, report)
        core.settle(span, span.start, span.stop, error=error, exitcode=-signal.SIGKILL)
