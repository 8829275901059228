"""The tasks that have not ended, as who watches is told of them."""

from __future__ import annotations

import pytest

from gridengine.dispatcher import task_views
from gridengine.dispatcher.task_views import call_window, graph_of
from tests.support.core_play import CUBE, Play


def chain() -> Play:
    """A call that runs, one that needs its result, and one that needs nothing."""
    play = Play()
    play.running(1, kept=((0, 7),))
    play.submit(1, function=CUBE, after=(7,))
    play.submit(1)
    return play


def test_calls_that_need_results_are_told_with_those_that_make_them() -> None:
    graph = graph_of(chain().core.state, 10)
    assert [(one.id, one.state, one.after) for one in graph.nodes] == [
        ("1.0", "running", []),
        ("2.0", "missing", ["1.0"]),
    ]
    functions = {one.name: (one.states, one.after) for one in graph.functions}
    assert functions == {
        "square": ({"running": 1}, {}),
        "cube": ({"missing": 1}, {"square": 1}),
    }
    assert (graph.count, graph.looked_at, graph.tasks) == (2, 3, 3)


def test_too_many_tasks_are_told_by_their_functions() -> None:
    graph = graph_of(chain().core.state, 1)
    assert graph.nodes == ()
    assert (graph.count, len(graph.functions)) == (2, 2)


def test_only_the_first_of_very_many_tasks_are_read() -> None:
    play, most = chain(), task_views.MOST_OF_GRAPH
    play.submit(*[1] * most)
    graph = graph_of(play.core.state, 10)
    assert (len(graph.nodes), graph.looked_at, graph.tasks) == (2, most, most + 3)


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


def test_a_window_into_very_many_tasks_begins_in_proportion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task_views, "MOST_LOOKED_AT", 5)
    play = Play()
    play.submit(*[2] * 10)
    assert seen(play, 10, 2) == (["6.0", "6.1"], 20)
