"""The frames of `gridengine top`."""

from __future__ import annotations

import msgspec
import pytest

from gridengine.cli.top import pressed
from gridengine.dispatcher.status_views import status_of
from gridengine.dispatcher.watch_messages import Identity, Line, WatchAnswer
from gridengine.status.rows import Status
from gridengine.status.watch_events import WatchEvent
from gridengine.watching.top_tables import VIEWS, View, followed_by, frame, part_at, rows_of, table
from gridengine.wire.messages import Measured
from tests.support.core_play import Play, function

WHO = Identity("sweep.py", "run", 4242, "login1", "/home/me/sweep.py", "/", 0.0, "Slurm", "1", "3")


def answer(play: Play) -> WatchAnswer:
    lines = [Line(3.0, "launched 1 worker"), Line(1.0, "lost a worker", True)]
    status = status_of(play.core.state, 100.0, play.now, most=100)
    return WatchAnswer(WHO, status, lines, 1.0, 50_000_000)


def busy() -> Play:
    play = Play(max_workers=1)
    play.running(3)
    play.submit(2, function=function(7))
    return play


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (200, 50), (10, 6)])
def test_a_frame_fits_into_its_terminal(view: str, width: int, height: int) -> None:
    lines = frame(answer(busy()), View(view), width=width, height=height, foot="keys")
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_a_terminal_of_80_columns_shows_the_most_important_columns() -> None:
    titles = {view: table(View(view), [], 79)[0] for view in VIEWS}
    assert titles["calls"].split() == ["call", "arguments", "host", "time", "memory", "job"]
    assert titles["workers"].split() == [
        *("host", "job", "state", "used", "slots", "queued", "cpu", "memory"),
    ]
    assert titles["functions"].split() == [
        *("function", "done", "failed", "waiting", "running", "mean", "memory"),
    ]


def test_calls_and_processors_of_workers_and_functions_are_shown() -> None:
    play = busy()
    play.say(Measured(1.0, 2**20, processor=1.987))
    worker = frame(answer(play), View("workers"), width=120, height=24)[-1].split()
    assert worker[1:7] == ["41", "busy", "1", "1", "0", "199"], "used, slots, queued, cpu"
    assert worker[7:11] == ["%", "1", "MB", "-"], "memory, agent"
    rows = [line.split()[:5] for line in frame(answer(play), View(), width=120, height=24)[-2:]]
    assert rows == [["square", "0", "0", "2", "1"], ["f7", "0", "0", "2", "0"]]


def test_the_head_names_the_dispatcher_and_its_progress() -> None:
    text = "\n".join(frame(answer(busy()), View(), width=200, height=24, cpu=0.031))
    assert "sweep.py: process 4242 on login1, Slurm" in text
    assert "0 of 5 calls ended" in text
    assert "calls: 0 done, 0 failed, 0 retried, 1 running, 4 waiting" in text
    assert "3 % of a processor, 48 MB" in text
    assert "workers: 1 of at most 1 here, 1 slots, 0 lost" in text
    assert "max_workers=1 allows no more" in text


def test_the_slots_are_those_of_all_workers_that_are_heard_of_busy_or_not() -> None:
    play = Play(max_workers=1, pooled=True)
    play.running(1)
    play.hello(b"by hand", slots=4)
    text = "\n".join(frame(answer(play), View(), width=200, height=24))
    assert "(1 idle, 1 busy), 5 slots" in text
    play.later(30, beats=[b"w"])
    text = "\n".join(frame(answer(play), View(), width=200, height=24))
    assert "(1 busy, 1 silent), 1 slots" in text


def test_the_view_is_marked_and_its_rows_are_shown() -> None:
    lines = frame(answer(busy()), View("calls"), width=100, height=24)
    assert "[calls]" in "\n".join(lines)
    assert lines[-1].startswith("call 0 of square")


