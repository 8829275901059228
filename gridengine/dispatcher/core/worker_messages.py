"""What workers say of the runs that they were assigned, and what becomes of their calls."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from msgspec.structs import replace

from gridengine.dispatcher.core import failures, growth, kept_results, nested, worker_lifecycle
from gridengine.dispatcher.core.calls import QUICK_SECONDS, EndedCall, Span
from gridengine.dispatcher.core.events import Send
from gridengine.dispatcher.core.model import Run, Worker
from gridengine.dispatcher.core.outcomes import (
    end_run,
    may_grow,
    record_attempt,
    requeue,
    retry,
    settle,
    settle_cancelled,
    settle_failed,
)
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.tasks import TaskMessage, TaskStarted
from gridengine.resources.demand import ANY
from gridengine.serialize.kept_payload import KeptPayload
from gridengine.serialize.payload import Payload
from gridengine.wire.messages import (
    CANCELLED,
    CRASH,
    MEMORY,
    NO_INPUT,
    OUT_OF_MEMORY,
    PROCESS_LEFT,
    RAISED,
    RETRYABLE,
    VALUES,
    Crashed,
    Fetched,
    Goodbye,
    Measured,
    Pushed,
    Refuse,
    Result,
    Results,
    Resumes,
    Returned,
    Shortened,
    Started,
    Waits,
)

MOST_FRUITLESS = 3
"""How often in a row a worker may give back all it was assigned."""


def results(
    state: CoreState, worker: Worker, message: Results, buffers: Payload, now: float
) -> None:
    """Take in the results of calls."""
    offset, buffers = 0, tuple(buffers)  # what is made of these the collector need not look at
    runs = worker.runs
    for result in message.results:
        payload = buffers[offset : offset + result.buffers]
        offset += result.buffers
        run = runs.get(result.run)
        if run is None or result.stop <= run.done:
            kept_results.drop_late(state, worker, result)
            continue
        if not _fits(result, run):
            words = f"calls {result.start} to {result.stop} of run {result.run} cannot be answered"
            _breach(state, worker, f"{words} so", now)
            return
        worker.fruitless = 0
        _result(state, run, result, payload, now)
    if not worker.batches:
        worker_lifecycle.finished_batch(state, worker, now)


def _result(state: CoreState, run: Run, result: Result, payload: Payload, now: float) -> None:
    span, calls, seconds = run.span, result.stop - result.start, result.seconds
    one, raised = span.open_task, result.status != VALUES
    function, pace = one.function, one.pace
    pace.measured(calls, seconds)
    function.pace, counts = pace, function.counts
    counts.calls += calls
    counts.seconds += seconds
    if seconds > QUICK_SECONDS * calls:
        counts.note_seconds(seconds / calls, calls, result.peak_memory)
        sample = state.sample
        sample.left_out = left_out = sample.left_out + 1
        if left_out >= sample.every:
            _sample(state, run, result, now)
    if result.stop == span.stop:
        end_run(state, run)
    else:
        run.slot_group.count_running(one, -calls)
        run.done = result.stop
        run.touched = now
    if run.batch.runs:
        run.batch.answered_at = now
    stdout = stderr = b""
    if result.held is not None:
        payload = KeptPayload(*result.held, run.worker.id)
    if result.output:
        *payload, out, err = payload
        stdout, stderr = bytes(out), bytes(err)
    if span.demand is not ANY and not raised:
        state.learn_seconds(run.slot_group.queue, seconds / calls)
    if raised or one.task.watched:
        outcome = _OUTCOMES[result.status]
        record_attempt(run, result.start, now, outcome, int(raised), result.peak_memory)
    if calls < span.stop - span.start:
        span = replace(span, start=result.start, stop=result.stop)
    if raised and _is_retried(state, span, result):
        retry(state, span, out_of_memory=result.status == OUT_OF_MEMORY)
        return
    settle(state, span, payload, raised, None, int(raised), stdout, stderr, False, seconds)


def _sample(state: CoreState, run: Run, result: Result, now: float) -> None:
    task, start, worker = run.span.open_task.task, result.start, run.worker
    ended = EndedCall(
        f"{task.id}.{start}",
        failures.name_of(run.span, start),
        run.span.open_task.function.function.name,
        worker.hello.host,
        worker.job,
        worker.hello.pid,
        worker.hello.log,
        now,
        result.seconds,
        result.stop - start,
        result.status != VALUES,
    )
    state.sample.add(ended)


def _is_retried(state: CoreState, span: Span, result: Result) -> bool:
    again = result.status == RETRYABLE or (result.status == OUT_OF_MEMORY and may_grow(state, span))
    one = span.open_task
    return again and span.attempt <= one.task.retries and not one.cancelled_by(span.start)


def crashed(
    state: CoreState, worker: Worker, message: Crashed, buffers: Payload, now: float
) -> None:
    """A runner died or was ended in a call, or left out a run that was to be ended."""
    run, index = worker.runs.get(message.run), message.index
    if run is None:
        return
    if message.reason not in failures.OUTCOMES or not (
        index == -1 or run.done <= index < run.span.stop
    ):
        words = f"run {message.run} cannot have ended at call {index} by {message.reason!r}"
        _breach(state, worker, words, now)
        return
    if index == -1 and message.reason != CANCELLED:
        returned(state, worker, Returned([message.run]), (), now)
        return
    worker.fruitless = 0
    end_run(state, run)
    if index != -1:
        outcome = failures.OUTCOMES[message.reason](message.exitcode)
        record_attempt(run, index, now, outcome, message.exitcode, message.peak_memory)
        requeue(state, replace(run.span, start=index + 1))
        _unanswered_calls(state, run, message)
        _crashed_call(state, run, message, buffers)
    else:
        requeue(state, run.rest)
    worker_lifecycle.finished_batch(state, worker, now)


def _unanswered_calls(state: CoreState, run: Run, message: Crashed) -> None:
    """Have those before the call in progress, whose results went with their runner, run again where
    they may.
    """
    calls = replace(run.span, start=run.done, stop=message.index)
    if run.span.open_task.task.retries:
        requeue(state, calls)
    elif calls.calls:
        error = failures.why_crashed(run, run.done, message)
        settle_failed(state, calls, error, message.exitcode)


def _crashed_call(state: CoreState, run: Run, message: Crashed, buffers: Payload) -> None:
    """Decide on the one call that its runner was in when it died."""
    index, reason, retries = message.index, message.reason, run.span.open_task.task.retries
    call, exitcode = replace(run.span, start=index, stop=index + 1), message.exitcode
    output: dict[str, Any] = dict(zip(("stdout", "stderr"), map(bytes, buffers), strict=True))
    if call.open_task.cancelled_by(index):
        settle_cancelled(state, call, exitcode, run.worker, **output)
        return
    if reason == CANCELLED and retries:  # for the sake of another call
        requeue(state, call)
        return
    grown = reason == MEMORY and may_grow(state, call)
    stuck = reason == MEMORY and call.open_task.task.escalate_memory > 1 and not grown
    if reason in (CRASH, MEMORY) and call.attempt <= retries and not stuck:
        retry(state, call, out_of_memory=grown)
        return
    error = failures.why_crashed(run, index, message)
    error.step = message.step
    settle(state, call, error=error, exitcode=exitcode, **output)


def returned(
    state: CoreState, worker: Worker, message: Returned, buffers: Payload, now: float
) -> None:
    """Have what a worker gives back wait again."""
    runs = [worker.runs[number] for number in reversed(message.runs) if number in worker.runs]
    left = message.reason in (PROCESS_LEFT, NO_INPUT)
    worker.fruitless += not left and any(not run.recalled for run in runs)
    if worker.fruitless > MOST_FRUITLESS:
        worker.provisioner.hold_back(now)
        words = message.reason or "it gave back all it was given"
        worker_lifecycle.dismiss(state, worker, f"could run nothing: {words}", now)
        return
    for run in runs:
        end_run(state, run)
        requeue(state, run.rest)
    worker_lifecycle.finished_batch(state, worker, now)


def shortened(
    state: CoreState, worker: Worker, message: Shortened, buffers: Payload, now: float
) -> None:
    """Have the rest of a run, which was recalled, wait again."""
    run, stop = worker.runs.get(message.run), message.stop
    if run is None or not run.span.start < stop < run.span.stop:
        return
    if stop < run.done:
        _breach(state, worker, f"run {message.run} was answered beyond call {stop}", now)
        return
    rest = replace(run.span, start=stop)
    run.slot_group.count_running(rest.open_task, -rest.calls)
    run.span = replace(run.span, stop=stop)
    requeue(state, rest)
    if run.done == stop:
        end_run(state, run)
    worker_lifecycle.finished_batch(state, worker, now)


def started(
    state: CoreState, worker: Worker, message: Started, buffers: Payload, now: float
) -> None:
    """Note that a watched run has begun."""
    run = worker.runs.get(message.run)
    if run is not None:
        run.since = now
        task = run.span.open_task.task.id
        state.effects.append(TaskStarted(task, message.pid, worker.hello.host, run.span.attempt))


def pushed(state: CoreState, worker: Worker, message: Pushed, buffers: Payload, now: float) -> None:
    """Pass on a value that a watched run has pushed, or what calls have logged."""
    run = worker.runs.get(message.run)
    if run is not None:
        state.effects.append(TaskMessage(run.span.open_task.task.id, buffers, message.log))


def measured(
    state: CoreState, worker: Worker, message: Measured, buffers: Payload, now: float
) -> None:
    """Note what a worker measures, for who watches."""
    worker.measured, worker.measured_at = message, now
    worker.growth = growth.of_processes(worker.growth, message.runners)
    for figures in message.runners:
        run = worker.runs.get(figures.run)
        if run is not None:
            counts = run.span.open_task.function.counts
            counts.peak_memory = max(counts.peak_memory, figures.memory)
            grown = worker.growth[figures.pid].note((figures.run, figures.index), figures.memory)
            counts.grown_memory = max(counts.grown_memory, grown)
            if run.span.demand is not ANY:
                counts.asked_memory = max(counts.asked_memory, run.span.demand.memory_limit)


def _breach(state: CoreState, worker: Worker, what: str, now: float) -> None:
    """Dismiss a worker that broke the protocol: a call would wait for ever for a result that
    fits.
    """
    state.effects.append(Send(worker.id, Refuse(what)))
    worker_lifecycle.dismiss(state, worker, f"broke the protocol: {what}", now)


def _fits(result: Result, run: Run) -> bool:
    """Return whether a result is of the next calls of a run, as the protocol has it."""
    if not (
        result.start == run.done
        and result.stop <= run.span.stop
        and (result.status == VALUES or result.stop == result.start + 1)
        and -inf < result.seconds < inf
    ):
        return False
    if result.held is not None:
        return result.status == VALUES and kept_results.is_kept(run.span.open_task, result)
    return result.buffers > 2 * result.output and result.status in _OUTCOMES


_OUTCOMES = {
    VALUES: "it returned",
    RAISED: "it raised an exception",
    RETRYABLE: "it raised an exception of those to be retried",
    OUT_OF_MEMORY: "it ran out of memory",
}

HANDLERS: dict[type, Callable[[CoreState, Worker, Any, Payload, float], None]] = {
    Results: results,
    Crashed: crashed,
    Returned: returned,
    Shortened: shortened,
    Started: started,
    Pushed: pushed,
    Measured: measured,
    Waits: nested.waits,
    Resumes: nested.resumes,
    Fetched: kept_results.fetched,
    Goodbye: worker_lifecycle.goodbye,
}
"""By the type of a message: what handles it."""
