"""Graphs are read into nodes, and nodes are written as calls."""

from __future__ import annotations

import graphlib
import operator
import threading
from typing import Any

import pytest

from gridengine.client.call_sequence import CallSequence
from gridengine.client.graph import Node, fuse, key_text, read, written
from gridengine.serialize.payload import FULL, SINGLE, STAR
from tests.unit.client.test_executor_submissions import add, inc

DEEP = 100_000


def keys_of(nodes: Any) -> list[Any]:
    return [node.key for node in nodes]


def made_as_one(graph: Any, keys: list[Any]) -> list[list[Any]]:
    _, calls = read(graph, keys)
    return [keys_of(node.sequence or [node]) for node in fuse(calls)]


def test_only_nodes_that_the_keys_need_are_read_in_the_order_of_their_dependencies() -> None:
    graph = {"a": 1, "d": (add, "c", "b"), "b": (inc, "a"), "c": (inc, "b"), "other": (inc, "x")}
    wanted, calls = read(graph, ["d", "b"])
    assert keys_of(wanted) == ["d", "b"]
    assert keys_of(calls) == ["b", "c", "d"]


def test_a_key_that_is_asked_for_twice_is_one_node() -> None:
    [first, second], calls = read({"a": (inc, 1)}, ["a", "a"])
    assert first is second
    assert calls == [first]


def test_an_alias_has_the_value_of_its_key() -> None:
    graph = {"a": "b", "b": "c", "c": (inc, 1), "n": "m", "m": 5, "d": (add, "a", "b")}
    [a, d, n], calls = read(graph, ["a", "d", "n"])
    assert a.key == "c"
    assert n.value == 5
    assert list(d.needs) == [a]
    assert (a.users, keys_of(calls)) == (1, ["c", "d"])


def test_keys_may_be_tuples_and_numbers_and_true_is_no_number() -> None:
    graph = {("x", 0): (inc, 5), 1: (inc, ("x", 0)), "y": (add, 1, True)}
    [y], _ = read(graph, ["y"])
    [one] = y.needs
    assert one.key == 1
    assert y.args == [one, True]
    assert next(iter(one.needs)).key == ("x", 0)


def test_a_number_is_data_where_it_would_stand_for_itself() -> None:
    [one], _ = read({0: 0, 1: (inc, 0)}, [1])
    assert [node.value for node in one.needs] == [0]


def test_names_are_found_in_lists_and_tuples_and_the_rest_stays() -> None:
    array = [1, 2, (3, [4])]
    [y], _ = read({"a": (inc, 1), "y": (sum, [("a", 7), array], {"a": "a"})}, ["y"])
    [[(a, seven), same], mapping] = y.args
    assert (a.key, seven) == ("a", 7)
    assert same is array
    assert mapping == {"a": "a"}


def test_a_list_of_names_is_a_call_and_one_of_others_is_data() -> None:
    [listed, data], calls = read({"a": (inc, 1), "l": ["a", "b"], "d": ["b", 1]}, ["l", "d"])
    assert listed.args[0][1] == "b"
    assert data.value == ["b", 1]
    assert keys_of(calls) == ["a", "l"]


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        ({"a": (inc, 1)}, "the graph has no 'y', which is asked for"),
        ({"y": (add, 1, "q")}, "node 'y', argument 2 of add: the graph has no 'q'"),
        ({"y": (inc, [1, ("q", 2)])}, "node 'y', argument 1 of inc: the graph has no 'q'"),
        ({"y": (add, 1, (inc, "q"))}, "node 'y', argument 1 of inc: the graph has no 'q'"),
    ],
)
def test_an_error_for_a_missing_name_names_the_node_that_needs_it(graph: Any, text: str) -> None:
    with pytest.raises(KeyError) as caught:
        read(graph, ["y"])
    assert caught.value.args[0].startswith(text)


def test_a_string_is_data_where_that_is_said() -> None:
    [y], _ = read({"y": (inc, "q")}, ["y"], strict=False)
    assert y.args == ["q"]


@pytest.mark.parametrize(
    ("graph", "way"),
    [
        ({"a": "a"}, ["a", "a"]),
        ({"a": (inc, "b"), "b": (inc, "c"), "c": (inc, "a")}, ["a", "c", "b", "a"]),
        ({"a": (inc, "b"), "b": (inc, "c"), "c": [1, "b"]}, ["b", "c", "b"]),
        ({"a": (inc, (inc, "b")), "b": "a"}, ["a", "b", "a"]),
    ],
)
def test_a_cycle_is_told_with_the_way_round(graph: Any, way: list[str]) -> None:
    with pytest.raises(graphlib.CycleError) as caught:
        read(graph, ["a"])
    assert caught.value.args[1] == way


def test_links_that_one_other_needs_are_made_with_it() -> None:
    graph = {"a": (inc, 1), "b": (inc, "a"), "c": (inc, "b"), "d": (add, "b", "c"), "e": (inc, "d")}
    assert made_as_one(graph, ["e"]) == [["a", "b"], ["c"], ["d", "e"]]
    assert made_as_one(graph, ["e", "d"]) == [["a", "b"], ["c"], ["d"], ["e"]]


