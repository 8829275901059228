"""Tables, a window of their rows at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gridengine.dispatcher.watch_messages import CALLS, WINDOW, WatchAnswer
from gridengine.page.rows import (
    CAUSES,
    DURATIONS,
    MOST_ROWS,
    OPEN_CALLS,
    SETTINGS,
    RowWindow,
    window,
)
from gridengine.status.figures import FailureStatus
from gridengine.status.rows import CallStatus, ConnectedWorkerStatus, FunctionStatus, Status
from gridengine.watching.top_tables import View
from tests.support.watched import WHO

BUSY = ConnectedWorkerStatus("w1", "node1", 7, "4711", "", "busy", 60.0, 1.0, None, 1, 5, 1, 0, 0)


class Told:
    """A dispatcher with these calls, or this status."""

    def __init__(self, *calls: CallStatus, status: Status | None = None) -> None:
        self.calls = calls
        self.status = status or Status()

    def ask(
        self, ask: str = "", *, most: int = 100, words: Sequence[str] = (), first: int = 0
    ) -> WatchAnswer:
        told: Sequence[CallStatus] = ()
        if ask == CALLS:
            told = [one for one in self.calls if words[0] in (one.id, one.call)]
        elif ask == WINDOW:
            first = max(0, min(first, len(self.calls) - most))
            told = self.calls[first : first + most]
        return WatchAnswer(WHO, self.status, calls=told, count=len(self.calls))


def rows(source: Any, view: View, most: int = 100) -> RowWindow:
    return window(source, view, most)


def call(number: int, state: str = "waiting", missing: int = 0) -> CallStatus:
    return CallStatus(f"1.{number}", "call 7 of f", "f", state, 5.0, missing=missing)


def keys(found: RowWindow) -> list[str]:
    return [row.key for row in found.rows]


OPEN = Told(*(call(number) for number in range(10)))


@pytest.mark.parametrize(
    ("first", "most", "begins", "count"),
    [(0, 3, 0, 3), (4, 3, 4, 3), (9, 3, 7, 3), (-1, 3, 0, 3), (0, 100, 0, 10), (5, 0, 5, 0)],
)
@pytest.mark.parametrize("words", ["", "call 7 of f"])
def test_a_window_ends_where_the_calls_do_also_of_those_that_a_filter_leaves(
    words: str, first: int, most: int, begins: int, count: int
) -> None:
    found = rows(OPEN, View(OPEN_CALLS, filter=words, first=first), most)
    assert (found.first, found.total, len(found.rows)) == (begins, 10, count)
    assert keys(found) == [f"1.{number}" for number in range(begins, begins + count)]


def test_a_call_that_has_ended_meanwhile_is_not_open() -> None:
    source = Told(call(1, "ended"), call(2), call(3, missing=1200))
    found = rows(source, View(OPEN_CALLS, filter="call 7 of f"))
    assert (keys(found), found.total) == (["1.2", "1.3"], 2)
    assert [row.cells[2] for row in found.rows] == ["waiting", "needs 1,200 results"]


def test_no_more_rows_are_told_than_may_be() -> None:
    status = Status(failures=[FailureStatus(str(n), "f", "f", 1, 0.0) for n in range(600)])
    assert len(rows(Told(status=status), View("failures"), 10**9).rows) == MOST_ROWS
    assert rows(Told(status=status), View("failures"), -5).rows == []


def test_a_worker_is_acted_on_by_its_host() -> None:
    found = rows(Told(status=Status(workers=[BUSY], worker_count=3)), View("workers"))
    assert keys(found) == ["node1"]
    assert found.note == "an even sample of 1 of 3 workers"


def test_each_title_has_room_for_its_letters_and_one_takes_the_rest() -> None:
    columns = rows(Told(), View("workers")).columns
    assert [one.title for one in columns if not one.width] == ["host"]
    assert all(one.width > len(one.title) for one in columns if one.width)


def test_settings_of_any_type_are_sorted() -> None:
    found = rows(
        Told(status=Status(max_workers=20, worker_resources="Cores(2)")), View(SETTINGS, sort=1)
    )
    assert ["max_workers", "20"] in [row.cells for row in found.rows]


def test_calls_are_counted_by_how_long_they_took() -> None:
    function = FunctionStatus("f", histogram=[(0.002, 3), (0.009, 4), (0.5, 1), (1.0, 2)])
    [row] = rows(Told(status=Status(functions=[function])), View(DURATIONS)).rows
    assert row.cells[-1] == "7 up to 10.0 ms; 3 up to 1.0 s"


def test_causes_are_sorted_and_filtered_as_other_rows_are() -> None:
    failures = [
        FailureStatus(str(number), f"call {number}", "f", 1, 0.0, error=words)
        for number, words in enumerate(["disk full", "no file 1", "no file 2"])
    ]
    source = Told(status=Status(failures=failures, failed=3))
    assert [row.cells[:2] for row in rows(source, View(CAUSES)).rows] == [
        ["2", "no file 2"],
        ["1", "disk full"],
    ]
    assert rows(source, View(CAUSES, sort=1)).rows[0].cells[1] == "disk full"
    assert [row.cells[1] for row in rows(source, View(CAUSES, filter="DISK")).rows] == ["disk full"]
