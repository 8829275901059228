"""How runs end, and what follows for their calls: an outcome, an error, or another attempt.

The errors of calls are made here: which error a call gets decides whether it runs again.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from gridengine.dispatcher.core import books, objects
from gridengine.dispatcher.core.calls import (
    ERROR_BYTES,
    EXCEPTION_BYTES,
    AwaitedResult,
    CallState,
    OpenTask,
    Span,
    shown_calls,
)
from gridengine.dispatcher.core.events import ResultStays, StateSaved, Warn
from gridengine.dispatcher.core.provisioner import Provisioner
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.verdicts import Fact, Verdict
from gridengine.dispatcher.core.workers_and_queues import Run, TaskQueue, Worker
from gridengine.errors import (
    CallError,
    Cancelled,
    ConfigurationError,
    GridEngineError,
    JobDeleted,
    OutOfMemory,
    TimeoutError,
    WorkerCrashed,
    WorkerLost,
    call_words,
    exit_words,
    out_of_memory,
    safe_repr,
)
from gridengine.requests import CallsFinished, ResultData
from gridengine.resources.base import Resource
from gridengine.serialize.payload import Payload, PayloadAtWorker
from gridengine.status.figures import FailureStatus
from gridengine.status.watch_events import DONE, FAILED, RETRIED, WatchEvent
from gridengine.wire.messages import CANCELLED, CRASH, MEMORY, TIMEOUT, Attempt, Crashed


def why_crashed(run: Run, message: Crashed, kind: type[GridEngineError]) -> CallError:
    """Return the error of a call whose runner died or was ended in it."""
    error = _why_crashed(run, message, kind)
    error.step = message.step
    return error


def _why_crashed(run: Run, message: Crashed, kind: type[GridEngineError]) -> CallError:
    worker, span, index = run.worker, run.span, message.index
    what, facts = name_of(span, index), _facts(worker, span, index)
    if kind is TimeoutError:
        return TimeoutError(
            f"{what} ran over its limit of {run.limit} s and was ended",
            hint="raise timeout=, or the T of WTime",
            **facts,
        )
    if kind is OutOfMemory:
        how = f"its process {ending_of(message.exitcode)}"
        return out_of_memory(
            what, limit=span.demand.memory_limit, peak=message.peak_memory, how=how, **facts
        )
    hint = (
        "to see where it crashes, run this call alone with InlineScheduler() under `python -X "
        "faulthandler`: that Python crashes too, and says where"
    )
    if message.exitcode in (-signal.SIGSEGV, -signal.SIGBUS) and span.open_task.details.needs:
        hint = (
            "if it writes into an array of share(), by a library that overlooks that the array is "
            f"read-only, give it a copy (array.copy()); otherwise, {hint}"
        )
    if message.exitcode == -signal.SIGKILL:
        hint = (
            "often the sign of too little memory: ask for more with resources=Memory(M), in "
            "GB; the machine's kernel log may tell"
        )
    return WorkerCrashed(
        f"the process that ran {what} {ending_of(message.exitcode)}", hint=hint, **facts
    )


def why_cancelled(span: Span, worker: Worker | None) -> Cancelled:
    """Return the error of cancelled calls; `worker` is where the first ran, None if it did not."""
    facts = {} if worker is None else _facts(worker, span, span.start)
    one = span.open_task
    name = name_of(span, span.start) if span.calls == 1 else one.function.function.name
    return Cancelled(f"{name} was ended before it was done", **facts)


def why_unanswered(
    run: Run, span: Span, message: Crashed, kind: type[GridEngineError]
) -> GridEngineError:
    """Return the error of calls that had returned, and whose results are lost with their process,
    which ended in a later call.
    """
    how, later = OUTCOMES[message.reason](message.exitcode), name_of(span, message.index)
    return kind(
        f"{names_of(span)} had returned, and the result was lost with the process, which ended "
        f"in {later}: {how}",
        hint=RUN_ONCE,
        **_facts(run.worker, span, span.start),
    )


def why_lost(
    state: CoreState, run: Run, span: Span, reason: str, kind: type[GridEngineError]
) -> GridEngineError:
    """Return the error of calls of a run whose worker is gone."""
    worker = run.worker
    if kind is TimeoutError and state.now >= worker.leave_at:
        return _why_relieved(state, run, span)
    report = worker.launch.report if worker.launch is not None else None
    hint = (
        "look at the batch system's record of this job, and at its log; raise retries= if the "
        "machines are to blame"
    )
    if not worker.job:
        hint = (
            "see how many processes you may have (`ulimit -u`), and whether memory is short; "
            "raise retries= if that was for a moment"
        )
    if kind is JobDeleted:
        hint = (
            "somebody, or a rule of the site, deleted the job; ask the administrators if it was "
            "not you"
        )
    elif kind is not WorkerLost:
        hint = "ask for more of it in the scheduler's resources"
    elif report is not None and (report.blameless or report.fault is not None):
        hint = RUN_ONCE
    which = f"ran {name_of(span, span.start)}" if span.calls == 1 else f"had {names_of(span)}"
    return kind(f"the worker that {which} {reason}", hint=hint, **_facts(worker, span, span.start))


def _why_relieved(state: CoreState, run: Run, span: Span) -> TimeoutError:
    """Return the error of a call that used up its worker's time, and say who set the limit."""
    worker = run.worker
    seconds = worker.leave_at - run.touched
    text = (
        f"{name_of(span, span.start)} took longer than its worker could stay: {seconds:.1f} s of "
        "the worker's walltime were left when it began"
    )
    hint = (
        "ask for more walltime, by WTime(T) for the call or h_rt= or time= of the scheduler; "
        "or split the call"
    )
    if state.policy.stay(worker.provisioner.demand.resources) == math.inf:
        report = worker.launch.report if worker.launch is not None else None
        words = f" ({report.limited_by})" if report is not None and report.limited_by else ""
        hint = f"the script sets no limit, so this is a default of the site's{words}; {hint}"
    return TimeoutError(text, hint=hint, **_facts(worker, span, span.start))


