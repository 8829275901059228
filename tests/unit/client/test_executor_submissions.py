"""What is handed in for a graph, and what becomes of its keys."""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest

import gridengine
from gridengine.client.future import MOST_CALLS
from gridengine.errors import PicklingError
from gridengine.requests import ResultData
from gridengine.resources import WTime
from tests.support.fake_dispatcher import FakeScheduler
from tests.support.held_dispatcher import HeldDispatcher

SECONDS = 30


def inc(x: int) -> int:
    return x + 1


def add(x: Any, y: Any) -> Any:
    return x + y


def fail(x: Any) -> Any:
    raise ValueError(f"no {x}")


class Recorder(HeldDispatcher):
    """Runs nothing, and notes what it is told of references."""

    def __init__(self) -> None:
        super().__init__()
        self.supplied: dict[int, ResultData] = {}
        self.released: list[int] = []

    def supply(self, reference: int, data: ResultData) -> None:
        self.supplied[reference] = data

    def release_references(self, references: list[int]) -> None:
        self.released += references


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def held(recorder: Recorder) -> Iterator[gridengine.Executor]:
    """An executor that hands in, and gets no outcome."""
    executor = gridengine.Executor(scheduler=FakeScheduler(recorder))
    yield executor
    executor._submitter.batcher.kill_all()
    executor.shutdown()


@pytest.fixture
def inline() -> Iterator[gridengine.Executor]:
    with gridengine.Executor(scheduler=gridengine.InlineScheduler()) as executor:
        yield executor


def test_an_unpicklable_argument_is_named_by_its_node(inline: gridengine.Executor) -> None:
    graph = {"a": (add, 1, threading.Lock()), "b": (inc, "a"), "c": (inc, (inc, "b"))}
    [future] = inline.submit_graph(graph, ["c"])
    with pytest.raises(PicklingError, match=r"argument 2 of node 'a' \(a _thread.lock\)"):
        future.result(SECONDS)


@pytest.mark.parametrize("fuse", [True, False])
def test_an_error_names_the_node_that_failed(inline: gridengine.Executor, *, fuse: bool) -> None:
    graph = {"a": (inc, 1), "failed": (fail, "a"), "b": (inc, "failed"), "c": (inc, "failed")}
    for future in inline.submit_graph(graph, ["b", "c"], fuse=fuse):
        error = future.exception(SECONDS)
        assert isinstance(error, ValueError)
        assert "node 'failed'" in "\n".join(error.__notes__)


def test_a_graph_whose_initializer_has_failed_ends_its_executor() -> None:
    with gridengine.Executor(
        scheduler=gridengine.InlineScheduler(), initializer=fail, initargs=(1,)
    ) as broken:
        [future] = broken.submit_graph({"a": (inc, 1)}, ["a"])
        assert isinstance(future.exception(SECONDS), BrokenProcessPool)
        with pytest.raises(BrokenProcessPool):
            broken.submit_graph({"a": (inc, 1)}, ["a"])


@pytest.mark.parametrize("fuse", [True, False])
def test_the_futures_are_in_the_order_of_the_keys(
    inline: gridengine.Executor, *, fuse: bool
) -> None:
    graph = {
        "a": 2,
        "b": (inc, "a"),
        "c": (add, "b", (inc, "b")),
        "d": [("a", "c"), (sum, ["a", [inc, "b"][1], (inc, "c")])],
        "e": (add, (add, ["a"], ["b"]), [(inc, "c")]),
        "f": "d",
    }
    futures = inline.submit_graph(graph, ["e", "a", "f", "e", "c"], fuse=fuse)
    expected = [[2, 3, 8], 2, [(2, 7), 13], [2, 3, 8], 7]
    assert [future.result() for future in futures] == expected


