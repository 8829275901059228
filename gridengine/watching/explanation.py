"""Explain why calls wait, and what can be done, from a dispatcher's status alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from gridengine.dispatcher.watch_messages import Answer, Identity
from gridengine.display import plural
from gridengine.resources.units import format_seconds
from gridengine.status.rows import CallStatus, LaunchStatus, QueueStatus, RunStatus, Status
from gridengine.watching.causes import Cause, cause_of, causes
from gridengine.watching.next_steps import failure_step, next_step
from gridengine.watching.oddities import oddities, silence
from gridengine.watching.phrases import Explanation, ago, are, clock, names_of, ordinal, were, where

NAME = re.compile(r"(?<=gridengine )([a-z]+ (?:[a-z]+ )?)NAME\b")
"""The place of the dispatcher's name in a command line of this package."""
MOST_CAUSES = 5
"""How many causes of failures are told, the most frequent first."""


def explain(answer: Answer) -> list[Explanation]:
    """Return why calls wait, and whatever else is odd, the most important first."""
    status, who = answer.status, answer.identity
    if answer.killed:
        return [_killed(who)]
    found = [*_unwritable(status), *_waiting(status, who), *oddities(status), *_failing(status)]
    if found:
        name = shlex.quote(who.name)
        steps = (NAME.sub(lambda match: match[1] + name, one.next_step) for one in found)
        return [replace(one, next_step=step) for one, step in zip(found, steps, strict=True)]
    done = f"{plural(status.done, 'call')} done, {status.failed:,} failed"
    return [Explanation("nothing", f"Nothing waits, and nothing runs: {done}")]


def _killed(who: Identity) -> Explanation:
    return Explanation(
        "killed",
        f"The process {who.pid} was killed before it could keep how its calls were",
        "was it `kill -9`, too little memory (`dmesg`), or a batch job's limit? "
        + (f"The workers' logs are below {who.folder}" if who.folder else "Nothing else is kept"),
        who.host,
    )


def _unwritable(status: Status) -> Iterator[Explanation]:
    for one in status.faults:
        yield Explanation(
            "disk",
            f"{one.path} cannot be written: {one.error}; {one.loss}",
            f"make room there (`df -h {one.path}`, or `quota`), or see that it may be written, "
            "and it goes on by itself; GRIDENGINE_RUN_DIRECTORY names another folder for the next "
            "run",
            one.path,
        )


def _waiting(status: Status, who: Identity) -> Iterator[Explanation]:
    if status.blocked:
        yield Explanation(
            "blocked",
            f"All {plural(status.tasks, 'task')} wait for results that no call of this dispatcher "
            "makes: of futures that a script sets itself, or of another scheduler's calls",
            "check which code sets these futures, or whether the other scheduler's calls run",
        )
    for queue in status.queues:
        if queue.waiting:
            launches = next(
                (one for one in status.launches if one.request == queue.launches), LaunchStatus("")
            )
            found = _of_queue(status, queue, launches)
            step = _room(status, who) if found.cause == "max_workers" else ""
            yield replace(found, next_step=step or found.next_step)


def _room(status: Status, who: Identity) -> str:
    """Return what can be done about max_workers where no script has said it; else nothing."""
    if who.home and not status.local:
        return "`gridengine scale NAME N` has N workers there, if there is room; or wait"
    if who.home:
        return "wait; or stop it, and `gridengine dispatcher start NAME --max-workers N`"
    if status.local:
        return (
            "wait; a larger max_workers= helps calls that do not compute all the time (unless the "
            "script says it, it is the number of processors)"
        )
    return ""


def _of_queue(status: Status, queue: QueueStatus, launches: LaunchStatus) -> Explanation:
    calls = plural(queue.waiting, "call")
    if queue.request:
        calls += f" that ask{'s' if queue.waiting == 1 else ''} for {queue.request}"
    verb = "waits" if queue.waiting == 1 else "wait"
    if queue.command is not None:
        return _of_people(queue, queue.command, f"{calls} {verb}")
    for reason in (_of_start, _of_queued, _of_failures, _of_limit, _of_silence):
        found = reason(status, launches, f"{calls} {verb}")
        if found is not None:
            return found
    return _of_slots(status, queue, f"{calls} {verb}")


