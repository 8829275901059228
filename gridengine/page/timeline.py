"""The timeline of a run: which worker ran which call when."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gridengine.dispatcher.watch_messages import WatchAnswer

MOST_ROWS, PARTS = 100, 60
SLACK = 0.05
"""Calls that overlap by at most this many seconds are drawn in one row."""


class TimelineBar(Struct, frozen=True):
    """One call, or several in a row: the row, the start in seconds after the dispatcher's, the
    duration so far, the function, and the state.
    """

    row: int
    start: float
    seconds: float
    function: str
    state: str = "done"
    """`done`, `failed` or `running`."""
    died: str = ""
    """See `EndedCall`."""


class Timeline(Struct, frozen=True):
    """The drawing of a run of this many `seconds`. Each worker has as many rows as it ran calls at
    a time, the first with its name. `left_out` calls of the sample have no row. `rates` are how
    many calls ended each second, in equal parts of the run: of a second, or `PARTS` of them.
    """

    seconds: float
    rows: Sequence[str] = ()
    bars: Sequence[TimelineBar] = ()
    left_out: int = 0
    rates: Sequence[float] = ()


def timeline_of(answer: WatchAnswer) -> Timeline:
    """Return the timeline of a run from its dispatcher's answer for a report."""
    total = max(answer.status.elapsed_seconds, 1e-3)
    calls = sorted(_calls(answer, total), key=lambda one: one[1].start)
    lanes = _lanes(calls)
    rows = {lane: row for row, lane in enumerate(sorted(set(lanes))[:MOST_ROWS])}
    bars = [
        replace(one, row=rows[lane])
        for (_, one), lane in zip(calls, lanes, strict=True)
        if lane in rows
    ]
    names = [worker if not lane else "" for worker, lane in rows]
    return Timeline(total, names, bars, len(calls) - len(bars), _rates(answer, total))


def _rates(answer: WatchAnswer, total: float) -> list[float]:
    """Return how many calls ended each second, by the sample. A row of short calls counts as if
    they had ended at equal intervals.
    """
    parts = min(max(int(total), 1), PARTS)
    counts = [0.0] * parts
    for one in answer.timeline:
        begun, ends = total - one.seconds_ago - one.seconds, min(one.calls, parts)
        for number in range(1, ends + 1):
            part = math.ceil(parts * (begun + one.seconds * number / ends) / total)
            counts[min(max(part, 1), parts) - 1] += one.calls / ends
    # The sample leaves calls out evenly; where it has none, they are taken to have ended evenly.
    seen, even = sum(counts), answer.status.ended / total
    return [even * parts * count / seen if seen else even for count in counts]


def _calls(answer: WatchAnswer, total: float) -> Iterator[tuple[str, TimelineBar]]:
    """Yield the ended calls of the sample, and the running calls, each with its worker and without
    a row yet.
    """
    for one in answer.timeline:
        begun, state = total - one.seconds_ago - one.seconds, "failed" if one.failed else "done"
        bar = TimelineBar(0, max(0.0, begun), one.seconds, one.function, state, one.died)
        yield one.worker, bar
    workers = {one.id: f"{one.host} {one.job or one.pid}" for one in answer.status.workers}
    for run in answer.status.runs:
        begun = max(0.0, total - run.seconds)
        bar = TimelineBar(0, begun, run.seconds, run.function, "running")
        yield workers.get(run.worker, f"{run.host} {run.job}"), bar


def _lanes(calls: Sequence[tuple[str, TimelineBar]]) -> list[tuple[str, int]]:
    """Return for each call, sorted by start, its worker and a lane: a number that no overlapping
    call of that worker has.
    """
    lanes: list[tuple[str, int]] = []
    ends: dict[str, list[float]] = {}
    for worker, one in calls:
        taken = ends.setdefault(worker, [])
        free = (place for place, end in enumerate(taken) if end <= one.start + SLACK)
        lane = next(free, len(taken))
        taken[lane : lane + 1] = [one.start + one.seconds]
        lanes.append((worker, lane))
    return lanes
