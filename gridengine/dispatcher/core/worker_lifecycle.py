"""The workers' life in the core: who calls home, who is looked after, who leaves and who is lost.
Sans-I/O, functions over the core.
"""

from __future__ import annotations

import signal
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gridengine.dispatcher.core import failures
from gridengine.dispatcher.core.events import (
    Explained,
    Grant,
    Launched,
    LaunchFailed,
    Lost,
    Polled,
    Send,
    Warn,
)
from gridengine.dispatcher.core.model import Phase, SlotGroup, Span, Worker
from gridengine.dispatcher.core.policy import spare_of
from gridengine.dispatcher.core.provisioner import LaunchedWorker as StartedWorker
from gridengine.dispatcher.core.provisioner import keys_of
from gridengine.dispatcher.core.task_queue import TaskQueue
from gridengine.errors import OutOfMemory, TimeoutError, VersionMismatch
from gridengine.resources.base import is_nothing
from gridengine.resources.kinds import Cores
from gridengine.schedulers.launcher import WorkerStatus
from gridengine.serialize.payload import Payload
from gridengine.wire.messages import TERMINATED, VERSION, Goodbye, Hello, Refuse, Stop, Welcome

if TYPE_CHECKING:
    from gridengine.dispatcher.core.state import StateMachine

SETTLE_SECONDS = 0.5
LEAVE_SECONDS = 10.0
YIELD_SECONDS = 0.5
"""How long a worker with nothing to do is kept where calls of another demand may wait for its
place.
"""
WHOLE_LIFE = 0.8
"""A call that had more than this part of a worker's life, and the worker's walltime was over, is
not to be tried for ever.
"""


def hello(core: StateMachine, id: bytes, hello: Hello, now: float) -> None:
    """A worker calls home: it is taken in, or refused."""
    if id in core.workers:
        return
    if hello.run_id != core.policy.run_id or hello.slots < 1:
        _refuse(
            core,
            id,
            f"this dispatcher's run is {core.policy.run_id}; the worker's is {hello.run_id}, with "
            f"{hello.slots} slots",
        )
        return
    keys = keys_of(hello.log, hello.pid)
    withdrawn = any(key in core.withdrawn for key in keys)
    pool, started = (core.common, None) if withdrawn else _recognise(core, id, keys)
    mismatch = _mismatch(core, hello, started)
    if mismatch is not None:
        _refuse(core, id, mismatch.message)
        _forget_launch(core, id, started, pool)
        pool.provisioner.hold_back(now)
        if not core.workers:
            core.give_up(mismatch, now)
        return
    pool.provisioner.welcomed()
    core.workers[id] = worker = Worker(
        id, hello, now, now, pool, started=started, since=now, generation=core.generation
    )
    pool.workers += 1
    core.resting.add(id)
    core.effects.append(Send(id, Welcome()))
    if withdrawn or core.closing:
        stop(core, worker, now)
        return
    if (
        started is not None or sum(home.provisioner.asked > 0 for home in core.homes) < 2
    ):  # else it may be any of them, and waits to be known
        _settle_in(core, worker, now)
    core.make_room(worker, now)


def _settle_in(core: StateMachine, worker: Worker, now: float) -> None:
    """Note for how long a worker will be there, and give it its seat; where workers are shared,
    what it holds is lent as it is wanted.
    """
    stay = core.policy.stay(worker.pool.provisioner.demand.resources)
    worker.leave_at = now + stay - worker.hello.elapsed
    if core.allocator is not None:
        core.allocator.open(worker, now)
    else:
        _seat(core, worker, now)


def _seat(core: StateMachine, worker: Worker, now: float) -> None:
    pool, asked = worker.pool, worker.pool.demand.request
    if is_nothing(asked):
        pool.join(SlotGroup(worker, pool, worker.hello.slots))
        return
    try:
        given = asked.holder()._alloc(asked)
    except BaseException as error:  # a user's own kind
        core.fail(pool, failures.cannot_give(asked, error))
        stop(core, worker, now)
        return
    seat = SlotGroup(worker, pool, 1, core.new_lane())
    pool.join(seat)
    cores = given.get(Cores)
    core.effects.append(
        Grant(worker.id, seat.allocation, given, worker.hello.slots if cores is None else cores.N)
    )


