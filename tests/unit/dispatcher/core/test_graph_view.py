"""Which calls wait for each other's results."""

from __future__ import annotations

import pytest

from gridengine.dispatcher.core import graph_view
from gridengine.dispatcher.core.graph_view import graph_of
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


def test_of_too_many_the_functions_alone_are_told() -> None:
    graph = graph_of(chain().core.state, 1)
    assert graph.nodes == ()
    assert (graph.count, len(graph.functions)) == (2, 2)


def test_of_very_many_tasks_the_first_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_view, "MOST_LOOKED_AT", 1)
    graph = graph_of(chain().core.state, 10)
    assert (len(graph.nodes), graph.looked_at, graph.tasks) == (1, 1, 3)
