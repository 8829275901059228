"""Messages of workers about their runs, and what follows for the calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

from msgspec.structs import replace

from gridengine.dispatcher.core import (
    books,
    dependencies,
    nested,
    outcomes,
    pulls,
    worker_lifecycle,
)
from gridengine.dispatcher.core.events import Send, StateSaved
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.verdicts import Fault, judge
from gridengine.dispatcher.core.workers_and_queues import Run, Worker
from gridengine.requests import TaskBegan, TaskMessage
from gridengine.resources.demand import ANY
from gridengine.serialize.payload import Payload, PayloadAtWorker
from gridengine.status.figures import QUICK_SECONDS, EndedCall, of_processes
from gridengine.wire import messages

MOST_FRUITLESS = 3
"""A worker may give back all its calls at most this often in a row."""


def results(state: CoreState, worker: Worker, message: messages.Results, buffers: Payload) -> None:
    """Take in results of calls."""
    offset, buffers = 0, tuple(buffers)  # the garbage collector need not visit tuples of buffers
    runs = worker.runs
    for result in message.results:
        payload = buffers[offset : offset + result.buffers]
        offset += result.buffers
        run = runs.get(result.run)
        if run is None or result.stop <= run.done:
            dependencies.drop_late(state, worker, result)
            continue
        if not _fits(result, run):
            words = f"calls {result.start} to {result.stop} of run {result.run} cannot be answered"
            _breach(state, worker, f"{words} so")
            return
        worker.fruitless = 0
        _result(state, run, result, payload)
    if not worker.batches:
        worker_lifecycle.finished_batch(state, worker)


def _result(state: CoreState, run: Run, result: messages.Result, payload: Payload) -> None:
    span, calls, seconds = run.span, result.stop - result.start, result.seconds
    one, raised = span.open_task, result.status != messages.VALUES
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
            _sample(state, run, result)
    if result.stop == span.stop:
        outcomes.end_run(state, run)
    else:
        books.count_running(run.slot_group, one, -calls)
        run.done = result.stop
        run.touched = state.now
    if run.batch.runs:
        run.batch.answered_at = state.now
    stdout = stderr = b""
    if result.held is not None:
        payload = PayloadAtWorker(*result.held, run.worker.id)
    if result.output:
        *payload, out, err = payload
        stdout, stderr = bytes(out), bytes(err)
    if span.demand is not ANY and not raised:
        state.learn_seconds(run.slot_group.queue, seconds / calls)
    if raised or one.options.watched:
        outcome = _OUTCOMES[result.status]
        outcomes.record_attempt(state, run, result.start, outcome, int(raised), result.peak_memory)
    if calls < span.stop - span.start:
        span = replace(span, start=result.start, stop=result.stop)
    if result.status == messages.INTERRUPTED:
        worker_lifecycle.interrupted(state, run, span, payload)
        return
    if raised:
        verdict = judge(_RAISED[result.status], outcomes.facts_of(state, span))
        if verdict.again:
            outcomes.retry(state, span, grows=verdict.grows)
            return
    outcomes.settle(state, span, payload, raised, None, int(raised), stdout, stderr, False, seconds)


def _sample(state: CoreState, run: Run, result: messages.Result, died: str = "") -> None:
    one, start, worker = run.span.open_task, result.start, run.worker
    ended = EndedCall(
        function=one.function.function.name,
        worker=f"{worker.hello.host} {worker.job or worker.hello.pid}",
        seconds_ago=0.0,
        seconds=result.seconds,
        calls=result.stop - start,
        failed=result.status != messages.VALUES,
        id=f"{one.id}.{start}",
        call=outcomes.name_of(run.span, start),
        host=worker.hello.host,
        job=worker.job,
        log=worker.hello.log,
        died=died,
    )
    state.sample.add(ended, state.now)


def crashed(state: CoreState, worker: Worker, message: messages.Crashed, buffers: Payload) -> None:
    """Handle a crash: a runner died or was ended during a call, or the agent skipped a run that was
    to be ended.
    """
    run, index = worker.runs.get(message.run), message.index
    if run is None:
        return
    if message.reason not in outcomes.OUTCOMES or not (
        index == -1 or run.done <= index < run.span.stop
    ):
        words = f"run {message.run} cannot have ended at call {index} by {message.reason!r}"
        _breach(state, worker, words)
        return
    if index == -1 and message.reason != messages.CANCELLED:
        returned(state, worker, messages.Returned([message.run]), ())
        return
    worker.fruitless = 0
    outcomes.end_run(state, run)
    if index != -1:
        outcome = outcomes.OUTCOMES[message.reason](message.exitcode)
        outcomes.record_attempt(state, run, index, outcome, message.exitcode, message.peak_memory)
        seconds = state.now - max(run.touched, run.since)
        end = messages.Result(run.number, index, index + 1, messages.RAISED, seconds=seconds)
        _sample(state, run, end, died=outcome)
        outcomes.requeue(state, replace(run.span, start=index + 1))
        _ended_in(state, run, message, buffers)
    else:
        outcomes.requeue(state, run.rest)
    worker_lifecycle.finished_batch(state, worker)


def _ended_in(state: CoreState, run: Run, message: messages.Crashed, buffers: Payload) -> None:
    """Decide on the call that its runner was in when it died, and on the calls before it whose
    results died with the runner.
    """
    index, exitcode = message.index, message.exitcode
    before = replace(run.span, start=run.done, stop=index)
    verdict = judge(Fault.UNANSWERED, outcomes.facts_of(state, before))
    lost = partial(outcomes.why_unanswered, run, before, message)
    outcomes.follow(state, run, before, verdict, lost, exitcode=exitcode)
    call = replace(run.span, start=index, stop=index + 1)
    verdict = judge(_ENDED[message.reason], outcomes.facts_of(state, call))
    died = partial(outcomes.why_crashed, run, message)
    out, err = map(bytes, buffers)
    outcomes.follow(state, run, call, verdict, died, exitcode=exitcode, stdout=out, stderr=err)


def returned(
    state: CoreState, worker: Worker, message: messages.Returned, buffers: Payload
) -> None:
    """Requeue the runs that a worker gives back."""
    runs = [worker.runs[number] for number in reversed(message.runs) if number in worker.runs]
    left = message.reason in (messages.PROCESS_LEFT, messages.NO_INPUT, messages.NOT_PULLED)
    worker.fruitless += not left and any(not run.recalled for run in runs)
    if worker.fruitless > MOST_FRUITLESS:
        worker.provisioner.hold_back(state.now)
        words = message.reason or "it gave back all its calls"
        worker_lifecycle.dismiss(state, worker, f"could run nothing: {words}")
        return
    for run in runs:
        outcomes.end_run(state, run)
        outcomes.requeue(state, run.rest)
    worker_lifecycle.finished_batch(state, worker)


def shortened(
    state: CoreState, worker: Worker, message: messages.Shortened, buffers: Payload
) -> None:
    """Requeue the rest of a recalled run."""
    run, stop = worker.runs.get(message.run), message.stop
    if run is None or not run.span.start < stop < run.span.stop:
        return
    if stop < run.done:
        _breach(state, worker, f"run {message.run} was answered beyond call {stop}")
        return
    rest = replace(run.span, start=stop)
    books.count_running(run.slot_group, rest.open_task, -rest.calls)
    run.span = replace(run.span, stop=stop)
    outcomes.requeue(state, rest)
    if run.done == stop:
        outcomes.end_run(state, run)
    worker_lifecycle.finished_batch(state, worker)


def started(state: CoreState, worker: Worker, message: messages.Started, buffers: Payload) -> None:
    """Note that a watched run has begun."""
    run = worker.runs.get(message.run)
    if run is not None:
        run.since = state.now
        task = run.span.open_task.id
        state.effects.append(TaskBegan(task, message.pid, worker.hello.host, run.span.attempt))


def pushed(state: CoreState, worker: Worker, message: messages.Pushed, buffers: Payload) -> None:
    """Forward a value that a watched run has pushed, or lines that calls have logged."""
    run = worker.runs.get(message.run)
    if run is not None:
        state.effects.append(TaskMessage(run.span.open_task.id, buffers, message.log))


def saved(state: CoreState, worker: Worker, message: messages.Saved, buffers: Payload) -> None:
    """Keep the state of a call in progress for its next attempt."""
    run, index = worker.runs.get(message.run), message.index
    if run is None:
        return
    if not run.done <= index < run.span.stop:
        _breach(state, worker, f"call {index} of run {message.run} cannot save its state")
        return
    run.saved = index
    task = run.span.open_task.id
    payload = state.saved.setdefault(task, {})[index] = outcomes.unwritable(buffers)
    state.effects.append(StateSaved(task, index, payload))


def measured(
    state: CoreState, worker: Worker, message: messages.Measured, buffers: Payload
) -> None:
    """Note a worker's measurements, for watchers."""
    worker.measured, worker.measured_at = message, state.now
    worker.growth = of_processes(worker.growth, message.runners)
    for one in message.runners:
        run = worker.runs.get(one.run)
        if run is not None:
            counts = run.span.open_task.function.counts
            counts.peak_memory = max(counts.peak_memory, one.memory)
            grown = worker.growth[one.pid].note((one.run, one.index), one.memory)
            counts.grown_memory = max(counts.grown_memory, grown)
            if run.span.demand is not ANY:
                counts.asked_memory = max(counts.asked_memory, run.span.demand.memory_limit)