def _recognise(
    core: StateMachine, id: bytes, keys: list[str]
) -> tuple[TaskQueue, StartedWorker | None]:
    """Return the pool of a worker that calls home, and its launch, if that is known yet."""
    for pool in core.homes:
        started = pool.provisioner.called_home(id, keys)
        if started is not None:
            return pool, started
    core.strangers.update(dict.fromkeys(keys, id))
    return next((pool for pool in core.homes if pool.provisioner.asked), core.common), None


def _forget_launch(
    core: StateMachine, id: bytes, started: StartedWorker | None, pool: TaskQueue
) -> None:
    if started is not None:
        pool.provisioner.drop(started)
    for key in [key for key, stranger in core.strangers.items() if stranger == id]:
        del core.strangers[key]


def _refuse(core: StateMachine, id: bytes, reason: str) -> None:
    core.effects += [Send(id, Refuse(reason)), Lost(id)]


def _mismatch(
    core: StateMachine, hello: Hello, started: StartedWorker | None
) -> VersionMismatch | None:
    if (hello.protocol, hello.version, hello.python) == (
        VERSION,
        core.policy.version,
        core.policy.python,
    ):
        return None
    return VersionMismatch(
        f"the worker on {hello.host} has gridengine {hello.version} (protocol {hello.protocol}) on "
        f"Python {hello.python}, "
        f"the dispatcher gridengine {core.policy.version} (protocol {VERSION}) on Python "
        f"{core.policy.python}",
        host=hello.host,
        job=started.handle.id if started is not None else None,
        log=hello.log or None,
        hint="install the same versions on both sides, or set python=",
    )


def goodbye(
    core: StateMachine, worker: Worker, message: Goodbye, buffers: Payload, now: float
) -> None:
    """Who says goodbye has told all its results before: only the calls that its runners were in can
    be to blame.

    Whether they are, when somebody else ended the worker, is the batch system's to say, and it says
    it a little later.
    """
    worker.suspects = worker.under_way()
    farewell = f"left ({message.reason})"
    started = worker.started
    awaited = (
        core.policy.pooled
        and started is not None
        and started.ended_at is None
        and worker.pool.provisioner.knows(started)
    )
    if (
        message.reason == TERMINATED
        and awaited
        and worker.runs
        and worker.phase is not Phase.STOPPING
    ):
        worker.farewell, worker.stopping_since = farewell, now
        _leave_to_its_own(core, worker)
    else:
        lose(core, worker, farewell, now)


def launched(core: StateMachine, event: Launched, now: float) -> None:
    """The scheduler has started workers, some of which may have called already."""
    pool = core.home_of(event.demand)
    for id, started in pool.provisioner.launched(event.handles, now):
        worker = core.workers.get(id)
        if worker is not None:
            worker.started = started
            _move(core, worker, pool, now)
    if core.closing:
        core.withdraw_expected()
    if not event.handles:
        pool.provisioner.hold_back(now)
    core.scale(now)


def _move(core: StateMachine, worker: Worker, pool: TaskQueue, now: float) -> None:
    """A worker called home before it was known for whom it was launched."""
    if worker.pool is not pool:
        worker.pool.workers -= 1
        pool.workers += 1
        worker.pool = pool
        for seat in list(worker.seats):
            seat.pool.leave(seat)
            seat.pool = pool
            pool.join(seat)
            pool.place(seat)
    if core.allocator is None and not worker.seats and worker.phase is Phase.READY:
        _settle_in(core, worker, now)
        core.make_room(worker, now)


