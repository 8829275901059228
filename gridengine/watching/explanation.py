"""Explain why calls wait, what is unusual about running ones, and which step may help, from a
dispatcher's status alone.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from msgspec.structs import replace

from gridengine.arguments import format_seconds
from gridengine.dispatcher.watch_messages import Identity, WatchAnswer
from gridengine.display import plural
from gridengine.status.rows import (
    ConnectedWorkerStatus,
    FunctionStatus,
    LaunchStatus,
    QueueStatus,
    RunStatus,
    Status,
)
from gridengine.watching.call_descriptions import Cause, causes
from gridengine.watching.next_steps import (
    failure_step,
    reason_and_step,
    resume_step,
    silence_step,
    words_of,
)
from gridengine.watching.phrases import (
    Explanation,
    ago,
    are,
    memory_to_ask_for,
    on,
    seconds,
    size,
    then,
    where,
)

NAME = re.compile(r"(?<=gridengine )([a-z]+ (?:[a-z]+ )?)NAME\b")
"""The place of the dispatcher's name in a command line of this package."""
MOST_CAUSES = 5
"""How many causes of failures are told, the most frequent first."""
STRAGGLING, LEAST_STRAGGLING_SECONDS = 4.0, 10.0
"""A call is reported that takes this many times as long as 95 % of its function's calls, and at
least so many seconds.
"""
NEAR_END_SECONDS = 120.0
WASTEFUL = 4
"""Calls are reported that request over this many times as much memory as they use."""
SMALL_SECONDS, MANY_CALLS = 2e-3, 2000
"""Calls shorter than this, and at least this many, spend most of their time on the way."""


def explain(answer: WatchAnswer) -> list[Explanation]:
    """Return why calls wait, and everything else that is unusual, the most important first."""
    status, who = answer.status, answer.identity
    if answer.killed:
        return [_killed(who)]
    found = [
        *_unwritable(status),
        *_waiting(status, who),
        *oddities(status, who),
        *_failing(status),
    ]
    if found:
        name = shlex.quote(who.name)
        steps = (NAME.sub(lambda match: match[1] + name, one.next_step) for one in found)
        return [replace(one, next_step=step) for one, step in zip(found, steps, strict=True)]
    return [Explanation("nothing", f"Nothing waits, and nothing runs; calls: {status.ended_words}")]


def _killed(who: Identity) -> Explanation:
    return Explanation(
        "killed",
        f"The process {who.pid} was killed before it could write a report on its calls",
        "was it `kill -9`, too little memory (`dmesg`), or a batch job's limit? "
        + (f"The workers' logs are below {who.folder}" if who.folder else "Nothing else is kept"),
        who.host,
    )


