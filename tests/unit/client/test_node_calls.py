"""What is handed over of a graph's nodes."""

from __future__ import annotations

import operator
import threading
from typing import Any

import pytest

from gridengine.client.call_sequence import CallSequence
from gridengine.client.graph import fuse, read
from gridengine.client.node_calls import key_text, written
from gridengine.serialize.payload import FULL, SINGLE, STAR


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


def test_what_is_named_takes_a_pickler_of_our_own() -> None:
    _, [node] = read({"a": (dict, 1)}, ["a"])
    node.kwargs = {"x": threading.Lock()}
    made = written(node)
    assert (made.form, made.is_plain) == (FULL, False)


def test_long_keys_are_shortened() -> None:
    assert key_text("a") == "'a'"
    assert len(key_text("a" * 1000)) < 130
    assert key_text(("x", 1)) == "('x', 1)"