def launch_failed(core: StateMachine, event: LaunchFailed, now: float) -> None:
    """The scheduler has started none."""
    pool = core.home_of(event.demand)
    pool.provisioner.asked = 0
    pool.provisioner.reason = event.error.message
    if event.for_now or pool.workers or pool.provisioner.expected:
        pool.provisioner.hold_back(now)
        core.effects.append(
            Warn(
                f"no workers were started{' for now' if event.for_now else ''}: "
                f"{event.error.message}"
            )
        )
    else:
        core.give_up(event.error, now, pool)


def polled(core: StateMachine, event: Polled, now: float) -> None:
    """The scheduler's word on workers."""
    for pool in core.homes:
        for started in pool.provisioner.polled(event.reports, now):
            if started.worker is None and pool.provisioner.knows(started):
                start_failed(core, pool, started, now)
        error = None if pool.workers else pool.provisioner.impossible()
        if error is not None:
            core.give_up(error, now, pool)
    core.scale(now)


def explained(core: StateMachine, event: Explained, now: float) -> None:
    """The batch system says what a queued worker waits for."""
    for pool in core.homes:
        pool.provisioner.explained(event.handle, event.words)


def start_failed(core: StateMachine, pool: TaskQueue, started: StartedWorker, now: float) -> None:
    """A launched worker ended and never called home."""
    error = pool.provisioner.start_failed(started, now)
    if error is not None and pool.workers:
        core.effects.append(Warn(error.message))
    elif error is not None:
        core.give_up(error, now, pool)


def look_after(core: StateMachine, now: float) -> None:
    """See whether the workers are still there, and still needed."""
    crowded_out, heard_since = _crowded_out(core), now - 3 * core.policy.beat_seconds
    for worker in list(core.workers.values()):
        started = worker.started
        there = started is None or (
            started.ended_at is None and started.state is not WorkerStatus.SUSPENDED
        )
        if (
            there
            and worker.batches
            and worker.phase is Phase.READY
            and worker.heard_at >= heard_since
            and now < worker.leave_at
        ):
            continue  # it works, as most do
        _look_after(core, worker, crowded_out, now)


def _look_after(
    core: StateMachine, worker: Worker, crowded_out: list[TaskQueue], now: float
) -> None:
    started, silence = worker.started, now - worker.heard_at
    if (
        started is not None
        and started.ended_at is not None
        and now - max(started.ended_at, worker.heard_at) > SETTLE_SECONDS
    ):
        reason = started.report.reason if started.report is not None else ""
        lose(core, worker, f"ended: {reason}" if reason else "ended", now)
    elif worker.phase is Phase.STOPPING and now - worker.stopping_since > LEAVE_SECONDS:
        dismiss(core, worker, worker.farewell or "does not leave", now)
    elif started is not None and started.state is WorkerStatus.SUSPENDED:
        worker.heard_at = now
        set_aside(core, worker)
    elif silence > core.policy.lease_seconds + 2 * core.policy.beat_seconds:
        dismiss(core, worker, f"has not been heard of for {silence:.0f} s", now)
    elif silence > 3 * core.policy.beat_seconds:
        set_aside(core, worker)
    elif (
        worker.phase is Phase.READY
        and not worker.batches
        and _is_superfluous(core, worker, crowded_out, now)
    ):
        stop(core, worker, now)
    elif worker.phase is Phase.READY and now >= worker.leave_at:
        _relieve(core, worker, now)


def _is_superfluous(
    core: StateMachine, worker: Worker, crowded_out: list[TaskQueue], now: float
) -> bool:
    """Return whether a worker that has nothing to do has had nothing for long, is in others' way,
    or has too little time left.
    """
    late = (
        worker.pool.calls > 0
        if core.allocator is None
        else now >= worker.leave_at - spare_of(worker.leave_at - worker.since)
    )
    idle = now - worker.idle_since
    if idle >= core.policy.idle_seconds or (
        idle >= YIELD_SECONDS and any(pool is not worker.pool for pool in crowded_out)
    ):
        return True
    return late and not worker.pool.has_time(worker, now)


