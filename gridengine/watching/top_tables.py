"""The tables of `gridengine top` and of the page; and one frame of `top`, as lines of text. All are
made from a dispatcher's answer alone.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from msgspec import Struct

from gridengine.dispatcher.watch_messages import WatchAnswer
from gridengine.display import printable
from gridengine.status.rows import ConnectedWorkerStatus, FunctionStatus, RunStatus
from gridengine.status.watch_events import WatchEvent
from gridengine.watching.call_descriptions import arguments_of, cause_of
from gridengine.watching.explanation import explain
from gridengine.watching.phrases import seconds, size

LEAST_WIDTH, LEAST_HEIGHT = 20, 5
BAR_CELLS = 40
MOST_WHY_LINES, LEAST_TABLE = 4, 6
"""The explanation of waiting calls has at most `MOST_WHY_LINES` lines, the table below it at least
`LEAST_TABLE`.
"""


class Column(NamedTuple):
    """A column: its title, its width (0 takes the rest), its value for a row, and how to show the
    value. Numbers are flush right, and sorted from the largest.
    """

    title: str
    width: int
    value: Callable[[Any], Any]
    show: Callable[[Any], str] = str


def _count(number: int) -> str:
    return f"{number:,}"


def _percent(processors: float | None) -> str:
    return "-" if processors is None else f"{100 * processors:.0f} %"


def _left_out(answer: WatchAnswer) -> list[WatchEvent]:
    """Return a row with the events that happened and are not listed, if there are any."""
    left_out = answer.status.left_out
    words = ", ".join(f"{count:,} {kind}" for kind, count in left_out.items())
    return [WatchEvent("left out", sum(left_out.values()), reason=words)] if left_out else []


VIEWS: Mapping[str, tuple[Callable[[WatchAnswer], Sequence[Any]], Sequence[Column]]] = {
    "functions": (
        lambda answer: answer.status.functions,
        (
            Column("function", 0, lambda one: one.name),
            Column("done", 9, lambda one: one.done, _count),
            Column("failed", 8, lambda one: one.failed, _count),
            Column("waiting", 9, lambda one: one.waiting, _count),
            Column("running", 8, lambda one: one.running, _count),
            Column("mean", 9, lambda one: one.mean_seconds, seconds),
            Column("memory", 9, lambda one: one.peak_memory, size),
            Column("p95", 9, lambda one: one.p95_seconds, seconds),
            Column("retried", 8, lambda one: one.retried, _count),
            Column("cancelled", 9, lambda one: one.cancelled, _count),
        ),
    ),
    "calls": (
        lambda answer: answer.status.runs,
        (
            Column("call", 0, lambda one: one.call),
            Column("arguments", 16, arguments_of),
            Column("host", 12, lambda one: one.host),
            Column("time", 8, lambda one: one.seconds, seconds),
            Column("memory", 8, lambda one: one.memory, size),
            Column("job", 10, lambda one: one.job),
            Column("attempt", 8, lambda one: one.attempt, _count),
        ),
    ),
    "workers": (
        lambda answer: answer.status.workers,
        (
            Column("host", 0, lambda one: one.host),
            Column("job", 10, lambda one: one.job),
            Column("state", 9, lambda one: one.phase),
            Column("used", 5, lambda one: one.running, _count),
            Column("slots", 5, lambda one: one.slots, _count),
            Column("queued", 6, lambda one: one.queued, _count),
            Column("cpu", 6, lambda one: one.processor, _percent),
            Column("memory", 8, lambda one: one.memory, size),
            Column("agent", 6, lambda one: one.agent_processor, _percent),
            Column("left", 10, lambda one: one.left_seconds, seconds),
            Column("load", 5, lambda one: one.load, lambda load: f"{load:.1f}" if load else "-"),
            Column("taken", 9, lambda one: one.taken, _count),
            Column("process", 8, lambda one: str(one.pid)),
            Column("holds", 30, lambda one: one.request),
        ),
    ),
    "failures": (
        lambda answer: answer.status.failures[::-1],
        (
            Column("call", 24, lambda one: one.call),
            Column("arguments", 16, arguments_of),
            Column("ago", 9, lambda one: one.seconds_ago, seconds),
            Column("why", 0, cause_of),
            Column("host", 12, lambda one: one.host),
        ),
    ),
    "events": (
        lambda answer: [*_left_out(answer), *answer.status.events[::-1]],
        (
            Column("ago", 9, lambda one: one.seconds_ago, seconds),
            Column("event", 16, lambda one: one.kind),
            Column("count", 9, lambda one: one.count, _count),
            Column("of", 20, lambda one: one.call or one.function or one.job),
            Column("host", 12, lambda one: one.host),
            Column("time", 8, lambda one: one.seconds, seconds),
            Column("why", 0, lambda one: one.reason),
        ),
    ),
    "log": (
        lambda answer: answer.lines[::-1],
        (
            Column("ago", 9, lambda one: one.seconds_ago, seconds),
            Column("line", 0, lambda one: one.text),
        ),
    ),
    "messages": (
        lambda answer: [
            (kind, answer.sent.get(kind, 0), answer.received.get(kind, 0))
            for kind in sorted({*answer.sent, *answer.received})
        ],
        (
            Column("message", 0, itemgetter(0)),
            Column("sent", 12, itemgetter(1), _count),
            Column("received", 12, itemgetter(2), _count),
        ),
    ),
}
"""The views: their rows and their columns. The last columns are left out where there is little
room.
"""


class View(Struct, frozen=True):
    """One of `VIEWS`, and the way it is shown: the column to sort by (None: unsorted), the
    direction, a text that rows must contain, and the first row. With `follow`, only rows of this
    worker, host, cluster job or function.
    """

    name: str = "functions"
    sort: int | None = None
    reverse: bool = False
    filter: str = ""
    follow: str = ""
    first: int = 0
    paused: bool = False

    @property
    def words(self) -> list[str]:
        """The words that limit a dispatcher's answers to these rows."""
        return [self.follow] if self.follow else []

    @property
    def columns(self) -> Sequence[Column]:
        return VIEWS[self.name][1]