def _unwritable(status: Status) -> Iterator[Explanation]:
    for one in status.faults:
        yield Explanation(
            "disk",
            f"{one.path} cannot be written: {one.error}; {one.loss}",
            f"make room there (`df -h {one.path}`, or `quota`), or allow this user to write "
            "it; the run then goes on by itself. GRIDENGINE_RUN_DIRECTORY names another folder for "
            "the next run",
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
            found = _of_queue(status, who, queue, launches)
            step = _room(status, who) if found.cause == "max_workers" else ""
            yield replace(found, next_step=step or found.next_step)


def _room(status: Status, who: Identity) -> str:
    """Return how to get more workers; empty where a script has set max_workers."""
    if who.home and not status.local:
        return "`gridengine scale NAME N` has N workers there, if there is room; or wait"
    if who.home:
        return "wait; or stop it, and `gridengine dispatcher start NAME --max-workers N`"
    if status.local:
        return (
            "wait; a larger max_workers= helps calls that do not compute all the time (the "
            "default is the number of processors)"
        )
    return ""


def _of_queue(
    status: Status, who: Identity, queue: QueueStatus, launches: LaunchStatus
) -> Explanation:
    calls = plural(queue.waiting, "call")
    if queue.request:
        calls += f" that ask{'s' if queue.waiting == 1 else ''} for {queue.request}"
    calls += " waits" if queue.waiting == 1 else " wait"
    if queue.command is not None:
        return _of_people(queue, queue.command, calls)
    return (
        _of_start(launches, calls)
        or _of_queued(status, who, launches, calls)
        or _of_failures(launches, calls)
        or _of_limit(status, launches, calls)
        or _of_silence(status, who, calls)
        or _of_slots(status, queue, calls)
    )


def _of_people(queue: QueueStatus, command: str, calls: str) -> Explanation:
    text = f"no worker holds {queue.request}" if queue.request else "there is no worker"
    step = f"start one: {command}" if command else "ask for kinds that `gridengine worker` offers"
    return Explanation("no_worker", f"{calls}: {text}", step)


def _of_start(one: LaunchStatus, calls: str) -> Explanation | None:
    if one.workers or not one.starting:
        return None
    if one.unanswered:
        return Explanation(
            "unreachable",
            f"{calls}: cluster job {one.job} runs, and its worker gets no answer from this "
            f"dispatcher: {one.unanswered}",
            "see whether a firewall is between, and set GRIDENGINE_HOST to an address of this "
            "machine that the nodes reach; or have messages travel as files: transport='files'",
            one.job,
        )
    job = f"cluster job {one.job}" if one.log else f"process {one.job}"
    return Explanation(
        "starting",
        f"{calls}: {job} has begun, and its worker has not connected yet: it imports and "
        f"connects, on a slow file system it takes longer ({ago(one.job_seconds)} by now)",
        f"wait; its log is {one.log}" if one.log else "wait",
        one.job,
    )


def _of_queued(status: Status, who: Identity, one: LaunchStatus, calls: str) -> Explanation | None:
    if not one.queued:
        return None
    reason, step = reason_and_step(who.scheduler, one.reason, one.job)
    reason = reason or "the batch system gives no reason"
    have = f"; {plural(one.workers, 'worker')} {are(one.workers)} there" if one.workers else ""
    ours = status.allocation
    held = f"; the script itself holds {ours}, and they may wait for these" if ours else ""
    return Explanation(
        "queued",
        f"{calls}: {plural(one.queued, 'worker')} {are(one.queued)} in the batch system's "
        f"queue, the first, cluster job {one.job}, for {ago(one.job_seconds)}{have}: {reason}"
        f"{held}{_left_out(one)}",
        then(step, f"without a scheduler= calls run on {ours}" if ours else ""),
        one.job,
    )


def _of_failures(one: LaunchStatus, calls: str) -> Explanation | None:
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
        f"{one.reason or 'no reason is given'}{again if one.held_back_seconds else ''}"
        f"{_left_out(one)}",
        failure_step(one.reason)
        or "`gridengine doctor` says whether a trivial job returns; the run's logs may say why",
    )


def _left_out(one: LaunchStatus) -> str:
    hosts = ", ".join(one.left_out)
    return f"; left out, since no worker could be started there: {hosts}" if hosts else ""


def _of_limit(status: Status, one: LaunchStatus, calls: str) -> Explanation | None:
    if one.workers or status.worker_count < status.max_workers:
        return None
    return Explanation(
        "max_workers",
        f"{calls}: max_workers={status.room} workers are there, all for calls that ask for "
        "something else, and these must end or go first",
        "give the scheduler a larger max_workers=, or worker_resources= for all calls to share",
    )


def _of_silence(status: Status, who: Identity, calls: str) -> Explanation | None:
    told = silence(status, who)
    if told is None or status.statuses["silent"] < status.worker_count:
        return None
    return replace(told, text=f"{calls}: {told.text}")


def _of_slots(status: Status, queue: QueueStatus, calls: str) -> Explanation:
    running = plural(queue.running, "call") if queue.running else "none"
    slots = f" with {plural(queue.slots, 'slot')}" if queue.slots else ""
    text = f"{calls} for a free slot: {running} {are(queue.running)} at workers{slots}"
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
    rest = status.failed - sum(one.count for one in found[:MOST_CAUSES])
    others = f"; {plural(rest, 'other call')} failed too" if rest else ""
    if status.cancelled:
        were = "was" if status.cancelled == 1 else "were"
        others += f"; {plural(status.cancelled, 'call')} {were} cancelled"
    logs = ", and `gridengine logs NAME --failed` shows what their workers wrote"
    where_to_look = "`gridengine calls NAME --failed` lists them" + logs * any(
        one.log for one in status.failures
    )
    yield from told[:-1]
    last = told[-1]
    step = then(last.next_step, where_to_look)
    yield replace(last, text=last.text + others, next_step=step)


def _of_cause(cause: Cause) -> Explanation:
    """Return how many calls failed for one cause, and the last of them."""
    one = cause.last
    place = on(one.host, one.job)
    text = f"{one.call} failed{place}: {cause.words}"
    if cause.count > 1:
        text = f"{cause.count:,} calls failed, the last, {one.call},{place}: {cause.words}"
    return Explanation("failures", text, failure_step(cause.words, one.hint), one.host)


def _repeated(run: RunStatus) -> Explanation:
    return Explanation(
        "retried",
        f"{run.call} is at attempt {run.attempt} of {run.attempts}, now on "
        f"{where(run.host, run.job)}; the attempt before was {run.history[-1]}",
        "find out whether the call or its node is at fault: `gridengine calls NAME --running`",
        run.host,
    )


