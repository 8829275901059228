"""How runs end and calls are settled, fail, or wait for another attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from gridengine.dispatcher.core import failures, objects
from gridengine.dispatcher.core.calls import OpenTask, Span
from gridengine.dispatcher.core.feasibility import is_possible
from gridengine.dispatcher.core.model import Phase, Run, TaskQueue, Worker
from gridengine.dispatcher.core.provisioner import Provisioner
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.tasks import Attempt, CallsFinished
from gridengine.errors import GridEngineError

# ------------------------------------------------------------------ runs


def end_run(state: CoreState, run: Run) -> None:
    """Forget a run, whatever way it ended."""
    group, span = run.slot_group, run.span
    worker = group.worker
    del state.runs[run.number], worker.runs[run.number]
    span.open_task.runs.pop(run.number, None)
    group.queue.running -= span.stop - run.done
    state.dirty_queues[group.queue] = None
    run.batch.runs -= 1
    if run.batch.runs:
        return
    submitter = span.open_task.submitter
    submitter.batches -= 1
    submitter.load -= run.batch.load
    group.batches -= 1
    worker.batches -= 1
    if not worker.batches and worker.phase is Phase.READY:
        worker.provisioner.idle.add(worker.id)
    state.freed_slots[group] = None


def record_attempt(
    run: Run,
    index: int,
    now: float,
    outcome: str,
    exitcode: int | None = None,
    peak_memory: int = 0,
) -> None:
    """Note how an attempt of a call ended, for its history."""
    worker = run.worker
    attempt = Attempt(
        worker.hello.host,
        worker.job,
        run.since,
        now,
        outcome,
        worker.hello.log,
        exitcode,
        peak_memory,
    )
    run.span.open_task.attempts.setdefault(index, []).append(attempt)


# ------------------------------------------------------------------ calls that wait again


def retry(state: CoreState, span: Span, *, out_of_memory: bool = False) -> None:
    """Have calls that failed wait for another attempt, with more memory if they ran out of it."""
    demand, factor = span.demand, span.open_task.task.escalate_memory
    if out_of_memory and factor > 1:
        demand = demand.with_factor(demand.factor * factor)
    state.retried += span.stop - span.start
    requeue(state, replace(span, demand=demand, attempt=span.attempt + 1))


def may_grow(state: CoreState, span: Span) -> bool:
    """Return whether calls that ran out of memory may run again with more."""
    factor = span.open_task.task.escalate_memory
    return factor != 1 and is_possible(
        state.policy, span.demand.with_factor(span.demand.factor * factor)
    )


def requeue(state: CoreState, span: Span) -> None:
    """Have calls that were assigned wait again, before all others; settle those that somebody has
    cancelled or recalled meanwhile.
    """
    if span.start == span.stop:
        return
    one = span.open_task
    if one.cancelled:
        settle_cancelled(state, span, one.cancelled)
    elif one.unwanted:
        _requeue_wanted(state, span)
    else:
        _put_back(state, span)


def _requeue_wanted(state: CoreState, span: Span) -> None:
    wanted = [span]
    for unwanted in span.open_task.unwanted:
        if not unwanted.signal and span.attempt > 1:
            continue
        parts, wanted = wanted, []
        for part in parts:
            kept, taken = cut(part, unwanted.start, unwanted.stop)
            wanted += kept
            for one in taken:
                if unwanted.signal:
                    settle_cancelled(state, one, unwanted.signal)
                else:
                    settle_recalled(state, one)
    for part in reversed(wanted):
        _put_back(state, part)


def _put_back(state: CoreState, span: Span) -> None:
    queue = state.queue_for(span.demand)
    queue.put_back(span)
    state.dirty_queues[queue] = None


def cut(span: Span, start: int, stop: int) -> tuple[list[Span], list[Span]]:
    """Return what of a span is outside, and what is within these calls."""
    start, stop = max(start, span.start), min(stop, span.stop)
    if start >= stop:
        return [span], []
    around = replace(span, stop=start), replace(span, start=stop)
    return [one for one in around if one.calls], [replace(span, start=start, stop=stop)]


def drop_waiting(
    state: CoreState, which: Callable[[Span], bool], settle: Callable[[CoreState, Span], None]
) -> None:
    """Take such spans out of all queues, and settle them."""
    for queue in list(state.queues.values()):
        _drop(state, queue, which, settle)


def fail(state: CoreState, queue: TaskQueue, error: GridEngineError) -> None:
    """Fail all calls that wait in a queue."""
    _drop(
        state,
        queue,
        lambda span: True,
        lambda state, span: _settle_all(state, span, error=error, exitcode=1),
    )


def _drop(
    state: CoreState,
    queue: TaskQueue,
    which: Callable[[Span], bool],
    settle: Callable[[CoreState, Span], None],
) -> None:
    for span in queue.take_out(lambda span: ([], [span]) if which(span) else ([span], [])):
        settle(state, span)
    state.dirty_queues[queue] = None


def give_up(
    state: CoreState, error: GridEngineError, now: float, only: Provisioner | None = None
) -> None:
    """Fail all that waits, since no worker can be had; the next that is submitted asks anew."""
    for queue in list(state.queues.values()):
        if only is None or queue.provisioner is only:
            fail(state, queue, error)
    for provisioner in list(state.provisioners.values()) if only is None else [only]:
        state.effects += provisioner.give_up(now)


# ------------------------------------------------------------------ calls that are settled


def settle_cancelled(
    state: CoreState,
    span: Span,
    number: int,
    stdout: bytes = b"",
    stderr: bytes = b"",
    *,
    worker: Worker | None = None,
) -> None:
    """Settle calls that somebody cancelled; `number` is the signal, and `worker` where the first of
    them ran.
    """
    error = failures.why_cancelled(span, worker)
    _settle_all(state, span, error=error, exitcode=-number, stdout=stdout, stderr=stderr)


def settle_recalled(state: CoreState, span: Span) -> None:
    """Settle calls that somebody recalled before they began."""
    error = failures.why_cancelled(span, None)
    _settle_all(state, span, error=error, exitcode=1, recalled=True)


def _settle_all(state: CoreState, span: Span, **outcome: Any) -> None:
    settle(state, span, span.start, span.stop, **outcome)


def settle(state: CoreState, span: Span, start: int, stop: int, **outcome: Any) -> None:
    """Tell the outcome of calls, once."""
    one, calls = span.open_task, stop - start
    one.unsettled -= calls
    attempts = tuple(one.attempts.get(start, ())) if calls == 1 and one.attempts else ()
    last = not one.unsettled
    finished = CallsFinished(
        one.task.id, start, stop, **{"payload": None, **outcome}, attempts=attempts, last=last
    )
    state.effects.append(finished)
    if finished.error is None and not finished.raised:
        state.done += calls
    elif not finished.recalled:
        state.failed += calls
    if last:
        _close_task(state, one)


def _close_task(state: CoreState, one: OpenTask) -> None:
    del state.open_tasks[one.task.id]
    objects.let_go(state, one)
    one.submitter.open -= 1
    if not one.submitter.open:
        del state.submitters[one.submitter.number]