def frame(
    answer: WatchAnswer,
    view: View,
    *,
    width: int,
    height: int,
    cpu: float | None = None,
    foot: str = "",
) -> list[str]:
    """Return the lines of a frame, at most `height` lines of at most `width` characters. `cpu` is
    the part of a processor that the dispatcher uses, `foot` the last line.
    """
    head = [*_head(answer, cpu, width, height), ""]
    tabs = "  ".join(f"[{name}]" if name == view.name else f" {name} " for name in VIEWS)
    room = max(height - len(head) - 2 - bool(foot), 1)
    body = table(view, rows_of(answer, view)[view.first :][:room], width)
    lines = [*head, tabs, *body]
    lines += [""] * (height - len(lines) - 1) + [foot] if foot else []
    return [line[:width] for line in lines[: max(height, LEAST_HEIGHT)]]


def _head(answer: WatchAnswer, cpu: float | None, width: int, height: int) -> list[str]:
    who, status = answer.identity, answer.status
    ended = status.ended
    total = ended + status.running + status.waiting
    full = int(BAR_CELLS * ended / total) if total else 0
    left = "" if status.left_seconds is None else f", about {seconds(status.left_seconds)} left"
    used = "" if cpu is None else f"{100 * cpu:.0f} % of a processor, "
    queued = sum(one.queued for one in status.launches)
    states = ", ".join([*status.state_words, *[f"{queued:,} queued"] * bool(queued)])
    waits = status.waiting or status.blocked
    why = next((one for one in explain(answer) if waits or status.faults), None)
    lines = [
        f"{who.name}: process {who.pid} on {who.host}, {who.scheduler}, for "
        f"{seconds(status.elapsed_seconds)}{left}",
        f"[{'#' * full}{'.' * (BAR_CELLS - full)}] {ended:,} of {total:,} calls ended",
        f"calls: {status.ended_words}, {status.retried:,} retried, "
        f"{status.running:,} running, {status.waiting:,} waiting",
        f"workers: {status.worker_words}"
        f"{f' ({states})' if states else ''}, {status.worker_slots:,} slots, "
        f"{status.lost_workers:,} lost",
        f"dispatcher: {used}{size(answer.memory)}",
        *textwrap.wrap(str(why or ""), max(width, LEAST_WIDTH))[:MOST_WHY_LINES],
    ]
    return lines[: max(height - LEAST_TABLE, 1)]