def _breach(state: CoreState, worker: Worker, what: str) -> None:
    """Dismiss a worker that broke the protocol: its calls would wait for fitting results for
    ever.
    """
    state.effects.append(Send(worker.id, messages.Refuse(what)))
    worker_lifecycle.dismiss(state, worker, f"broke the protocol: {what}")


def _fits(result: messages.Result, run: Run) -> bool:
    """Return whether a result is of the next calls of a run, as the protocol demands."""
    if not (
        result.start == run.done
        and result.stop <= run.span.stop
        and (result.status == messages.VALUES or result.stop == result.start + 1)
        and -inf < result.seconds < inf
    ):
        return False
    if result.held is not None:
        return result.status == messages.VALUES and dependencies.may_stay(
            run.span.open_task, result
        )
    return result.buffers > 2 * result.output and result.status in _OUTCOMES


_OUTCOMES = {
    messages.VALUES: "it returned",
    messages.RAISED: "it raised an exception",
    messages.RETRYABLE: "it raised an exception after which calls are retried",
    messages.OUT_OF_MEMORY: "it ran out of memory",
    messages.INTERRUPTED: "it stopped, since its worker was to leave",
}

_RAISED = {
    messages.RAISED: Fault.RAISED,
    messages.RETRYABLE: Fault.RETRY_ON,
    messages.OUT_OF_MEMORY: Fault.MEMORY_ERROR,
}
_ENDED = {
    messages.CRASH: Fault.CRASHED,
    messages.TIMEOUT: Fault.OVER_TIME,
    messages.MEMORY: Fault.OUT_OF_MEMORY,
    messages.CANCELLED: Fault.ENDED,
}

HANDLERS: dict[type, Callable[[CoreState, Worker, Any, Payload], None]] = {
    messages.Results: results,
    messages.Crashed: crashed,
    messages.Returned: returned,
    messages.Shortened: shortened,
    messages.Saved: saved,
    messages.Leaving: worker_lifecycle.leaving,
    messages.Started: started,
    messages.Pushed: pushed,
    messages.Measured: measured,
    messages.Waits: nested.waits,
    messages.Resumes: nested.resumes,
    messages.Fetched: dependencies.fetched,
    messages.Serves: pulls.serves,
    messages.Pulled: dependencies.pulled,
    messages.Goodbye: worker_lifecycle.goodbye,
}
"""The handler of each type of message."""