def _of_people(queue: QueueStatus, command: str, calls: str) -> Explanation:
    text = f"no worker holds {queue.request}" if queue.request else "there is no worker"
    step = f"start one: {command}" if command else "ask for kinds that `gridengine worker` offers"
    return Explanation("no_worker", f"{calls}: {text}", step)


Reason = Callable[[Status, LaunchStatus, str], Explanation | None]


def _of_start(status: Status, one: LaunchStatus, calls: str) -> Explanation | None:
    if one.workers or not one.starting:
        return None
    if one.unanswered:
        return Explanation(
            "unreachable",
            f"{calls}: cluster job {one.job} runs, and its worker gets no answer from this "
            f"dispatcher: {one.unanswered}",
            "see whether a firewall is between, and set GRIDENGINE_HOST to an address of this "
            "machine that the nodes reach",
            one.job,
        )
    return Explanation(
        "starting",
        f"{calls}: {_job(one)} has begun, and its worker has not connected yet: it imports and "
        f"connects, on a slow file system it takes longer ({ago(one.job_seconds)} by now)",
        f"wait; its log is {one.log}" if one.log else "wait",
        one.job,
    )


def _of_queued(status: Status, one: LaunchStatus, calls: str) -> Explanation | None:
    if not one.queued:
        return None
    reason = one.reason or "the batch system gives no reason"
    have = f"; {plural(one.workers, 'worker')} {are(one.workers)} there" if one.workers else ""
    ours = status.allocation
    held = f"; the script itself holds {ours}, and they may wait for these" if ours else ""
    return Explanation(
        "queued",
        f"{calls}: {plural(one.queued, 'worker')} {are(one.queued)} in the batch system's "
        f"queue, the first, cluster job {one.job}, for {ago(one.job_seconds)}{have}: {reason}"
        f"{held}",
        _then(
            next_step(reason),
            f"without a scheduler= calls run on {ours}" if ours else "",
        ),
        one.job,
    )


def _of_failures(status: Status, one: LaunchStatus, calls: str) -> Explanation | None:
    if one.requested and not one.workers:
        return Explanation(
            "requested", f"{calls}: workers are being asked for at this moment", "wait"
        )
    if one.workers or not (one.failures or one.held_back_seconds):
        return None
    again = f"; the next are asked for in {ago(one.held_back_seconds)}"
    return Explanation(
        "failed_starts",
        f"{calls}: the last {plural(one.failures or 1, 'start')} of a worker failed: "
        f"{one.reason or 'no reason is given'}{again if one.held_back_seconds else ''}",
        failure_step(one.reason)
        or "`gridengine doctor` says whether a trivial job returns; the run's logs may say why",
    )


def _of_limit(status: Status, one: LaunchStatus, calls: str) -> Explanation | None:
    if one.workers or status.worker_count < status.max_workers:
        return None
    return Explanation(
        "max_workers",
        f"{calls}: max_workers={status.room} workers are there, all for calls that ask for "
        "something else, and these must end or go first",
        "give the scheduler a larger max_workers=, or worker_resources= for all calls to share",
    )


def _of_silence(status: Status, one: LaunchStatus, calls: str) -> Explanation | None:
    told = silence(status)
    if told is None or status.statuses["silent"] < status.worker_count:
        return None
    return replace(told, text=f"{calls}: {told.text}")


def _of_slots(status: Status, queue: QueueStatus, calls: str) -> Explanation:
    running = plural(queue.running, "call") if queue.running else "none"
    text = f"{calls} for a free slot: {running} {are(queue.running)} at {_slots(queue)}"
    if status.submitters > 1:
        text += f"; {status.submitters} submitters take turns, by how much each has at workers"
    if status.left_seconds is not None:
        text += f"; at this pace all end in about {format_seconds(status.left_seconds)}"
    if not status.max_workers:
        return Explanation("slots", text, "wait; or start more workers: gridengine worker NAME")
    if status.worker_count >= status.max_workers:
        words = f"max_workers={status.room} allows no more"
        step = "raise max_workers= if there is room; or wait"
        return Explanation("max_workers", f"{text}; {words}", step)
    return Explanation("fair_share" if status.submitters > 1 else "slots", text, "wait")


