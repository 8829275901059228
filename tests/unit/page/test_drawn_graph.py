"""The graph as the page draws it."""

from __future__ import annotations

from msgspec.structs import replace

from gridengine.dispatcher.watch_messages import WatchAnswer
from gridengine.page.drawn_graph import MOST_DRAWN, GraphMemory, laid_out
from gridengine.status.figures import FailureStatus
from gridengine.status.rows import FunctionStatus, GraphFunction, GraphNode, GraphStatus, Status
from tests.support.watched import WHO


def node(name: str, *after: str, state: str = "missing") -> GraphNode:
    return GraphNode(name, name, "f", state, after)


def answer(*nodes: GraphNode, failed: str = "", run: str = WHO.run_id) -> WatchAnswer:
    failures = [FailureStatus(failed, failed, "f", 1, 0.0)] if failed else []
    functions = [FunctionStatus("f", 5, 1)]
    told = GraphStatus(nodes, [GraphFunction("f", {"missing": 1}, {"f": 2})], len(nodes))
    status = Status(failures=failures, functions=functions)
    return WatchAnswer(replace(WHO, run_id=run), status, graph=told)


def test_each_node_is_in_a_layer_behind_those_that_it_needs() -> None:
    drawn = laid_out([node("c", "a", "b"), node("a"), node("b", "a"), node("d")])
    layers = {one.call: one.layer for one in drawn}
    assert layers == {"a": 0, "d": 0, "b": 1, "c": 2}
    assert all(drawn[other].layer < one.layer for one in drawn for other in one.after)


def test_a_long_chain_is_laid_out_too() -> None:
    chain = [node(str(number), str(number - 1)) for number in range(5000)]
    assert laid_out(reversed(chain))[-1].layer == 4999


def test_ended_nodes_stay_with_their_dependencies() -> None:
    memory = GraphMemory()
    memory.update(answer(node("a", state="running"), node("b", "a"), node("c", "b")))
    graph = memory.update(answer(node("b", state="running"), node("c", "b")))
    assert [(one.call, one.state) for one in graph.nodes] == [
        ("a", "done"),
        ("b", "running"),
        ("c", "missing"),
    ]
    assert graph.nodes[1].after == [0]
    graph = memory.update(answer(failed="b"))
    assert [one.state for one in graph.nodes] == ["done", "failed", "done"]
    assert [one.state for one in memory.update(answer()).nodes] == ["done", "failed", "done"]


def test_nothing_is_remembered_of_another_run() -> None:
    memory = GraphMemory()
    memory.update(answer(node("a")))
    assert memory.update(answer(run="other")).nodes == []


def test_too_many_are_told_by_function() -> None:
    memory = GraphMemory()
    told = answer()
    assert told.graph is not None
    graph = memory.update(replace(told, graph=replace(told.graph, count=MOST_DRAWN + 1)))
    assert graph.nodes == []
    assert graph.note.startswith("5,001 calls")
    [row] = graph.functions
    assert row.states == {"missing": 1, "done": 5, "failed": 1}
    assert row.after == {"f": 2}


def test_the_oldest_ended_nodes_are_left_out() -> None:
    memory = GraphMemory()
    for start in (0, MOST_DRAWN - 1):
        memory.update(answer(*(node(str(start + place)) for place in range(MOST_DRAWN))))
    assert len(memory.update(answer()).nodes) == MOST_DRAWN
