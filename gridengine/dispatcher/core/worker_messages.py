"""What workers answer for the runs they were given, and what comes of it. Sans-I/O, functions over
the core.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gridengine.dispatcher.core import failures, worker_lifecycle
from gridengine.dispatcher.core.events import Send
from gridengine.dispatcher.core.model import Run, Worker
from gridengine.dispatcher.core.tasks import TaskMessage, TaskStarted
from gridengine.resources.demand import ANY
from gridengine.serialize.payload import Payload
from gridengine.wire.messages import (
    CANCELLED,
    CRASH,
    MEMORY,
    OUT_OF_MEMORY,
    RAISED,
    RETRYABLE,
    VALUES,
    Crashed,
    Goodbye,
    Pushed,
    Refuse,
    Result,
    Results,
    Returned,
    Shortened,
    Started,
    portions,
)

if TYPE_CHECKING:
    from gridengine.dispatcher.core.state import StateMachine

MOST_FRUITLESS = 3


def results(
    core: StateMachine, worker: Worker, message: Results, buffers: Payload, now: float
) -> None:
    """Outcomes have come."""
    for result, payload in portions(message.results, buffers):
        run = worker.runs.get(result.run)
        if run is None or result.stop <= run.done:
            continue
        if not _fits(result, run):
            _breach(
                core,
                worker,
                f"calls {result.start} to {result.stop} of run {result.run} cannot be answered so",
                now,
            )
            return
        worker.fruitless = 0
        _result(core, run, result, payload, now)
    core.make_room(worker, now)


def _result(core: StateMachine, run: Run, result: Result, payload: Payload, now: float) -> None:
    span = run.span
    span.open.measured(result.stop - result.start, result.seconds)
    run.done, run.touched, run.batch.heard = result.stop, now, now
    if run.done == span.stop:
        core.end_run(run)
    stdout = stderr = b""
    if result.output:
        *payload, out, err = payload
        stdout, stderr = bytes(out), bytes(err)
    raised = result.status != VALUES
    if not raised and span.demand is not ANY:
        core.learn(run.seat.pool, result.seconds / (result.stop - result.start))
    again = result.status == RETRYABLE or (result.status == OUT_OF_MEMORY and core.may_grow(span))
    if span.open.task.watched or result.status in (RETRYABLE, OUT_OF_MEMORY):
        core.remember(
            run, result.start, now, _OUTCOMES[result.status], int(raised), result.peak_memory
        )
    if again and span.attempt <= span.open.task.retries and not span.open.cancelled:
        core.again(
            replace(span, start=result.start, stop=result.stop),
            out_of_memory=result.status == OUT_OF_MEMORY,
        )
        return
    outcome = {
        "payload": payload,
        "raised": raised,
        "exitcode": int(raised),
        "stdout": stdout,
        "stderr": stderr,
        "seconds": result.seconds,
    }
    core.settle(span, result.start, result.stop, **outcome)


def crashed(
    core: StateMachine, worker: Worker, message: Crashed, buffers: Payload, now: float
) -> None:
    """A runner died or was ended in a call, or left one out that was to be ended."""
    run = worker.runs.get(message.run)
    if run is None:
        return
    if message.reason not in failures.OUTCOMES or not (
        message.index == -1 or run.done <= message.index < run.span.stop
    ):
        _breach(
            core,
            worker,
            f"run {message.run} cannot have ended at call {message.index} by {message.reason!r}",
            now,
        )
        return
    if message.index == -1 and message.reason != CANCELLED:
        returned(core, worker, Returned([message.run]), (), now)
        return
    worker.fruitless = 0
    core.end_run(run)
    span, index = run.span, message.index
    if span.open.cancelled or index == -1:
        if index != -1:
            core.remember(
                run,
                index,
                now,
                failures.OUTCOMES[message.reason](message.exitcode),
                message.exitcode,
                message.peak_memory,
            )
        who = worker if index != -1 else None
        core.settle_cancelled(
            replace(span, start=run.done), -message.exitcode, *map(bytes, buffers), worker=who
        )
    else:
        core.remember(
            run,
            index,
            now,
            failures.OUTCOMES[message.reason](message.exitcode),
            message.exitcode,
            message.peak_memory,
        )
        core.wait_or_cancel(replace(span, start=index + 1))
        core.wait_or_cancel(replace(span, start=run.done, stop=index))
        grown = message.reason == MEMORY and core.may_grow(span)
        stuck = message.reason == MEMORY and span.open.task.escalate_memory > 1 and not grown
        if (
            message.reason in (CRASH, MEMORY)
            and span.attempt <= span.open.task.retries
            and not stuck
        ):
            core.again(replace(span, start=index, stop=index + 1), out_of_memory=grown)
        else:
            stdout, stderr = map(bytes, buffers)
            error = failures.why_crashed(run, index, message)
            core.settle(
                span,
                index,
                index + 1,
                error=error,
                exitcode=message.exitcode,
                stdout=stdout,
                stderr=stderr,
            )
    core.make_room(worker, now)


def returned(
    core: StateMachine, worker: Worker, message: Returned, buffers: Payload, now: float
) -> None:
    """What a worker gives back waits again."""
    runs = [worker.runs[number] for number in reversed(message.runs) if number in worker.runs]
    worker.fruitless += any(not run.recalled for run in runs)
    if worker.fruitless > MOST_FRUITLESS:
        worker.pool.provisioner.hold_back(now)
        words = message.reason or "it gave back all it was given"
        worker_lifecycle.dismiss(core, worker, f"could run nothing: {words}", now)
        return
    for run in runs:
        core.end_run(run)
        core.wait_or_cancel(replace(run.span, start=run.done))
    core.make_room(worker, now)


def shortened(
    core: StateMachine, worker: Worker, message: Shortened, buffers: Payload, now: float
) -> None:
    """The rest of a run was called back, and waits again."""
    run = worker.runs.get(message.run)
    if run is None or not run.span.start < message.stop < run.span.stop:
        return
    if message.stop < run.done:
        _breach(core, worker, f"run {message.run} was answered beyond call {message.stop}", now)
        return
    core.wait_or_cancel(replace(run.span, start=message.stop))
    run.span = replace(run.span, stop=message.stop)
    if run.done == message.stop:
        core.end_run(run)
    core.make_room(worker, now)


def started(
    core: StateMachine, worker: Worker, message: Started, buffers: Payload, now: float
) -> None:
    """A watched run has begun."""
    run = worker.runs.get(message.run)
    if run is not None:
        run.since = now
        core.effects.append(
            TaskStarted(run.span.open.task.id, message.pid, worker.hello.host, run.span.attempt)
        )


def pushed(
    core: StateMachine, worker: Worker, message: Pushed, buffers: Payload, now: float
) -> None:
    """A watched run has an intermediate value."""
    run = worker.runs.get(message.run)
    if run is not None:
        core.effects.append(TaskMessage(run.span.open.task.id, buffers))


def _breach(core: StateMachine, worker: Worker, what: str, now: float) -> None:
    """A worker broke the protocol. It may not go on: a call would wait for ever for an answer that
    fits.
    """
    core.effects.append(Send(worker.id, Refuse(what)))
    worker_lifecycle.dismiss(core, worker, f"broke the protocol: {what}", now)


def _fits(result: Result, run: Run) -> bool:
    """Return whether a result answers the next calls of a run, as the protocol has it."""
    return (
        result.start == run.done
        and result.stop <= run.span.stop
        and (
            result.status == VALUES
            or (
                result.status in (RAISED, RETRYABLE, OUT_OF_MEMORY)
                and result.stop == result.start + 1
            )
        )
        and result.buffers > 2 * result.output
        and math.isfinite(result.seconds)
    )


_OUTCOMES = {
    VALUES: "it returned",
    RAISED: "it raised an exception",
    RETRYABLE: "it raised an exception of those to be retried",
    OUT_OF_MEMORY: "it ran out of memory",
}

ANSWERS: dict[type, Callable[[StateMachine, Worker, Any, Payload, float], None]] = {
    Results: results,
    Crashed: crashed,
    Returned: returned,
    Shortened: shortened,
    Started: started,
    Pushed: pushed,
    Goodbye: worker_lifecycle.goodbye,
}