def test_data_keeps_no_links_from_being_made_as_one() -> None:
    graph = {"big": [1, 2], "a": (add, "big", "big"), "b": (add, "a", "big"), "c": (inc, "big")}
    [_, c], calls = read(graph, ["b", "c"])
    [b, _] = fuse(calls)
    assert keys_of(b.sequence or []) == ["a", "b"]
    assert keys_of(b.needs) == ["big"]
    assert list(c.needs) == list(b.needs)


def test_tasks_among_arguments_are_made_with_whom_they_are_for() -> None:
    graph = {"a": (inc, 1), "y": (add, (inc, "a"), (add, (inc, 2), "a"))}
    [y], calls = read(graph, ["y"])
    assert keys_of(calls) == ["a", "y"]
    assert [node.function for node in y.sequence or []][-1] is add
    assert len(y.sequence or []) == 4
    assert keys_of(y.needs) == ["a"]
    assert y.needs.popitem()[0].users == 1


def nested(depth: int) -> Any:
    task: Any = 0
    for _ in range(depth):
        task = (add, (inc, 1), task)
    return task


@pytest.mark.parametrize(
    "graph",
    [
        {0: 0} | {n: (inc, n - 1) for n in range(1, DEEP + 1)},
        {0: (list,)} | {n: n - 1 for n in range(1, DEEP + 1)},
        {0: 0} | {n: [n - 1] for n in range(1, DEEP + 1)},
        {DEEP: nested(DEEP)},
    ],
    ids=["tasks", "aliases", "lists", "arguments"],
)
def test_depth_is_no_matter(graph: Any) -> None:
    [_], calls = read(graph, [DEEP])
    assert len(fuse(calls)) == 1


def test_a_deep_cycle_is_found() -> None:
    graph = {n: (inc, (n + 1) % DEEP) for n in range(DEEP)}
    with pytest.raises(graphlib.CycleError) as caught:
        read(graph, [0])
    assert len(caught.value.args[1]) == DEEP + 1


def test_dasks_own_nodes_are_read() -> None:
    spec = pytest.importorskip("dask._task_spec")
    graph = {
        "a": spec.Task("a", inc, 1),
        "b": spec.Alias("b", "a"),
        "c": spec.DataNode("c", "a"),
        "d": spec.Task("d", add, spec.TaskRef("b"), spec.List(spec.TaskRef("c"), "a"), key="c"),
        "e": spec.Task("e", add, spec.Task(None, inc, spec.TaskRef("a")), (inc, "a")),
    }
    [d, e], calls = read(graph, ["d", "e"])
    assert keys_of(calls) == ["a", "d", "e"]
    assert d.kwargs == {"key": "c"}
    assert [one.key if isinstance(one, Node) else one for one in d.args[1]] == ["c", "a"]
    assert e.args[1] == (inc, "a")
    assert len(e.sequence or []) == 2


@pytest.mark.parametrize(
    ("node", "text"),
    [("Alias('y', 'q')", "node 'y', an alias"), ("Task('y', inc, TaskRef('q'))", "argument 1 of")],
)
def test_a_missing_dependency_of_a_dask_node_is_told(node: str, text: str) -> None:
    spec = pytest.importorskip("dask._task_spec")
    with pytest.raises(KeyError, match=f"{text}.*: the graph has no 'q'"):
        read({"y": eval(node, {"inc": inc, **vars(spec)})}, ["y"], strict=False)


def test_a_single_string_is_no_list_of_keys() -> None:
    with pytest.raises(TypeError, match=r"for 'result' say \['result'\]"):
        read({"result": 1}, "result")


def written_of(graph: dict[Any, Any], key: str) -> Any:
    _, calls = read(graph, [key])
    *_, last = fuse(calls)
    return written(last)


@pytest.mark.parametrize(
    ("task", "form", "call", "is_plain"),
    [
        ((abs, -1), SINGLE, -1, True),
        ((operator.add, 1, [2]), STAR, (1, [2]), True),
        ((), STAR, (), True),
        ((abs, {"not": "looked into"}), SINGLE, {"not": "looked into"}, False),
    ],
)
def test_a_call_is_written_as_its_arguments(
    task: Any, form: int, call: Any, is_plain: bool
) -> None:
    made = written_of({"a": task or (dict,)}, "a")
    assert (made.form, made.call, made.is_plain, made.steps) == (form, call, is_plain, None)


def test_calls_that_are_made_as_one_are_written_as_steps_with_the_names_of_their_nodes() -> None:
    graph = {"a": (abs, -3), "b": (max, [(min, "a", 5), "c"]), "c": 2}
    made = written_of(graph | {"d": (operator.add, "b", 1)}, "d")
    assert made.steps == ["'a'", "", "", "'b'", "'d'"]
    assert made.is_plain
    assert CallSequence(made.function)(made.call) == 4


def test_named_nodes_take_a_pickler_of_our_own() -> None:
    _, [node] = read({"a": (dict, 1)}, ["a"])
    node.kwargs = {"x": threading.Lock()}
    made = written(node)
    assert (made.form, made.is_plain) == (FULL, False)


def test_long_keys_are_shortened() -> None:
    assert key_text("a") == "'a'"
    assert len(key_text("a" * 1000)) < 130
    assert key_text(("x", 1)) == "('x', 1)"