def cannot_give(asked: Resource, cause: BaseException) -> GridEngineError:
    """Return the error of calls whose resources raised an exception in one of their own methods."""
    if isinstance(cause, GridEngineError):
        return cause
    error = ConfigurationError(
        f"resources={safe_repr(asked)} cannot be given: {safe_repr(cause)}",
        hint="see the methods of its class",
    )
    error.__cause__ = cause
    return error


def name_of(span: Span, index: int) -> str:
    """Return the name of a call for messages, such as `simulate[7]`."""
    one = span.open_task
    return call_words(one.function.function.name, one.first, index, one.options.name)


def names_of(span: Span) -> str:
    """Return the name of calls that share an error."""
    if span.calls == 1:
        return name_of(span, span.start)
    return f"{span.calls} calls of {span.open_task.function.function.name}"


def _facts(worker: Worker, span: Span, index: int) -> dict[str, Any]:
    one = span.open_task
    calls, parameters = shown_calls(one, ERROR_BYTES), one.function.function.parameters
    return {
        "host": worker.hello.host,
        "job": worker.job or None,
        "log": worker.hello.log or None,
        "attempts": [str(attempt) for attempt in (one.details.attempts or {}).get(index, ())],
        "pickled_call": (calls, index, one.options.form, parameters),
    }


def ending_of(exitcode: int) -> str:
    """Return an exit code in words: `was killed by SIGKILL`, `exited with status 3`."""
    return f"was {exit_words(exitcode)}" if exitcode < 0 else f"exited with status {exitcode}"


RUN_ONCE = "with retries=0 what may have begun is not run again; raise retries= if it may be"
OUTCOMES: dict[str, Callable[[int], str]] = {
    CRASH: lambda exitcode: f"its process {ending_of(exitcode)}",
    TIMEOUT: lambda exitcode: "it ran over its time",
    MEMORY: lambda exitcode: "it ran out of memory",
    CANCELLED: lambda exitcode: "it was ended on request",
}
"""The text in the history of attempts for each reason for a runner's end."""


# ------------------------------------------------------------------ runs


def end_run(state: CoreState, run: Run) -> None:
    """Forget a run, whatever way it ended. The last of a batch frees its slot."""
    number, one, group, batch = run.number, run.span.open_task, run.slot_group, run.batch
    worker = group.worker
    del state.runs[number], worker.runs[number]
    runs = one.runs
    if isinstance(runs, dict) and len(runs) > 1:
        del runs[number]
    else:
        one.runs = ()
    if run.late:
        group.late -= 1
    if run.children:
        state.agenda.orphans += run.children
    if worker.resuming:
        worker.resuming.pop(number, None)
        state.agenda.returning[worker.id] = worker
    books.end_run(state, run)
    queue = group.queue
    if not batch.runs and (queue.calls or not queue.slots):
        state.agenda.changed_queues[queue] = None


