"""Explain one call or worker: why a call waits, where it runs, how it has ended."""

from __future__ import annotations

from collections.abc import Sequence

from gridengine.dispatcher.watch_messages import WatchAnswer
from gridengine.display import plural
from gridengine.status.figures import EndedCall
from gridengine.status.rows import CallStatus, Status
from gridengine.watching.call_descriptions import cause_of
from gridengine.watching.next_steps import failure_step
from gridengine.watching.phrases import Explanation, ago, clock, names_of, on, seconds, then, where

SAMPLED = "its worker is not known, because only an even sample of calls is recorded"


def explain_call(answer: WatchAnswer, call: str) -> list[Explanation]:
    """Return facts about a running or failed call, by its id, number, label, or a job's name."""
    found: list[Explanation] = []
    for run in answer.status.runs:
        if call in (run.id, *names_of(run.call)):
            state = "waits there for calls that it has made" if run.waits else "runs"
            text = (
                f"{run.call} {state}{on(run.host, run.job)}, for {ago(run.seconds)} by now, "
                f"attempt {run.attempt} of {run.attempts}{_past(run.history)}"
            )
            found.append(Explanation("running", text, "", run.host))
    for one in answer.status.failures:
        if call in (one.id, *names_of(one.call)):
            cause, at = cause_of(one), clock(answer, one.seconds_ago)
            text = f"{one.call} failed{on(one.host, one.job)} at {at}: {cause}"
            step = then(failure_step(cause, one.hint), _log("its worker's log", one.log))
            past = _past(one.history, "attempts")
            found.append(Explanation("failed", text + past, step, one.host))
    return found


def explain_worker(status: Status, name: str) -> list[Explanation]:
    """Return the facts about the workers with this id, process, cluster job or host."""
    found = []
    for one in status.workers:
        if name not in (one.id, str(one.pid), one.job, one.host):
            continue
        text = (
            f"The worker of process {one.pid} on {where(one.host, one.job)} is {one.phase}, with "
            f"{one.running} of {plural(one.slots, 'slot')} in use; it connected "
            f"{ago(one.since_seconds)} ago and was heard {one.heard_seconds:.0f} s ago"
        )
        if one.request:
            text += f"; it holds {one.request}"
        if one.left_seconds is not None:
            text += f"; it leaves in {ago(one.left_seconds)}"
        found.append(Explanation(one.phase, text, _log("its log", one.log), name))
    return found


def explain_waiting(one: CallStatus) -> Explanation:
    """Return why a call has not begun."""
    since, past = f"{one.call} was submitted {ago(one.since_seconds)} ago", _past(one.history)
    if one.missing:
        return Explanation(
            "missing_inputs",
            f"{since}, and waits for {plural(one.missing, 'result')} of other calls{past}",
            "see what the other calls wait for, or whether they have failed",
        )
    asks = f" that ask for {one.request}" if one.request else ""
    text = f"{since}, and waits, one of {plural(one.waiting, 'call')}{asks}, for a worker{past}"
    return Explanation("waiting", text)


def ended_calls(answer: WatchAnswer, which: str) -> list[EndedCall]:
    """Return the recorded ends of a call with this id, number, name or label: each attempt that
    returned or raised, the last one last. Only an even sample of a run's calls is recorded.
    """
    return [one for one in answer.timeline if _has(one, which) and not one.died]


def _has(one: EndedCall, which: str) -> bool:
    """Return whether `which` names these calls of one task, or one of them."""
    number = names_of(one.call)[-1]
    if which in (one.id, one.call, number):
        return True
    task, _, index = which.rpartition(".")
    first = one.id.removeprefix(f"{task}.") if task else number
    if one.calls == 1 or not (index.isdecimal() and first.isdecimal()):
        return False
    return int(first) <= int(index) < int(first) + one.calls


def explain_ended(answer: WatchAnswer, which: str) -> list[Explanation]:
    """Return the recorded facts about a call that neither waits nor runs, nor has failed lately;
    nothing when there was none.
    """
    if found := ended_calls(answer, which):
        return [_explained(answer, found[-1], which)]
    number = names_of(which)[-1]
    if not number.isdecimal():
        return []
    functions = [one for one in answer.status.functions if int(number) < one.numbered]
    if not functions:
        return []
    state = "has ended" if any(one.failed for one in functions) else "is done"
    return [Explanation("ended", f"call {number} {state}; {SAMPLED}")]


def _explained(answer: WatchAnswer, one: EndedCall, which: str) -> Explanation:
    call = one.call if one.calls == 1 else f"call {which} of {one.function}"
    many = "" if one.calls == 1 else f", with {one.calls - 1:,} others"
    state = "has failed" if one.failed else "is done"
    text = (
        f"{call} {state}: it ran{on(one.host, one.job)}{many}, and took "
        f"{seconds(one.seconds)} until {clock(answer, one.seconds_ago)}"
    )
    return Explanation("ended", text, _log("its worker's log", one.log), one.host)


def _past(history: Sequence[str], title: str = "before") -> str:
    """Return the end of a sentence: how earlier attempts of a call ended."""
    return f"; {title}: {'; '.join(history)}" if history else ""


def _log(which: str, path: str) -> str:
    return f"{which} is {path}" if path else ""
