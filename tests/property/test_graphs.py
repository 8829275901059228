"""Whatever a graph looks like, each of its keys gets what a plain evaluation gives, or the error
that this meets first in one of the calls that it needs.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import gridengine
from tests.support.hypothesis_profiles import examples

Graph = dict[str, Any]


class FailedError(Exception):
    pass


def gather(*args: Any) -> list[Any]:
    return [*args]


def fail(*args: Any) -> Any:
    raise FailedError


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, list[str]]:
    """Return a graph whose nodes need earlier ones, in any order, and keys of it."""
    graph: Graph = {}
    for number in range(draw(st.integers(1, 12))):
        graph[f"k{number}"] = draw(st.one_of(DATA, tasks([*graph]), parts([*graph])))
    keys = draw(st.lists(st.sampled_from([*graph]), min_size=1, max_size=5))
    return dict(draw(st.permutations(list(graph.items())))), keys


DATA = st.one_of(st.integers(), st.none(), st.just([1, {"k0": 2}]), st.binary(max_size=4))


def parts(names: list[str]) -> st.SearchStrategy[Any]:
    """Return arguments: keys, data, tasks, and lists and tuples of such."""
    leaves = st.one_of(DATA, st.sampled_from(names)) if names else DATA
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            st.builds(task, FUNCTIONS, st.lists(inner, max_size=3)),
        ),
        max_leaves=5,
    )


def tasks(names: list[str]) -> st.SearchStrategy[Any]:
    return st.builds(task, FUNCTIONS, st.lists(parts(names), max_size=3))


FUNCTIONS = st.sampled_from([gather] * 9 + [fail])


def task(function: Any, args: list[Any]) -> tuple[Any, ...]:
    return function, *args


def evaluate(graph: Graph, value: Any) -> Any:
    if isinstance(value, str):
        return evaluate(graph, graph[value])
    if isinstance(value, tuple) and value and callable(value[0]):
        return value[0](*(evaluate(graph, one) for one in value[1:]))
    if isinstance(value, (list, tuple)):
        return type(value)(evaluate(graph, one) for one in value)
    return value


def outcome(graph: Graph, key: str) -> Any:
    try:
        return evaluate(graph, key)
    except FailedError:
        return FailedError


@examples(30)
@given(graphs(), st.booleans())
def test_a_graph_gives_the_values_of_a_plain_evaluation(
    given: tuple[Graph, list[str]], fuse: bool
) -> None:
    graph, keys = given
    with gridengine.Executor(scheduler=gridengine.InlineScheduler()) as executor:
        futures = executor.submit_graph(graph, keys, fuse=fuse)
        got = [type(f.exception()) if f.exception() else f.result() for f in futures]
    assert got == [outcome(graph, key) for key in keys]