def record_attempt(
    state: CoreState, run: Run, index: int, how: str, exitcode: int | None = None, peak: int = 0
) -> None:
    """Add an attempt to the history of a call: how it ended, and its process's peak memory."""
    worker, one = run.worker, run.span.open_task
    attempt = Attempt(
        host=worker.hello.host,
        job=worker.job,
        started=run.since,
        ended=state.now,
        outcome=how,
        log=worker.hello.log,
        exitcode=exitcode,
        peak_memory=peak,
    )
    attempts = one.details.attempts
    if attempts is None:
        attempts = {}
        one.change(attempts=attempts)
    attempts.setdefault(index, []).append(attempt)


def facts_of(state: CoreState, span: Span) -> set[Fact]:
    """Return the facts of calls, from which their verdict after a fault follows. `CANCELLED` is
    found for a single call only: of several, `requeue` and `settle` find the cancelled ones.
    """
    one, facts = span.open_task, set()
    if not one.options.retries:
        facts.add(Fact.ONCE)
    elif span.attempt <= one.options.retries:
        facts.add(Fact.LEFT)
    if span.calls == 1 and one.cancelled_by(span.start):
        facts.add(Fact.CANCELLED)
    if one.options.escalate_memory > 1:
        facts.add(Fact.MORE if state.is_held(span.grown) else Fact.STUCK)
    return facts


def follow(
    state: CoreState,
    run: Run,
    span: Span,
    verdict: Verdict,
    why: Callable[[type[GridEngineError]], GridEngineError],
    *,
    exitcode: int | None = None,
    **output: Any,
) -> None:
    """Carry out a verdict on calls of a run: queue them again, or settle them with the error that
    `why` makes. `exitcode`: by default that of a kill, by the signal that cancelled the call.
    """
    if exitcode is None:
        exitcode = -(span.open_task.cancelled_by(span.start) or signal.SIGKILL)
    if verdict.charged:
        retry(state, span, grows=verdict.grows)
    elif verdict.again:
        requeue(state, span)
    elif verdict.error is Cancelled:
        settle_cancelled(state, span, exitcode, run.worker, **output)
    elif span.calls and verdict.error is not None:
        error = why(verdict.error)
        for part in _wanted(state, span, recalled=False):
            settle(state, part, error=error, exitcode=exitcode, **output)


def retry(state: CoreState, span: Span, *, grows: bool = False) -> None:
    """Queue failed calls for another attempt, with more memory if it grows."""
    demand = span.grown if grows else span.demand
    books.retry(state, span.open_task, span.calls)
    _say_retried(state, span)
    requeue(state, replace(span, demand=demand, attempt=span.attempt + 1))


def _say_retried(state: CoreState, span: Span) -> None:
    """Say that calls run again: their last attempt was just recorded. Warn of the first call whose
    process was killed, since such a call does again all that it had done.
    """
    one, name = span.open_task, name_of(span, span.start)
    last = (one.details.attempts or {})[span.start][-1]
    note_calls(state, RETRIED, span, last.host, last.job, reason=str(last))
    which = f"attempt {span.attempt + 1} of {one.options.retries + 1}"
    others = f" and {span.calls - 1} more" if span.calls > 1 else ""
    text = f"{name}{others} is run again ({which}): {last}"
    if (last.exitcode or 0) < 0 and not state.log.warned_of_killed:
        state.log.warned_of_killed = True
        state.effects.append(Warn(text))
    else:
        state.say(state.log.retried(text, last.ended))


def note_calls(state: CoreState, kind: str, span: Span, host: str, job: str, **more: Any) -> None:
    """Record an event of calls for watchers; `more`: its seconds and its reason."""
    events = state.log.events
    if events is not None and events.takes(kind, span.calls):
        function, name = span.open_task.function.function.name, name_of(span, span.start)
        events.add(
            WatchEvent(
                kind, count=span.calls, function=function, call=name, host=host, job=job, **more
            )
        )


