"""Tables for the page, a window of rows at a time: the tables of `gridengine top`, and the calls
that have not ended, which may be a million.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from gridengine.dispatcher.watch_messages import CALLS, REPORT, STATUS, WINDOW, WatchAnswer
from gridengine.page.source import Source
from gridengine.status.rows import CallStatus, ConnectedWorkerStatus, FunctionStatus, Status
from gridengine.watching.call_descriptions import arguments_of, causes
from gridengine.watching.phrases import date, memory_to_ask_for, seconds, size
from gridengine.watching.top_tables import VIEWS, Column, View, arranged, rows_of

OPEN_CALLS, CAUSES, DURATIONS, SETTINGS = "open", "causes", "durations", "settings"
MOST_ROWS = 500


class Heading(Struct, frozen=True):
    """A column: its title, whether it holds numbers, its width in characters (0: the rest)."""

    title: str
    number: bool
    width: int


class Row(Struct, frozen=True):
    """A row: the key by which an action refers to it, and its cells."""

    key: str
    cells: Sequence[str]


class RowWindow(Struct, frozen=True):
    """Rows of a table from the `first` on, the `total` number of rows, a note about them, and
    whether they can be sorted.
    """

    columns: Sequence[Heading]
    rows: Sequence[Row]
    first: int
    total: int
    note: str = ""
    sortable: bool = True


OPEN_COLUMNS = (
    Column("call", 0, lambda one: one.call),
    Column("arguments", 18, arguments_of),
    Column("state", 12, lambda one: f"needs {one.missing:,} results" if one.missing else one.state),
    Column("asks for", 12, lambda one: one.request),
    Column("tried", 6, lambda one: len(one.history), "{:,}".format),
    Column("submitted", 9, lambda one: one.since_seconds, lambda ago: f"{seconds(ago)} ago"),
)


def _durations(one: FunctionStatus) -> str:
    """Return how many calls took how long, by powers of ten."""
    counts = Counter[float]()
    for upto, count in one.histogram:
        counts[10.0 ** math.ceil(math.log10(upto))] += count
    return "; ".join(f"{count:,} up to {seconds(upto)}" for upto, count in sorted(counts.items()))


def _settings(answer: WatchAnswer) -> list[tuple[str, object]]:
    who, status = answer.identity, answer.status
    return [
        ("gridengine", who.version),
        ("Python", who.python),
        ("script", who.script),
        ("folder", who.directory),
        ("max_workers", status.room),
        ("slots of a worker", status.slots),
        ("resources of a worker", status.worker_resources),
        *((f"setting {name}", value) for name, value in answer.settings.items() if value),
    ]


OWN_VIEWS: Mapping[str, tuple[Callable[[WatchAnswer], Sequence[Any]], Sequence[Column]]] = {
    CAUSES: (
        lambda answer: causes(answer.status.failures),
        (
            Column("calls", 7, lambda one: one.count, "{:,}".format),
            Column("cause", 0, lambda one: one.words),
            Column("the last", 20, lambda one: one.last.call),
            Column("arguments", 18, lambda one: arguments_of(one.last)),
            Column("host", 14, lambda one: one.last.host),
            Column("log", 30, lambda one: one.last.log),
        ),
    ),
    DURATIONS: (
        lambda answer: answer.status.functions,
        (
            Column("function", 22, lambda one: one.name),
            Column("mean", 9, lambda one: one.mean_seconds, seconds),
            Column("p95", 9, lambda one: one.p95_seconds, seconds),
            Column("memory", 9, lambda one: one.peak_memory, size),
            Column("asked for", 9, lambda one: one.asked_memory, size),
            Column("suggestion", 14, lambda one: memory_to_ask_for(one.peak_memory)),
            Column("durations", 0, _durations),
        ),
    ),
    SETTINGS: (
        _settings,
        (Column("name", 30, lambda one: one[0]), Column("value", 0, lambda one: str(one[1]))),
    ),
}
"""The tables of the page alone, as in `VIEWS`."""


def window(source: Source, view: View, most: int) -> RowWindow:
    """Return rows of a view, one of `TABLES`."""
    most = max(0, min(most, MOST_ROWS))
    if view.name == OPEN_CALLS:
        return _open_calls(source, view, most)
    return table(source.ask(REPORT if view.name == SETTINGS else STATUS), view, most)


def table(answer: WatchAnswer, view: View, most: int | None = None) -> RowWindow:
    """Return rows of a view, any of `TABLES` but the open calls; without `most` all rows, for a
    report: with dates instead of how long ago something was.
    """
    if view.name in OWN_VIEWS:
        listed, columns = OWN_VIEWS[view.name]
        found = arranged(list(listed(answer)), columns, view)
    else:
        columns, found = view.columns, rows_of(answer, view)
    if most is None:
        most, at = len(found), partial(date, answer)
        columns = [
            one._replace(title="at", width=20, show=at) if one.title == "ago" else one
            for one in columns
        ]
    first = _first(view, most, len(found))
    rows = [_row(one, columns) for one in found[first : first + most]]
    note = _note(view.name, answer.status)
    return RowWindow(_headings(columns), rows, first, len(found), note)


def _open_calls(source: Source, view: View, most: int) -> RowWindow:
    if view.filter:
        named = source.ask(CALLS, most=0, words=[view.filter]).calls
        found = [one for one in named if one.state != "ended"]
        total = len(found)
        calls: Sequence[CallStatus] = found[_first(view, most, total) :][:most]
    else:
        answer = source.ask(WINDOW, most=most, first=view.first)
        calls, total = answer.calls, answer.count
    first = _first(view, most, total)
    rows = [_row(one, OPEN_COLUMNS) for one in calls]
    note = "as they were submitted; a filter here is a call's number, its id, or a job's name"
    return RowWindow(_headings(OPEN_COLUMNS), rows, first, total, note, sortable=False)


def _first(view: View, most: int, total: int) -> int:
    """Return the index of the first row: the requested one, unless the table ends before."""
    return max(0, min(view.first, total - most))


def _headings(columns: Sequence[Column]) -> list[Heading]:
    # A title is in bold, and is cut where it has no more room than its letters.
    return [
        Heading(one.title, one.show is not str, one.width and max(one.width, len(one.title) + 1))
        for one in columns
    ]


def _row(one: Any, columns: Sequence[Column]) -> Row:
    key = one.host if isinstance(one, ConnectedWorkerStatus) else getattr(one, "id", "")
    return Row(key, [column.show(column.value(one)) for column in columns])


def _note(view: str, status: Status) -> str:
    """Return which rows a table leaves out; empty where it leaves out none."""
    if view == "workers" and len(status.workers) < status.worker_count:
        return f"an even sample of {len(status.workers):,} of {status.worker_count:,} workers"
    failed = status.failed + status.cancelled
    if view == "failures" and len(status.failures) < failed:
        return f"the last {len(status.failures):,} of {failed:,} that failed or were cancelled"
    if view != "calls":
        return ""
    waits = f"{status.waiting:,} calls wait; calls that ended with a value are only counted"
    if len(status.runs) == status.running:
        return waits
    return f"{len(status.runs):,} of {status.running:,} calls that run, the oldest; {waits}"


TABLES = (*VIEWS, *OWN_VIEWS, OPEN_CALLS)