def _crowded_out(core: StateMachine) -> list[TaskQueue]:
    """Return queues whose calls wait for workers that there is no room for, or that `max_workers`
    does not allow; two tell enough.
    """
    if core.allocator is not None:
        return []
    short = (
        pool
        for pool in core.pools.values()
        if pool.calls
        and not pool.idle
        and (pool.provisioner.expected or not pool.provisioner.asked)
    )
    return list(islice(short, 2))


def _relieve(core: StateMachine, worker: Worker, now: float) -> None:
    """Have a worker leave whose walltime is nearly over. Its calls go elsewhere, uncharged; those
    that had all of it have failed.
    """
    for run in reversed(list(worker.runs.values())):
        core.end_run(run)
        span = replace(run.span, start=run.done)
        if not span.open.cancelled and now - run.touched > WHOLE_LIFE * (now - worker.since):
            core.wait_or_cancel(replace(span, start=span.start + 1))
            core.remember(run, run.done, now, "the walltime of its worker was over")
            error = failures.why_relieved(worker, span)
            core.settle(span, span.start, span.start + 1, error=error, exitcode=-signal.SIGKILL)
        else:
            core.wait_or_cancel(span)
    stop(core, worker, now)
    for pool in list(core.pools.values()):
        core.hand_out(now, pool)
    core.scale(now)


def set_aside(core: StateMachine, worker: Worker) -> None:
    """Give a worker nothing more until it is heard again."""
    if worker.phase is Phase.READY:
        worker.enter(Phase.SILENT)
        _unlist(core, worker)
        if core.allocator is not None:
            core.allocator.pause(worker)


def wake(core: StateMachine, worker: Worker) -> None:
    """A worker that was silent is heard again."""
    worker.enter(Phase.READY)
    if not worker.batches:
        core.resting.add(worker.id)
    if core.allocator is not None:
        core.allocator.wake(worker)


def _unlist(core: StateMachine, worker: Worker) -> None:
    core.resting.discard(worker.id)
    for seat in worker.seats:
        seat.pool.unlist(seat)


def stop(core: StateMachine, worker: Worker, now: float) -> None:
    """Tell a worker to leave."""
    worker.stopping_since = now
    _leave_to_its_own(core, worker)
    core.effects.append(Send(worker.id, Stop()))


def _leave_to_its_own(core: StateMachine, worker: Worker) -> None:
    """Give a worker nothing any more."""
    worker.enter(Phase.STOPPING)
    _unlist(core, worker)
    if core.allocator is not None:
        core.allocator.shut(worker)


def dismiss(core: StateMachine, worker: Worker, reason: str, now: float) -> None:
    """Do without a worker that may still be there: its calls go elsewhere, so its cluster task must
    end.
    """
    if worker.started is not None:
        core.effects += worker.pool.provisioner.withdraw([worker.started])
    lose(core, worker, reason, now)


def lose(core: StateMachine, worker: Worker, reason: str, now: float) -> None:
    """A worker is no more: what it was given waits again, or has been tried often enough.

    With `suspects` only the first open calls of these runs are charged with an attempt, else all
    the worker held; and none when the batch system says that they are not to blame.
    """
    suspects = worker.suspects
    worker.enter(Phase.GONE)
    del core.workers[worker.id]
    worker.pool.workers -= 1
    core.resting.discard(worker.id)
    if core.allocator is not None:
        core.allocator.shut(worker)
    for seat in list(worker.seats):
        seat.pool.leave(seat)
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


def _retry_lost(core: StateMachine, worker: Worker, span: Span, reason: str) -> None:
    report = worker.started.report if worker.started is not None else None
    fault = report.fault if report is not None else None
    grown = fault is OutOfMemory and core.may_grow(span)
    if report is not None and report.blameless:
        core.wait_or_cancel(span)
    elif (
        span.attempt <= span.open.task.retries
        and fault is not TimeoutError
        and (grown or fault is not OutOfMemory or not core.allocator)
    ):
        core.again(span, out_of_memory=grown)
    else:
        error = failures.why_lost(worker, span, reason, report)
        core.settle(span, span.start, span.stop, error=error, exitcode=-signal.SIGKILL)