def test_only_rows_with_the_text_are_shown() -> None:
    names = [one.name for one in rows_of(answer(busy()), View(filter="SQ"))]
    assert names == ["square"]


def test_names_are_sorted_from_the_first_and_numbers_from_the_largest() -> None:
    play = Play()
    play.done(play.running(1))
    play.submit(1, function=function(7))
    by_name = [one.name for one in rows_of(answer(play), View(sort=0))]
    by_done = [one.name for one in rows_of(answer(play), View(sort=1))]
    assert by_name == ["f7", "square"]
    assert by_done == ["square", "f7"]
    assert [one.name for one in rows_of(answer(play), View(sort=1, reverse=True))] == by_name


def test_unknown_values_are_sorted_too() -> None:
    play = Play()
    play.done(play.running(1))
    play.submit(1, function=function(7))
    assert [one.name for one in rows_of(answer(play), View(sort=5))] == ["square", "f7"]


def test_the_log_is_shown_the_last_line_first() -> None:
    assert [one.text for one in rows_of(answer(busy()), View("log"))] == [
        "lost a worker",
        "launched 1 worker",
    ]


def test_keys_change_the_view() -> None:
    assert pressed(View(), "\t").name == "calls"
    assert pressed(View("messages"), "\t").name == "functions"
    assert pressed(View(), "3").name == "workers"
    assert [view.sort for view in (pressed(View(), "s"), pressed(View(sort=9), "s"))] == [0, 0]
    assert pressed(View(), "r").reverse
    assert pressed(View(), "p").paused
    assert pressed(pressed(View(), "down"), "up").first == 0
    assert pressed(View(), "up").first == 0
    assert pressed(View(), "x") == View()
    assert pressed(View(), "\u00b2") == View()  # a digit, and no number


def test_a_click_is_found_in_the_frame() -> None:
    told, view = answer(busy()), View("functions")
    lines = frame(told, view, width=120, height=24)
    tabs = next(place for place, line in enumerate(lines) if "[functions]" in line)
    assert part_at(told, view, (120, 24), lines[tabs].index("calls"), tabs) == "calls"
    for place, column in enumerate(view.columns):
        x = lines[tabs + 1].index(column.title)
        assert part_at(told, view, (120, 24), x, tabs + 1) == place
    assert part_at(told, view, (120, 24), 3, tabs + 2).name in lines[tabs + 2]
    assert part_at(told, view, (120, 24), 3, 0) is None
    assert part_at(told, view, (120, 24), 3, 99) is None


def test_one_function_is_followed() -> None:
    assert [one.name for one in rows_of(answer(busy()), View(follow="f7"))] == ["f7"]
    assert followed_by(rows_of(answer(busy()), View("workers"))[0]) != ""


def test_messages_are_shown_by_their_kind() -> None:
    told = msgspec.structs.replace(answer(busy()), sent={"Run": 3}, received={"Results": 2})
    rows = rows_of(told, View("messages"))
    assert [tuple(one) for one in rows] == [("Results", 0, 2), ("Run", 3, 0)]


def test_events_are_listed_the_last_first_below_how_many_are_left_out() -> None:
    events = [WatchEvent("call started", function="f"), WatchEvent("worker lost", host="n1")]
    status = Status(events=events, left_out={"call done": 1200})
    told = WatchAnswer(WHO, status)
    rows = rows_of(told, View("events"))
    assert [row.kind for row in rows] == ["left out", "worker lost", "call started"]
    assert rows[0].reason == "1,200 call done"
    assert rows_of(told, View("events", follow="n1")) == [events[1]]
    assert [followed_by(row) for row in rows] == ["", "n1", "f"]


def test_the_last_failure_is_shown_first() -> None:
    play = Play(max_workers=1)
    one = play.running(2, retries=0)
    play.crash(one, 0)
    [other] = play.assigned()
    play.crash(other, 1)
    rows = rows_of(answer(play), View("failures"))
    assert [row.call for row in rows] == ["call 1 of square", "call 0 of square"]