def test_all_calls_are_handed_in_at_once_and_intermediate_results_are_released(
    held: gridengine.Executor, recorder: Recorder
) -> None:
    graph = {"a": (inc, 1), "b": (inc, "a"), "c": (add, "a", "b"), "d": (add, "c", "a")}
    [future] = held.submit_graph(graph, ["d"], fuse=False)
    tasks = [entry.task for entry in recorder.entries]
    made = {reference: task.id for task in tasks for _, reference in task.kept}
    a, b, c, d = sorted(task.id for task in tasks)
    needs = {task.id: [made[reference] for reference in task.after] for task in tasks}
    assert needs == {a: [], b: [a], c: [a, b], d: [c, a]}
    assert recorder.departures == [2, 2]
    assert sorted(recorder.released) == sorted(made)
    assert d not in made.values()
    assert future.running()


def test_data_that_several_need_is_pickled_once(
    held: gridengine.Executor, recorder: Recorder
) -> None:
    graph = {"data": ["x"] * 1000, **{str(n): (add, "data", n) for n in range(10)}}
    held.submit_graph(graph, map(str, range(10)))
    [reference] = recorder.supplied
    assert {entry.task.after for entry in recorder.entries} == {(reference,)}
    assert recorder.released == [reference]


@pytest.mark.parametrize(
    ("options", "calls"),
    [({}, 1), ({"timeout": 5}, 3), ({"retry_on": ValueError}, 3), ({"resources": WTime(60)}, 3)],
)
def test_links_are_made_one_by_one_where_a_limit_holds_for_each(
    held: gridengine.Executor, recorder: Recorder, options: dict[str, Any], calls: int
) -> None:
    graph = {"a": (inc, 1), "b": (inc, "a"), "c": (inc, "b")}
    held.with_options(**options).submit_graph(graph, ["c"])
    assert len(recorder.entries) == calls


def test_an_error_is_that_of_each_key_that_needs_it(inline: gridengine.Executor) -> None:
    graph = {"bad": (fail, 1), "a": (inc, "bad"), "b": (add, "a", "c"), "c": (inc, 1), "d": "c"}
    for fuse in (True, False):
        futures = inline.submit_graph(graph, ["a", "b", "c", "d", "bad"], fuse=fuse)
        failed = [isinstance(future.exception(), ValueError) for future in futures]
        assert failed == [True, True, False, False, True]


def test_an_unpicklable_node_is_the_error_of_its_dependents(inline: gridengine.Executor) -> None:
    lock = threading.Lock()
    graph = {"bad": (add, 1, lock), "a": (inc, "bad"), "lock": lock, "b": (inc, 1)}
    graph |= {"c": (add, "lock", "b"), "d": (add, "lock", 1)}
    for fuse in (True, False):
        futures = inline.submit_graph(graph, ["a", "b", "c", "d", "lock"], fuse=fuse)
        errors = [type(future.exception()) for future in futures]
        assert errors == [PicklingError, type(None), PicklingError, PicklingError, type(None)]
        assert "lock" in str(futures[0].exception())


def test_futures_may_be_anywhere_in_a_graph(inline: gridengine.Executor) -> None:
    other: Future[int] = Future()
    other.set_result(5)
    done = inline.submit(inc, 1)
    graph = {"f": done, "a": (add, "f", other), "b": (sum, [done, "f", (inc, other)])}
    futures = inline.submit_graph(graph, ["f", "a", "b"])
    assert [future.result() for future in futures] == [2, 7, 10]
    assert futures[0] is done


def test_the_future_of_a_key_may_be_given_to_a_call(inline: gridengine.Executor) -> None:
    a, b = inline.submit_graph({"a": (inc, 1), "b": (inc, "a")}, ["a", "b"])
    assert inline.submit(add, a, b).result() == 5


