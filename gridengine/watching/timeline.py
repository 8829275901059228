"""Which worker ran which call when: calls as bars in rows, for the report and the page."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from gridengine.dispatcher.watch_messages import Answer

MOST_ROWS = 100
SLACK = 0.05
"""Calls that overlap by at most this many seconds are drawn in one row."""


class Bar(Struct, frozen=True):
    """One call, or several in a row: the row, the start in seconds after the dispatcher's, the
    duration so far, the function, and the state.
    """

    row: int
    start: float
    seconds: float
    function: str
    state: str = "done"
    """`done`, `failed` or `running`."""


class Timeline(Struct, frozen=True):
    """The drawing of a run of this many `seconds`. Each worker has as many rows as it ran calls at
    a time, the first with its name. `left_out` calls of the sample have no row.
    """

    seconds: float
    rows: Sequence[str] = ()
    bars: Sequence[Bar] = ()
    left_out: int = 0


def timeline_of(answer: Answer) -> Timeline:
    """Return the timeline of a run from its dispatcher's answer for a report."""
    total = max(answer.status.elapsed_seconds, 1e-3)
    calls = sorted([*_ended(answer, total), *_running(answer, total)], key=lambda one: one[1].start)
    lanes = _lanes(calls)
    rows = {lane: row for row, lane in enumerate(sorted(set(lanes))[:MOST_ROWS])}
    bars = [
        Bar(rows[lane], one.start, one.seconds, one.function, one.state)
        for (_, one), lane in zip(calls, lanes, strict=True)
        if lane in rows
    ]
    names = [worker if not lane else "" for worker, lane in rows]
    return Timeline(total, names, bars, len(calls) - len(bars))


def _ended(answer: Answer, total: float) -> list[tuple[str, Bar]]:
    return [
        (
            one.worker,
            Bar(
                0,
                max(0.0, total - one.seconds_ago - one.seconds),
                one.seconds,
                one.function,
                "failed" if one.failed else "done",
            ),
        )
        for one in answer.timeline
    ]


def _running(answer: Answer, total: float) -> list[tuple[str, Bar]]:
    workers = {one.id: f"{one.host} {one.job or one.pid}" for one in answer.status.workers}
    return [
        (
            workers.get(one.worker, f"{one.host} {one.job}"),
            Bar(0, max(0.0, total - one.seconds), one.seconds, one.function, "running"),
        )
        for one in answer.status.runs
    ]


def _lanes(calls: Sequence[tuple[str, Bar]]) -> list[tuple[str, int]]:
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