def note_move(state: CoreState, span: Span, to: CallState, words: str = "") -> None:
    """Note in the story, if there is one, that calls enter a state."""
    if state.story is not None:
        state.story.move(span, to, words)


def requeue(state: CoreState, span: Span) -> None:
    """Queue calls that were assigned, before all other calls; settle the unwanted ones."""
    for part in reversed(_wanted(state, span, recalled=span.attempt == 1)):
        one = part.open_task
        failed = [needed for needed in one.inputs if needed.data and has_failed(needed.data)]
        if failed:
            settle_failed_input(state, one, failed[0])
        elif one.missing:
            one.change(again=(part.demand, part.attempt))
            note_move(state, part, "missing", "again")
        else:
            note_move(state, part, "waiting", "again")
            queue = state.queue_for(part.demand)
            queue.put_back(part)
            state.agenda.changed_queues[queue] = None


def _wanted(state: CoreState, span: Span, *, recalled: bool) -> list[Span]:
    """Settle cancelled calls, and with `recalled` recalled ones; return the others."""
    wanted, newest_first = [span], span.open_task.details.unwanted[::-1]
    signals = [one for one in newest_first if one.signal]  # the last signal counts
    recalls = [one for one in newest_first if not one.signal and recalled]
    for one in signals + recalls:
        parts = [part.split([(one.start, one.stop)]) for part in wanted]
        for rejected in (span for _, within in parts for span in within):
            settle_unwanted(state, rejected, one.signal)
        wanted = [span for outside, _ in parts for span in outside]
    return [part for part in wanted if part.calls]


def fail(state: CoreState, queues: Iterable[TaskQueue], error: GridEngineError) -> None:
    """Settle all calls that wait in these queues with an error."""
    for queue in list(queues):
        for span in queue.take_out(lambda span: ([], [span])):
            settle(state, span, error=error, exitcode=1)
        state.agenda.changed_queues[queue] = None


def give_up(state: CoreState, error: GridEngineError, provisioners: Iterable[Provisioner]) -> None:
    """Fail all calls that wait for these provisioners' workers, since none can be had. The next
    submission asks again.
    """
    for one in list(provisioners):
        if one is state.common and (least := state.policy.min_workers):
            text = f"the workers that are to be there (min_workers={least}) cannot be had"
            state.effects.append(Warn(f"{text}: {error.message}"))
        fail(state, (queue for queue in state.queues.values() if queue.provisioner is one), error)
        state.effects += one.give_up(state.now)


def settle_unwanted(state: CoreState, span: Span, number: int) -> None:
    """Settle calls that were cancelled by a signal, or with 0 recalled before they began."""
    if number:
        settle_cancelled(state, span, -number)
    else:
        error = why_cancelled(span, None)
        settle(state, span, error=error, exitcode=1, recalled=True)


def has_failed(data: ResultData) -> bool:
    """Return whether there is no value, so that calls that need it fail too."""
    return data.payload is None or data.raised


def settle_failed_input(state: CoreState, one: OpenTask, awaited: AwaitedResult) -> None:
    """Settle a call whose input has failed, with the same outcome."""
    data, span = awaited.data, one.only_span()
    assert data is not None
    error = data.error
    if data.payload is None and error is None:
        error = why_cancelled(span, None)
    settle(
        state,
        span,
        data.payload,
        raised=data.raised,
        error=error,
        exitcode=1,
        recalled=data.cancelled,
        path=data.path or ("a future",),
    )


def settle_cancelled(
    state: CoreState, span: Span, exitcode: int, worker: Worker | None = None, **output: Any
) -> None:
    """Settle cancelled calls; `worker` is where the first of them ran."""
    settle(state, span, error=why_cancelled(span, worker), exitcode=exitcode, **output)