def test_keyword_arguments_are_passed_and_may_be_nodes(inline: gridengine.Executor) -> None:
    spec = pytest.importorskip("dask._task_spec")
    graph = {
        "a": spec.Task("a", inc, 1),
        "b": spec.Task("b", dict, x=spec.TaskRef("a"), y=spec.List(spec.TaskRef("a"), 5)),
        "c": spec.Task("c", dict, spec.Dict({"k": spec.Task(None, inc, spec.TaskRef("a"))}), z=1),
    }
    futures = inline.submit_graph(graph, ["b", "c"])
    assert [future.result() for future in futures] == [{"x": 2, "y": [2, 5]}, {"k": 3, "z": 1}]
    [alone] = inline.submit_graph(graph, ["b"])
    assert alone.result() == {"x": 2, "y": [2, 5]}


def test_all_that_the_keys_need_is_withdrawn_once_all_are_cancelled(
    held: gridengine.Executor, recorder: Recorder
) -> None:
    recorder.slots = 0  # all that waits can be taken back
    graph = {"a": (inc, 1), "b": (inc, "a"), "c": (add, "a", "b"), "d": (add, "b", "a")}
    first, second = held.submit_graph(graph, ["c", "d"], fuse=False)
    assert first.cancel()
    assert len(recorder.settled) == 1
    assert second.cancel()
    assert len(recorder.settled) == 4
    assert held._submitter.batcher.join(SECONDS)


def test_dependents_of_a_cancelled_key_are_told_so(
    held: gridengine.Executor, recorder: Recorder
) -> None:
    recorder.slots = 0
    graph = {"a": (inc, 1), "b": (inc, "a"), "c": (inc, "b")}
    [b, _] = held.submit_graph(graph, ["b", "c"], fuse=False)
    tasks = {one.task.id: one.task for one in recorder.entries}
    [(_, needed)] = tasks[b.place // MOST_CALLS].kept
    assert b.cancel()
    path = ("the call of inc (node 'b')",)
    assert recorder.supplied == {needed: ResultData(cancelled=True, path=path)}


def test_data_of_a_graph_that_is_refused_is_let_go_of(
    recorder: Recorder,
) -> None:
    executor = gridengine.Executor(scheduler=FakeScheduler(recorder))
    refusal = RuntimeError("no")

    def refuse(_: object) -> None:
        recorder.entries.pop()
        raise refusal

    recorder.on_submit = refuse
    graph = {"a": [1, 2], "b": (len, "a"), "c": (sum, "a")}
    b, c = executor.submit_graph(graph, ["b", "c"], fuse=False)
    assert b.exception(SECONDS) is c.exception(SECONDS) is refusal
    assert recorder.supplied
    assert recorder.supplied.keys() <= set(recorder.released)
    executor.shutdown()


def test_a_call_of_a_graph_can_be_killed(held: gridengine.Executor) -> None:
    future, other = held.submit_graph({"a": (inc, 1), "b": (inc, 1)}, ["a", "b"])
    assert held.kill(future)
    assert isinstance(future.exception(SECONDS), gridengine.Cancelled)
    assert other.running()


def test_a_shutdown_that_cancels_withdraws_calls_that_have_not_begun(recorder: Recorder) -> None:
    recorder.slots = 0
    executor = gridengine.Executor(scheduler=FakeScheduler(recorder))
    [future] = executor.submit_graph({"a": (inc, 1), "b": (add, "a", "a")}, ["b"], fuse=False)
    executor.shutdown(cancel_futures=True)
    assert future.cancelled()


def test_an_executor_that_was_shut_down_takes_no_graph(inline: gridengine.Executor) -> None:
    inline.shutdown()
    with pytest.raises(RuntimeError):
        inline.submit_graph({"a": 1}, ["a"])


def test_an_error_of_links_that_are_made_as_one_has_the_arguments_of_the_node(
    inline: gridengine.Executor,
) -> None:
    graph = {"a": (abs, -2), "b": (inc, "a"), "c": (operator.truediv, "b", 0), "d": (inc, "c")}
    with pytest.raises(ZeroDivisionError) as caught:
        inline.submit_graph(graph, ["d"])[0].result()
    node, call = caught.value.__notes__
    assert node == "in node 'c', arguments 3, 0"
    assert call.startswith("the call of abs and inc and truediv, on ")
