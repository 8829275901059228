"""The errors of calls that did not end by themselves: what happened where, whose fault it is, and
what to try.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from gridengine.dispatcher.core.calls import Span
from gridengine.dispatcher.core.model import Run, Worker
from gridengine.errors import (
    CallError,
    Cancelled,
    ConfigurationError,
    GridEngineError,
    JobDeleted,
    TimeoutError,
    WorkerCrashed,
    WorkerLost,
    call_words,
    exit_words,
    out_of_memory,
    safe_repr,
)
from gridengine.resources.base import Resource
from gridengine.schedulers.launcher import Report
from gridengine.wire.messages import CANCELLED, CRASH, MEMORY, TIMEOUT, Crashed


def why_crashed(run: Run, index: int, message: Crashed) -> CallError:
    """Return the error of a call whose runner died or was ended in it."""
    worker, span = run.worker, run.span
    what, facts = name_of(span, index), _facts(worker, span, index)
    if message.reason == TIMEOUT:
        return TimeoutError(
            f"{what} ran over its limit of {run.limit} s and was ended",
            hint="raise timeout=, or the T of WTime",
            **facts,
        )
    if message.reason == MEMORY:
        how = f"its process {ending_of(message.exitcode)}"
        return out_of_memory(
            what, limit=span.demand.memory_limit, peak=message.peak_memory, how=how, **facts
        )
    if message.reason == CANCELLED:
        return Cancelled(f"{what} was ended", **facts)
    hint = (
        "to see it fail, run this call alone with InlineScheduler(): in a Python of its own, which "
        "the crash ends too (`python -X faulthandler` says where)"
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


def why_lost(worker: Worker, span: Span, reason: str, report: Report | None) -> GridEngineError:
    """Return the error of calls whose worker is gone, by the batch system's record if there
    is one.
    """
    kind: type[GridEngineError] = WorkerLost
    hint = (
        "look at the batch system's record of this job, and at its log; raise retries= if the "
        "machines are to blame"
    )
    if not worker.job:
        hint = (
            "see how many processes you may have (`ulimit -u`), and whether memory is short; "
            "raise retries= if that was for a moment"
        )
    if report is not None and report.deleted:
        kind, hint = (
            JobDeleted,
            "somebody, or a rule of the site, deleted the job; ask the administrators if it was "
            "not you",
        )
    elif report is not None and report.fault is not None:
        kind, hint = report.fault, "ask for more of it in the scheduler's resources"
    elif report is not None and report.blameless:
        hint = "with retries=0 what may have begun is not run again; raise retries= if it may be"
    facts = _facts(worker, span, span.start)
    return kind(f"the worker that ran {name_of(span, span.start)} {reason}", hint=hint, **facts)


def why_relieved(worker: Worker, span: Span, began: float, asked_for: bool) -> TimeoutError:
    """Return the error of a call that used up its worker's time; `asked_for`: the script set the
    limit.
    """
    seconds = worker.leave_at - began
    text = (
        f"{name_of(span, span.start)} took longer than its worker may be there: of its "
        f"walltime {seconds:.1f} s were left when it began"
    )
    hint = (
        "ask for more walltime, by WTime(T) for the call or h_rt= or time= of the scheduler; "
        "or split the call"
    )
    if not asked_for:
        report = worker.launch.report if worker.launch is not None else None
        words = f" ({report.limited_by})" if report is not None and report.limited_by else ""
        hint = f"the script sets no limit, so this is a default of the site's{words}; {hint}"
    return TimeoutError(text, hint=hint, **_facts(worker, span, span.start))


def cannot_give(asked: Resource, cause: BaseException) -> GridEngineError:
    """Return the error of calls whose resources' own methods raised."""
    if isinstance(cause, GridEngineError):
        return cause
    error = ConfigurationError(
        f"resources={safe_repr(asked)} cannot be given: {safe_repr(cause)}", hint="see its class"
    )
    error.__cause__ = cause
    return error


def name_of(span: Span, index: int) -> str:
    """Return how people call a call."""
    one = span.open_task
    return call_words(one.function.function.name, one.task.first, index, one.task.name)


def _facts(worker: Worker, span: Span, index: int) -> dict[str, Any]:
    return {
        "host": worker.hello.host,
        "job": worker.job or None,
        "log": worker.hello.log or None,
        "attempts": [str(attempt) for attempt in (span.open_task.attempts or {}).get(index, ())],
    }


def ending_of(exitcode: int) -> str:
    """Return an exit code in words: `was killed by SIGKILL`, `exited with status 3`."""
    return f"was {exit_words(exitcode)}" if exitcode < 0 else f"exited with status {exitcode}"


OUTCOMES: dict[str, Callable[[int], str]] = {
    CRASH: lambda exitcode: f"its process {ending_of(exitcode)}",
    TIMEOUT: lambda exitcode: "it ran over its time",
    MEMORY: lambda exitcode: "it ran out of memory",
    CANCELLED: lambda exitcode: "it was ended on request",
}
"""What an attempt's history says of each reason for a runner's end."""