def settle(
    state: CoreState,
    span: Span,
    payload: Payload | None = None,
    raised: bool = False,
    error: GridEngineError | None = None,
    exitcode: int = 0,
    stdout: bytes = b"",
    stderr: bytes = b"",
    recalled: bool = False,
    seconds: float | None = None,
    path: tuple[str, ...] = (),
) -> None:
    """Tell the outcome of calls, once; see `CallsFinished`."""
    one, start, stop = span.open_task, span.start, span.stop
    calls, done = stop - start, payload is not None and not raised
    told, cancelled = done if done or not recalled else None, type(error) is Cancelled
    books.count_outcomes(state, one, calls, told, cancelled=cancelled)
    details = one.details
    tried = details.attempts
    attempts = tuple(tried.get(start, ())) if tried and calls == 1 else ()
    last = not one.unsettled
    if state.saved:
        _drop_saved(state, span)
    if state.story is not None:
        state.story.move(span, "settled")
    if one.kept and payload is not None:
        if type(payload) is PayloadAtWorker:
            state.effects += [] if details.remade else [ResultStays(payload)]
        elif len(payload) > 1 or type(payload[0]) is not bytes:
            payload = unwritable(payload)
    finished = CallsFinished(
        task=one.id,
        start=start,
        stop=stop,
        payload=payload,
        raised=raised,
        error=error,
        exitcode=exitcode,
        stdout=stdout,
        stderr=stderr,
        attempts=attempts,
        last=last,
        recalled=recalled,
        seconds=seconds,
        path=path,
    )
    if one.kept or one.inputs:
        state.agenda.linked.append((one, finished))
    if details.remade:
        _let_go(state, one)
        return
    state.effects.append(finished)
    if state.log.events is not None and not recalled:
        _note_ended(state, DONE if done else FAILED, span, finished)
    if not done and not recalled:
        state.failures.append((state.now, _failure(finished, one)))
    if not last:
        one.add_settled(start, stop)
    elif details.needs or details.parent or not one.function.open:
        _let_go(state, one)


def _drop_saved(state: CoreState, span: Span) -> None:
    """Drop the states that these calls have saved."""
    task = span.open_task.id
    if (states := state.saved.get(task)) is not None:
        for index in [index for index in states if span.start <= index < span.stop]:
            del states[index]
            state.effects.append(StateSaved(task, index, None))
        if not states:
            del state.saved[task]


def _note_ended(state: CoreState, kind: str, span: Span, finished: CallsFinished) -> None:
    attempts, error = finished.attempts, finished.error
    where = (attempts[-1].host, attempts[-1].job) if attempts else ("", "")
    why = _words(error) if error is not None else "it raised an exception" * finished.raised
    note_calls(state, kind, span, *where, seconds=finished.seconds, reason=why)


def _words(error: GridEngineError) -> str:
    return f"{type(error).__name__}: {error.message}"


def _failure(finished: CallsFinished, one: OpenTask) -> FailureStatus:
    """Return the record of failed calls: nothing large."""
    function, payload = one.function.function, finished.payload
    start, error, attempts = finished.start, finished.error, finished.attempts
    pickled = payload and function.codec == "pickle"
    last = attempts[-1] if attempts else None
    return FailureStatus(
        id=f"{one.id}.{start}",
        call=call_words(function.name, one.first, start, one.options.name),
        function=function.name,
        calls=finished.stop - start,
        seconds_ago=0.0,
        error="" if error is None else _words(error),
        exception=bytes(memoryview(payload[0])[:EXCEPTION_BYTES]) if payload and pickled else b"",
        host="" if last is None else last.host,
        job="" if last is None else last.job,
        log="" if last is None else last.log,
        seconds=None if last is None else last.seconds,
        attempts=len(attempts),
        peak_memory=max((attempt.peak_memory for attempt in attempts), default=0),
        cancelled=type(error) is Cancelled,
        history=[str(attempt) for attempt in attempts],
        arguments=shown_calls(one),
        place=start,
        form=one.options.form,
        hint="" if error is None else error.hint or "",
        parameters=function.parameters,
    )


def unwritable(payload: Payload) -> Payload:
    """Return the payload with read-only buffers, since several calls load it. Small buffers are
    copied: otherwise each could keep a larger message in memory.
    """
    return [
        buffer
        if type(buffer) is bytes
        else bytes(buffer)
        if len(buffer) <= objects.SMALL_INPUT
        else memoryview(buffer).toreadonly()
        for buffer in payload
    ]


def _let_go(state: CoreState, one: OpenTask) -> None:
    """Release the objects that an ended task used, and have its parent forget it."""
    if not one.function.open:
        objects.retire(state, one.function)
    needs, number = one.details.needs, one.details.parent
    if needs:
        objects.let_go(state, needs)
    if number and (parent := state.runs.get(number)) is not None and parent.children:
        parent.children.pop(one.id, None)
