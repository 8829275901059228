"""The graphs of a run with a name."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from gridengine.client.future import CallTemplate
from gridengine.client.graph import Node, read
from gridengine.client.named_run_graph import RunGraph
from gridengine.client.options import CallOptions
from gridengine.dispatcher.core import tasks
from gridengine.dispatcher.core.tasks import CallsFinished
from gridengine.journal.known_calls import Piece
from gridengine.serialize.payload import SINGLE, KeptPayload
from gridengine.serialize.pickling import dump_exception


def one() -> int:
    return 1


def double(x: Any) -> Any:
    return 2 * x


GRAPH = {"a": (one,), "b": (double, "a"), "c": (double, "b"), "other": (double, 21)}


class Function:
    """What a run has of a function: calls are known by what they are given."""

    def __init__(self, run: Run, name: str) -> None:
        self.run, self.identity = run, name.encode()
        self.blocks: list[Sequence[int]] = []
        self.handed: list[tuple[int, int, int]] = []
        self.noted: list[tuple[int, int, int]] = []

    def keys_of(self, calls: list[Any], form: int) -> list[bytes] | None:
        [call] = calls
        return None if "secret" in repr(call) else [self.identity + repr(call).encode()]

    def look_up(self, key: bytes, number: int) -> tuple[Piece, Any]:
        piece = self.run.pieces.get(self.run.names.get(key, ""), Piece(0, 1))
        return piece, self.run.outcomes.get(piece.row)

    def add_block(self, form: int, numbers: Sequence[int], arguments: None, keys: bytes) -> int:
        self.blocks.append(numbers)
        return 100 + len(self.blocks)

    def hand_over(self, task: int, first: int, stop: int, block: int, start: int) -> None:
        self.handed.append((task, block, start))

    def note(self, block: int, start: int, stop: int, event: CallsFinished) -> None:
        self.noted.append((event.task, block, start))


class Run:
    """A run in which these calls of a graph, by their keys in that, have pieces and outcomes."""

    def __init__(self) -> None:
        self.pieces: dict[str, Piece] = {}
        self.outcomes: dict[int, Any] = {}
        self.names: dict[bytes, str] = {}
        self.functions: dict[str, Function] = {}

    def function(self, f: Any, travels: object) -> Function:
        return self.functions.setdefault(f.__name__, Function(self, f.__name__))


def template_of(f: Any) -> CallTemplate:
    function = tasks.Function(b"", (), (), b"", f.__name__)
    return CallTemplate(None, function, SINGLE, CallOptions())  # type: ignore[arg-type]


@pytest.fixture
def run() -> Run:
    return Run()


def left(run: Run, graph: dict[str, Any], *wanted: str) -> tuple[RunGraph, list[Node]]:
    """Return what is told of a graph, and the calls of it that are to be made."""
    nodes, calls = read(graph, wanted)
    kept: Any = RunGraph(run, itertools.count(10), template_of)  # type: ignore[arg-type]
    for node in calls:
        kept._find(node)
    run.names = {key: str(node.key) for node, (_, key) in kept._known.items()}
    return kept, kept.left(nodes, calls)


def made(calls: list[Node]) -> list[str]:
    return [str(node.key) for node in calls]


def gave(run: Run, name: str, value: Any) -> None:
    """Have a call of the graph known, with its result, or with how it failed."""
    row = len(run.outcomes) + 1
    run.pieces[name] = Piece(0, 1, 5, row, row)
    run.outcomes[row] = value if isinstance(value, CallsFinished) else [value]


def test_of_a_graph_that_is_new_all_that_is_wanted_is_made(run: Run) -> None:
    _, calls = left(run, GRAPH, "c")
    assert made(calls) == ["a", "b", "c"]


def test_what_is_known_is_data_and_what_it_alone_needs_is_not_made(run: Run) -> None:
    gave(run, "b", 2)
    _, calls = left(run, GRAPH, "c")
    [call] = calls
    assert made(calls) == ["c"]
    assert [node.value for node in call.needs] == [2]


def test_a_known_result_that_is_false_is_a_result(run: Run) -> None:
    gave(run, "c", None)
    assert left(run, GRAPH, "c")[1] == []


def test_what_has_failed_is_data_that_raises_and_what_needs_it_is_made(run: Run) -> None:
    gave(run, "b", CallsFinished(0, 0, 1, dump_exception(ValueError("no")), raised=True))
    _, calls = left(run, GRAPH, "c")
    [call] = calls
    [failed] = [node.value for node in call.needs]
    assert (made(calls), failed.template.function.name) == (["c"], "double (node 'b')")
    with pytest.raises(ValueError, match="no"):
        failed.result()


def test_what_needs_a_call_without_a_key_has_none_and_is_made(run: Run) -> None:
    graph = {"a": (double, b"secret"), "b": (double, "a"), "c": (double, 3)}
    kept, calls = left(run, graph, "b", "c")
    assert made(calls) == ["a", "b", "c"]
    for task, node in enumerate(calls):
        kept.added(node, task)
    kept.hand_over()
    assert run.functions["double"].handed == [(2, 101, 0)]


def test_calls_of_one_function_are_a_block_in_their_order_and_their_outcomes_go_there(
    run: Run,
) -> None:
    kept, calls = left(run, GRAPH, "c", "other")
    for task, node in reversed(list(enumerate(calls))):
        kept.added(node, task)
    kept.hand_over()
    doubles = run.functions["double"]
    [numbers] = doubles.blocks
    assert list(numbers) == sorted(numbers)
    tasks = [task for task, node in enumerate(calls) if node.function is double]
    assert sorted((task, block) for task, block, _ in doubles.handed) == [
        (task, 101) for task in tasks
    ]
    for task in tasks:
        kept.settled(CallsFinished(task, 0, 1, [b"value"]))
        kept.settled(CallsFinished(task, 0, 1, [b"again"]))
    assert sorted(doubles.noted) == sorted(doubles.handed)


def test_a_call_that_is_made_again_is_handed_over_at_its_old_place(run: Run) -> None:
    run.pieces["b"] = Piece(0, 1, 5, 7)
    kept, calls = left(run, GRAPH, "b")
    for task, node in enumerate(calls):
        kept.added(node, task)
    kept.hand_over()
    assert run.functions["double"].handed == [(1, 5, 7)]
    kept.settled(CallsFinished(1, 0, 1, [b"value"]))
    assert run.functions["double"].noted == [(1, 5, 7)]


def test_only_what_is_wanted_is_kept_of_what_has_stayed_at_a_worker_and_of_failures_their_own(
    run: Run,
) -> None:
    kept, calls = left(run, GRAPH, "c")
    for task, node in enumerate(calls):
        kept.added(node, task)
    kept.hand_over()
    large = KeptPayload(1, 10**6, b"w")
    kept.settled(CallsFinished(0, 0, 1, large))
    kept.settled(CallsFinished(1, 0, 1, None, path=("call of one", "double")))
    kept.settled(CallsFinished(2, 0, 1, large))
    assert run.functions["one"].noted == []
    assert [task for task, _, _ in run.functions["double"].noted] == [2]
