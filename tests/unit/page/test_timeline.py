"""The timeline of a run."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gridengine.dispatcher.status_views import status_of
from gridengine.dispatcher.watch_messages import WatchAnswer
from gridengine.page.timeline import MOST_ROWS, PARTS, TimelineBar, timeline_of
from gridengine.status.figures import EndedCall
from gridengine.status.rows import Status
from gridengine.watching.call_explanation import explain_ended
from tests.support.core_play import Play
from tests.support.watched import WHO


def run_of(*ended: tuple[str, float, float], seconds: float = 20.0) -> WatchAnswer:
    """Return what is told after so many seconds of calls: their worker, when each began, and how
    long it took.
    """
    told = [EndedCall("f", worker, seconds - start - took, took) for worker, start, took in ended]
    return WatchAnswer(WHO, Status(elapsed_seconds=seconds), timeline=told)


def test_calls_at_one_time_have_rows_of_their_own_and_others_share() -> None:
    drawn = timeline_of(run_of(("a", 0, 5), ("a", 0, 9), ("b", 0, 5), ("a", 5, 5), ("a", 5.02, 1)))
    assert [(one.row, one.start) for one in drawn.bars] == [
        *((0, 0), (1, 0), (3, 0)),
        *((0, 5), (2, 5.02)),
    ]
    assert drawn.rows == ["a", "", "", "b"]


def test_a_call_may_begin_a_moment_before_the_one_before_it_in_its_row_has_ended() -> None:
    drawn = timeline_of(run_of(("a", 0, 5), ("a", 4.96, 1)))
    assert drawn.rows == ["a"]


def test_failed_calls_are_told_apart() -> None:
    one = run_of(("a", 1, 2))
    failed = replace(one, timeline=[replace(one.timeline[0], failed=True)])
    assert timeline_of(failed).bars == [TimelineBar(0, 1.0, 2.0, "f", "failed")]


def test_a_call_in_which_its_process_ended_says_how() -> None:
    play = Play(max_workers=1)
    one = play.running(3, retries=0)
    play.now += 4
    play.crash(one, 0)
    [(_, ended)] = play.core.state.sample.calls
    told = WatchAnswer(WHO, Status(elapsed_seconds=20.0), timeline=[ended])
    [bar] = timeline_of(told).bars
    assert (bar.state, bar.seconds, bar.died) == (
        "failed",
        4.0,
        "its process was killed by SIGSEGV",
    )
    assert explain_ended(told, ended.id) == []


def test_a_call_that_began_before_its_dispatcher_as_clocks_differ_begins_with_it() -> None:
    [bar] = timeline_of(run_of(("a", -3, 5))).bars
    assert bar.start == 0


def test_rows_that_are_too_many_are_left_out_and_counted() -> None:
    drawn = timeline_of(run_of(*((f"{number:03}", 0, 1) for number in range(MOST_ROWS + 7))))
    assert (len(drawn.rows), len(drawn.bars), drawn.left_out) == (MOST_ROWS, MOST_ROWS, 7)


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_a_run_that_has_just_begun_has_a_timeline(seconds: float) -> None:
    drawn = timeline_of(run_of(seconds=seconds))
    assert (drawn.seconds > 0, list(drawn.bars)) == (True, [])


def test_a_call_that_runs_is_drawn_up_to_now() -> None:
    play = Play(max_workers=1)
    play.crash(play.running(3, retries=0), 0)
    play.now += 20
    status = status_of(play.core.state, 100.0, play.now, most=100)
    drawn = timeline_of(WatchAnswer(WHO, status))
    [one] = drawn.bars
    assert (one.state, one.start + one.seconds) == ("running", drawn.seconds)
    assert drawn.rows == ["node-w 41"]


def test_rates_are_those_of_the_whole_run_since_its_beginning() -> None:
    told = run_of(("a", 0.2, 0.5), ("a", 1.2, 0.5), ("b", 1.1, 0.5), ("a", 3.5, 0.5), seconds=4.0)
    of_all = replace(told, status=replace(told.status, done=7, failed=1))
    assert timeline_of(of_all).rates == [2, 4, 0, 2]  # every other call is in the sample
    one = replace(told.timeline[0], seconds_ago=0.0, seconds=4.0, calls=8)
    assert timeline_of(replace(of_all, timeline=[one])).rates == [2, 2, 2, 2]
    assert timeline_of(replace(of_all, timeline=[])).rates == [2] * 4
    long = timeline_of(run_of(("a", 0, 600), seconds=600.0))
    assert (len(long.rates), sum(long.rates)) == (PARTS, 0)