def rows_of(answer: WatchAnswer, view: View) -> list[Any]:
    """Return the rows of a view, filtered and sorted."""
    rows: list[Any] = list(VIEWS[view.name][0](answer))
    if view.name == "functions" and view.follow:
        rows = [row for row in rows if row.name == view.follow] or rows
    if view.name == "events" and view.follow:
        rows = [row for row in rows if view.follow in (row.function, row.host, row.job)]
    return arranged(rows, view.columns, view)


def arranged(rows: list[Any], columns: Sequence[Column], view: View) -> list[Any]:
    """Return rows filtered and sorted as a view says."""
    if view.filter:
        wanted = view.filter.lower()
        rows = [
            row
            for row in rows
            if any(wanted in str(column.value(row)).lower() for column in columns)
        ]
    if view.sort is not None and view.sort < len(columns):
        column = columns[view.sort]
        numbers = column.show is not str
        rows.sort(key=lambda row: _key(column.value(row)), reverse=numbers != view.reverse)
    return rows


def _key(value: Any) -> tuple[bool, Any]:
    return (value is not None, value if value is not None else 0)


def part_at(answer: WatchAnswer, view: View, size: tuple[int, int], x: int, y: int) -> Any:
    """Return the part of a frame of this size at column x and line y, from 0: the name of a view,
    the index of a column under its title, or a row of the table; None for other parts.
    """
    width, height = size
    line = y - len(_head(answer, None, width, height)) - 1
    if line == 0:
        start = 0
        for name in VIEWS:
            if start <= x < start + len(name) + 2:
                return name
            start += len(name) + 4
    if line == 1:
        start = 0
        for place, _, wide in _laid_out(view, width):
            start += wide + 1
            if x < start:
                return place
    rows = rows_of(answer, view)[view.first :]
    return rows[line - 2] if 2 <= line < len(rows) + 2 else None


_FOLLOWED: Mapping[type, Callable[[Any], str]] = {
    FunctionStatus: lambda row: row.name,
    ConnectedWorkerStatus: lambda row: row.id,
    WatchEvent: lambda row: row.function or row.host,
    RunStatus: lambda row: row.worker,
}


def followed_by(row: Any) -> str:
    """Return the name by which the subject of a row can be followed; empty if it cannot."""
    return _FOLLOWED[type(row)](row) if type(row) in _FOLLOWED else ""


def _laid_out(view: View, width: int) -> list[tuple[int, Column, int]]:
    """Return the columns for which there is room, each with its index and width."""
    places = list(enumerate(view.columns))
    fixed = [place for place, column in places if column.width]
    while fixed and sum(view.columns[one].width + 1 for one in fixed) > width - LEAST_WIDTH:
        fixed.pop()
    wide = width - sum(view.columns[one].width + 1 for one in fixed)
    return [
        (place, column, column.width or wide)
        for place, column in places
        if not column.width or place in fixed
    ]


def table(view: View, rows: Sequence[Any], width: int) -> list[str]:
    """Return a view's titles and rows as lines of this width, without columns that do not fit."""
    columns = _laid_out(view, width)
    titles = [
        (column, wide, f"{column.title}{'*' if place == view.sort else ''}")
        for place, column, wide in columns
    ]
    return [_line(titles)] + [
        _line([(column, wide, column.show(column.value(row))) for _, column, wide in columns])
        for row in rows
    ]


def _line(cells: Sequence[tuple[Column, int, str]]) -> str:
    shown = []
    for column, room, words in cells:
        if len(words) > room:
            words = f"{words[: max(room - 3, 0)]}..."
        words = printable(words.replace("\n", " "))
        flush_right = column.show is not str
        shown.append(words.rjust(room) if flush_right else words.ljust(room))
    return " ".join(shown).rstrip()