def _failing(status: Status) -> Iterator[Explanation]:
    for run in status.runs:
        if run.history:
            yield _repeated(run)
            break
    found = causes(one for one in status.failures if not one.cancelled)
    told = [_of_cause(one) for one in found[:MOST_CAUSES]]
    if not told:
        return
    cancelled = sum(one.calls for one in status.failures if one.cancelled)
    rest = status.failed - cancelled - sum(one.count for one in found[:MOST_CAUSES])
    others = f"; {plural(rest, 'other call')} failed too" if rest else ""
    if cancelled:
        others += f"; {plural(cancelled, 'call')} {were(cancelled)} cancelled"
    logs = ", and `gridengine logs NAME --failed` shows what their workers wrote"
    where_to_look = "`gridengine calls NAME --failed` lists them" + logs * any(
        one.log for one in status.failures
    )
    yield from told[:-1]
    last = told[-1]
    step = _then(last.next_step, where_to_look)
    yield replace(last, text=last.text + others, next_step=step)


def _of_cause(cause: Cause) -> Explanation:
    """Return how many calls failed for one cause, and the last of them."""
    one = cause.last
    place = f" on {where(one.host, one.job)}" if one.host else ""
    text = f"{one.call} failed{place}: {cause.words}"
    if cause.count > 1:
        text = f"{cause.count:,} calls failed, the last, {one.call},{place}: {cause.words}"
    return Explanation("failures", text, failure_step(cause.words, one.hint), one.host)


def _then(*steps: str) -> str:
    """Join steps that can be taken one after the other."""
    return "; ".join(filter(None, steps))


def _repeated(run: RunStatus) -> Explanation:
    return Explanation(
        "retried",
        f"{run.call} runs for the {ordinal(run.attempt)} time of {run.attempts} at most, now on "
        f"{where(run.host, run.job)}; before it was {run.history[-1]}",
        "find out whether the call or its node is at fault: `gridengine calls NAME --running`",
        run.host,
    )


def explain_call(answer: Answer, call: str) -> list[Explanation]:
    """Return what is known of a call. It may be named by a job's name, a call's id, its number or
    its label.
    """
    found: list[Explanation] = []
    status = answer.status
    for run in status.runs:
        if call in (run.id, *names_of(run.call)):
            state = "waits there for calls that it has made" if run.waits else "runs"
            text = (
                f"{run.call} {state} on {where(run.host, run.job)}, for {ago(run.seconds)} by "
                f"now, attempt {run.attempt} of {run.attempts}"
            )
            before = f"; before: {'; '.join(run.history)}" if run.history else ""
            found.append(Explanation("running", text + before, "", run.host))
    for one in status.failures:
        if call in (one.id, *names_of(one.call)):
            place = f" on {where(one.host, one.job)}" if one.host else ""
            text = f"{one.call} failed{place} at {clock(answer, one.seconds_ago)}: {cause_of(one)}"
            before = f"; attempts: {'; '.join(one.history)}" if one.history else ""
            log = f"its worker's log is {one.log}" if one.log else ""
            step = _then(failure_step(cause_of(one), one.hint), log)
            found.append(Explanation("failed", text + before, step, one.host))
    return found


def explain_worker(status: Status, name: str) -> list[Explanation]:
    """Return what is known of the workers with this id, process, cluster job or host."""
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
        found.append(Explanation(one.phase, text, f"its log is {one.log}" if one.log else "", name))
    return found


def explain_waiting(one: CallStatus) -> Explanation:
    """Return why a call has not begun."""
    since = f"{one.call} was submitted {ago(one.since_seconds)} ago"
    before = f"; before: {'; '.join(one.history)}" if one.history else ""
    if one.missing:
        return Explanation(
            "missing_inputs",
            f"{since}, and waits for {plural(one.missing, 'result')} of other calls{before}",
            "see what the other calls wait for, or whether they have failed",
        )
    asks = f" that ask for {one.request}" if one.request else ""
    text = f"{since}, and waits, one of {plural(one.waiting, 'call')}{asks}, for a worker{before}"
    return Explanation("waiting", text)


def _job(one: LaunchStatus) -> str:
    return f"cluster job {one.job}" if one.log else f"process {one.job}"


def _slots(queue: QueueStatus) -> str:
    return "workers" if not queue.slots else f"workers with {plural(queue.slots, 'slot')}"
