"""Calls that were handed in, or handed out, and have not begun: how they are taken back. Sans-I/O,
functions over the core.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gridengine.dispatcher.core import failures
from gridengine.dispatcher.core.events import RecallRequested, Send
from gridengine.dispatcher.core.model import Open, Phase, Run, Span, Worker
from gridengine.wire.messages import Recall

if TYPE_CHECKING:
    from gridengine.dispatcher.core.state import StateMachine

MAKE_WAY_SECONDS = 0.05
MOST_LOOKED_AT = 200
"""How many runs are looked at for workers that have too much."""


def asked(core: StateMachine, event: RecallRequested, now: float) -> None:
    """Take calls out of the queues, and have workers give back those that they have not begun."""
    calls = {task: (start, stop) for task, start, stop in event.calls if task in core.open}
    named = [core.open[task] for task in calls]
    submitters = dict.fromkeys(one.submitter for one in named)
    for pool in list(core.pools.values()):
        for span in pool.take_out(calls, submitters):
            settle(core, span)
        if core.allocator is not None:
            core.allocator.stir(pool)
    for one in named:
        _recall(core, one, calls[one.task.id], now)
    core.scale(now)


def _recall(core: StateMachine, one: Open, calls: tuple[int, int], now: float) -> None:
    """Have workers that have such calls of a task, not begun, give back all that they have not
    begun: runners let go of it as a whole.
    """
    start, stop = calls
    per_worker: dict[int, list[Run]] = {}
    for run in map(core.runs.__getitem__, one.runs):
        if run.span.attempt == 1 and start < run.span.stop and run.done < stop:
            per_worker.setdefault(id(run.worker), []).append(run)
    for runs in per_worker.values():
        begun = runs[0].worker.under_way()
        spare = [run for run in runs if run.number not in begun or stop > run.done + 1]
        if spare:
            one.recalled = *(known for known in one.recalled if not _within(known, calls)), calls
            send(core, spare[0].worker, spare[0].worker.spare(), now)


def _within(inner: tuple[int, int], outer: tuple[int, int]) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def come_back(core: StateMachine, span: Span) -> None:
    """Settle of calls that a worker gave back those that are not to begin any more, and have the
    others wait.
    """
    rest = [span]
    for first, last in span.open.recalled:
        parts, rest = rest, []
        for part in parts:
            start, stop = max(first, part.start), min(last, part.stop)
            if start >= stop:
                rest.append(part)
                continue
            settle(core, replace(part, start=start, stop=stop))
            rest += [replace(part, stop=start), replace(part, start=stop)]
    for part in reversed(rest):
        if part.calls:
            core.put_back(part)


def make_way(core: StateMachine, now: float) -> None:
    """Have workers give back what they have not begun, for somebody who has no share of them yet;
    every now and then.
    """
    if core.restless and now - core.made_way_at >= MAKE_WAY_SECONDS:
        core.made_way_at = now
        for worker in {
            id(run.worker): run.worker for run in islice(core.runs.values(), MOST_LOOKED_AT)
        }.values():
            send(core, worker, worker.spare(), now)


def send(core: StateMachine, worker: Worker, runs: Sequence[Run], now: float) -> None:
    """Have a worker give back of these runs what it has not begun."""
    if worker.phase is Phase.READY and runs:
        for run in runs:
            run.touched, run.recalled = now, True
        core.effects.append(Send(worker.id, Recall([run.number for run in runs])))


def settle(core: StateMachine, span: Span) -> None:
    """Tell that calls were taken back."""
    core.settle(
        span,
        span.start,
        span.stop,
        error=failures.why_cancelled(span, None),
        exitcode=1,
        recalled=True,
    )
