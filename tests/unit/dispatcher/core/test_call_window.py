"""A window of the calls that have not ended."""

from __future__ import annotations

import pytest

from gridengine.dispatcher.core import call_window as module
from gridengine.dispatcher.core.call_window import call_window
from tests.support.core_play import Play


def seen(play: Play, first: int, most: int) -> tuple[list[str], int]:
    calls, count = call_window(play.core.state, first, most, play.now)
    return [one.id for one in calls], count


def test_calls_are_counted_over_tasks() -> None:
    play = Play()
    play.submit(2, 3, 2)
    assert seen(play, 0, 3) == (["1.0", "1.1", "2.0"], 7)
    assert seen(play, 4, 2) == (["2.2", "3.0"], 7)
    assert seen(play, 6, 1) == (["3.1"], 7)


def test_a_window_behind_the_end_has_the_last() -> None:
    play = Play()
    play.submit(2, 3)
    assert seen(play, 100, 2) == (["2.1", "2.2"], 5)
    assert seen(Play(), 0, 10) == ([], 0)


def test_calls_that_have_ended_are_left_out() -> None:
    play = Play()
    one = play.running(3)
    play.values(one, 0, 1)
    play.submit(1)
    assert seen(play, 0, 10) == (["1.1", "1.2", "2.0"], 3)


def test_a_call_that_waits_and_one_that_runs_are_told_apart() -> None:
    play = Play()
    play.running(1)
    play.submit(1)
    calls, _ = call_window(play.core.state, 0, 2, play.now)
    assert [one.state for one in calls] == ["running", "waiting"]


def test_of_very_many_tasks_a_window_begins_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LOOKED_AT", 5)
    play = Play()
    play.submit(*[2] * 10)
    assert seen(play, 10, 2) == (["6.0", "6.1"], 20)