def oddities(status: Status, who: Identity) -> Iterator[Explanation]:
    """Yield everything unusual, the most urgent first."""
    told = silence(status, who)
    if told is not None:
        yield told
    yield from _stragglers(status)
    ends = [(one.left_seconds, one) for one in status.workers if one.left_seconds is not None]
    left, first = min(ends, key=lambda end: end[0], default=(NEAR_END_SECONDS, None))
    if first is not None and left < NEAR_END_SECONDS:
        yield _ending(first, left, who)
    if status.running and not status.waiting:
        yield _last_calls(status)
    for one in status.functions:
        yield from _of_function(status, one)


def silence(status: Status, who: Identity) -> Explanation | None:
    """Return which workers are silent, and why; None when none is."""
    silent = status.statuses.get("silent", 0)
    if not silent:
        return None
    first = max(
        (one for one in status.workers if one.phase == "silent"),
        key=lambda one: (not one.suspended, one.heard_seconds),
        default=None,
    )
    place = where(first.host, first.job) if first is not None else ""
    which = f"{silent:,} of {plural(status.worker_count, 'worker')} {are(silent)}"
    if first is not None and first.suspended:
        step = resume_step(who.scheduler, first.job)
        return Explanation("silent", f"{which} suspended, the first on {place}", step, first.host)
    on = f", the longest on {place}, for {ago(first.heard_seconds)}" if first else ""
    return Explanation(
        "silent",
        f"{which} silent{on}: suspended, their machine is down or overloaded, or the network is "
        "cut",
        silence_step(who.scheduler, first.job if first is not None else ""),
        first.host if first is not None else "",
    )


def _stragglers(status: Status) -> Iterator[Explanation]:
    p95 = {one.name: one.p95_seconds for one in status.functions}
    for run in status.runs:
        usual = p95.get(run.function)
        limit = max(STRAGGLING * (usual or 0.0), LEAST_STRAGGLING_SECONDS)
        if usual is not None and run.seconds > limit:
            yield Explanation(
                "straggler",
                f"{run.call} has run for {ago(run.seconds)} on {where(run.host, run.job)}, where "
                f"95 % of the calls of {run.function} took {seconds(usual)} at most",
                "look at its output and at its node; timeout= ends such calls",
                run.host,
            )
            return


def _ending(worker: ConnectedWorkerStatus, left: float, who: Identity) -> Explanation:
    words = words_of(who.scheduler)
    own = f" or the scheduler's {words.time_argument()}=" if words is not None else ""
    return Explanation(
        "walltime",
        f"The worker on {where(worker.host, worker.job)} leaves in {ago(left)}"
        ", when its walltime is nearly over; calls that have not ended by then run again elsewhere",
        f"give calls that take longer more time, by WTime{own}",
        worker.host,
    )


def _last_calls(status: Status) -> Explanation:
    idle, step = status.statuses.get("idle", 0), ""
    text = f"Nothing waits: {plural(status.running, 'call')} {are(status.running)} running"
    if status.runs:
        first = status.runs[0]
        text += f", the first, {first.call}, on {where(first.host, first.job)} for "
        text += ago(first.seconds)
    if idle:
        text += f"; {plural(idle, 'worker')} {are(idle)} idle, and end when they are not needed"
        step = "wait; next time hand in the longest calls first, or divide them into more calls"
    return Explanation("running", text, step, status.runs[0].host if status.runs else "")


def _of_function(status: Status, one: FunctionStatus) -> Iterator[Explanation]:
    if one.asked_memory > WASTEFUL * one.peak_memory > 0:
        yield Explanation(
            "memory",
            f"Calls of {one.name} ask for {size(one.asked_memory)} of memory, and were seen to use "
            f"{size(one.peak_memory)} at most",
            f"ask for {memory_to_ask_for(one.peak_memory)}: more run at a time, and start sooner",
            one.name,
        )
    if one.grown_memory:
        yield Explanation(
            "leak",
            f"Processes that run {one.name} have more memory from call to call: one has grown by "
            f"{size(one.grown_memory)}, to {size(one.peak_memory)} at most",
            f"see what {one.name} keeps, in global variables, caches or a library; a process that "
            "makes one call at a time and is replaced helps: "
            "Executor(max_tasks_per_child=) or Pool(maxtasksperchild=)",
            one.name,
        )
    ended, mean = one.ended, one.mean_seconds
    small = ended >= MANY_CALLS and mean is not None and mean < SMALL_SECONDS
    if small and (status.running or status.waiting):
        yield Explanation(
            "small_calls",
            f"{ended:,} calls of {one.name} took {seconds(mean)} on average: to send them and "
            "their results takes as long as they do",
            "let each call do more, as for a hundred items at a time; and leave chunksize= out",
            one.name,
        )
