"""Find what is odd about running calls and their workers, from figures alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gridengine.display import plural
from gridengine.status.rows import FunctionStatus, Status, WorkerStatus
from gridengine.watching.formats import memory_to_ask_for, seconds, size
from gridengine.watching.phrases import RESUME, Explanation, ago, are, where

STRAGGLING = 4.0
"""A call is reported that takes this many times as long as 95 % of its function's calls."""
LEAST_STRAGGLING_SECONDS = 10.0
NEAR_END_SECONDS = 120.0
WASTEFUL = 4
"""Calls are reported that request over this many times as much memory as they use."""
SMALL_SECONDS, MANY_CALLS = 2e-3, 2000
"""Calls shorter than this, and at least this many, spend most of their time on the way."""
SKEWED_CALLS, LONGEST_PART, MOST_TIME = 20, 0.1, 0.5
"""A function with at least this many calls is reported if at most this part of the calls takes more
than this part of all time. Counted are calls that take `SKEWED_TIMES` as long as the median; the
longest must take at least `LEAST_SKEWED_SECONDS`.
"""
SKEWED_TIMES, LEAST_SKEWED_SECONDS = 8.0, 1.0
QUICK_SECONDS = 1e-3
"""The duration that is assumed for quicker calls."""
WRONG_CLOCK_SECONDS = 5.0


def oddities(status: Status) -> Iterator[Explanation]:
    """Yield what is odd, the most urgent first."""
    told = silence(status)
    if told is not None:
        yield told
    yield from _stragglers(status)
    ends = [(one.left_seconds, one) for one in status.workers if one.left_seconds is not None]
    left, first = min(ends, key=lambda end: end[0], default=(NEAR_END_SECONDS, None))
    if first is not None and left < NEAR_END_SECONDS:
        yield _ending(first, left)
    if status.running and not status.waiting:
        yield _last_calls(status)
    for one in status.functions:
        yield from _of_function(status, one)
    yield from _clocks(status.workers)


def silence(status: Status) -> Explanation | None:
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
        return Explanation("silent", f"{which} suspended, the first on {place}", RESUME, first.host)
    on = f", the longest on {place}, for {ago(first.heard_seconds)}" if first else ""
    return Explanation(
        "silent",
        f"{which} silent{on}: suspended, their machine is down or overloaded, or the network is "
        "cut",
        "look at the jobs' states with the batch system's own command, and at that machine; "
        "their calls run again elsewhere if they stay silent",
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


def _ending(worker: WorkerStatus, left: float) -> Explanation:
    return Explanation(
        "walltime",
        f"The worker on {where(worker.host, worker.job)} leaves in {ago(left)}"
        ", when its walltime is nearly over; calls that have not ended by then run again elsewhere",
        "give calls that take longer more time, by WTime or the scheduler's h_rt= or time=",
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
    yield from _skewed(one)
    if status.running or status.waiting:
        yield from _small(one)


def _small(one: FunctionStatus) -> Iterator[Explanation]:
    ended, mean = one.done + one.failed, one.mean_seconds
    if ended >= MANY_CALLS and mean is not None and mean < SMALL_SECONDS:
        yield Explanation(
            "small_calls",
            f"{ended:,} calls of {one.name} took {seconds(mean)} on average: to send them and "
            "their results takes as long as they do",
            "let each call do more, as for a hundred items at a time; and leave chunksize= out",
            one.name,
        )


def _skewed(one: FunctionStatus) -> Iterator[Explanation]:
    calls, steps = one.done + one.failed, one.histogram
    long = [step for step in steps if step[0] > SKEWED_TIMES * _median(one)]
    count = sum(number for _, number in long)
    if calls < SKEWED_CALLS or not 0 < count <= LONGEST_PART * calls:
        return
    taken, total = (sum(upto * number for upto, number in some) for some in (long, steps))
    most = max(upto for upto, _ in long)
    if taken > MOST_TIME * total and most >= LEAST_SKEWED_SECONDS:
        yield Explanation(
            "skew",
            f"Calls of {one.name} take very different times: {count:,} of {calls:,} have taken "
            f"{100 * taken / total:.0f} % of all time, up to {seconds(most)} each, most of the "
            f"others {seconds(_median(one))} at most",
            "hand in the long calls first, with chunksize=1: else they begin last, and all "
            "wait for them",
            one.name,
        )


def _median(one: FunctionStatus) -> float:
    """Return the median duration of the calls, in seconds."""
    calls = one.done + one.failed
    left = calls / 2 - (calls - sum(number for _, number in one.histogram))
    for upto, number in one.histogram:
        if left <= 0:
            break
        left -= number
        if left <= 0:
            return upto
    return QUICK_SECONDS


def _clocks(workers: Sequence[WorkerStatus]) -> Iterator[Explanation]:
    told = [one for one in workers if abs(one.clock_ahead or 0.0) > WRONG_CLOCK_SECONDS]
    if not told:
        return
    worst = max(told, key=lambda one: abs(one.clock_ahead or 0.0))
    ahead = worst.clock_ahead or 0.0
    hosts = len({one.host for one in told})
    also = f", as does that of {plural(hosts - 1, 'other machine')}" if hosts > 1 else ""
    yield Explanation(
        "clock",
        f"The clock of {where(worst.host, worst.job)} differs by {ago(abs(ahead))} from that of "
        f"this dispatcher's machine, and is {'ahead' if ahead > 0 else 'behind'}{also}: calls run "
        "as they should, but the times of files, logs and cached results are wrong",
        "have the administrators look after NTP there (`chronyc tracking`, `timedatectl`)",
        worst.host,
    )
