"""`Executor.submit_graph` on this machine's processes, used as a user would."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine.errors import Cancelled, WorkerCrashed
from tests.integration.executors.test_executor import Gate, begin_and_wait, note

SECONDS = 120


@pytest.fixture
def executor(scheduler: gridengine.ProcessScheduler) -> Iterator[gridengine.Executor]:
    with gridengine.Executor(scheduler=scheduler) as executor:
        yield executor


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path)
    yield gate
    gate.open()
    gate.close()


def inc(x: int) -> int:
    return x + 1


def add(*values: int) -> int:
    return sum(values)


def invert(x: float) -> float:
    return 1 / x


def pid(*_: object) -> int:
    return os.getpid()


def crash_once(folder: str, x: int) -> int:
    mark = Path(folder, "crashed")
    if not mark.exists():
        mark.touch()
        os.abort()
    return x


def crash(*_: object) -> None:
    os.abort()


def test_layers_of_calls_give_what_they_do_here(executor: gridengine.Executor) -> None:
    generator = random.Random(1)
    values = {(0, place): place for place in range(20)}
    graph: dict[Any, Any] = {f"0-{place}": place for place in range(20)}
    for layer in range(1, 50):
        for place in range(20):
            needs = [(layer - 1, generator.randrange(20)) for _ in range(3)]
            values[layer, place] = sum(values[one] for one in needs)
            graph[f"{layer}-{place}"] = (add, *(f"{one[0]}-{one[1]}" for one in needs))
    keys = [f"49-{place}" for place in range(20)]
    futures = executor.submit_graph(graph, keys)
    assert [one.result(SECONDS) for one in futures] == [values[49, place] for place in range(20)]


@pytest.mark.parametrize("fuse", [True, False])
def test_a_long_chain_ends(executor: gridengine.Executor, *, fuse: bool) -> None:
    graph = {"0": (inc, 0)} | {str(n): (inc, str(n - 1)) for n in range(1, 2000)}
    [future] = executor.submit_graph(graph, ["1999"], fuse=fuse)
    assert future.result(SECONDS) == 2000


def test_what_is_made_as_one_shares_a_process(executor: gridengine.Executor) -> None:
    graph = {"a": (pid,), "b": ([].__class__, ["a", (pid, "a")])}
    [future] = executor.submit_graph(graph, ["b"])
    first, second = future.result(SECONDS)
    assert first == second != os.getpid()


def test_arrays_pass_from_call_to_call_and_may_be_written_to(executor: gridengine.Executor) -> None:
    numpy = pytest.importorskip("numpy")

    def fill(array: Any, number: int) -> Any:
        array[:] = number
        return array

    graph = {"zero": numpy.zeros(300_000), "a": (fill, "zero", 1), "b": (fill, "zero", 2)}
    graph |= {"c": (fill, "a", 3), "sum": (add, "zero", "a", "b", "c")}
    [future] = executor.submit_graph(graph, ["sum"])
    assert set(future.result(SECONDS)) == {6.0}


def test_an_error_is_that_of_the_keys_that_need_it_and_says_where_it_was(
    executor: gridengine.Executor,
) -> None:
    graph = {"x": 0, "bad": (invert, "x"), "a": (inc, "bad"), "b": (add, "a", "c"), "c": (inc, 1)}
    b, c, bad = executor.submit_graph(graph, ["b", "c", "bad"])
    assert c.result(SECONDS) == 2
    for future in (b, bad):
        error = future.exception(SECONDS)
        assert isinstance(error, ZeroDivisionError)
        assert "the call of invert" in "\n".join(error.__notes__)
    assert "(node 'bad'), argument 0, failed, and with it" in "\n".join(b.exception().__notes__)


def test_a_failing_link_of_many_made_as_one_is_named(executor: gridengine.Executor) -> None:
    graph = {"one": (inc, -1), "two": (invert, "one"), "three": (inc, "two")}
    [future] = executor.submit_graph(graph, ["three"])
    error = future.exception(SECONDS)
    assert isinstance(error, ZeroDivisionError)
    assert "in node 'two', argument 0" in error.__notes__
    assert sum("argument" in note for note in error.__notes__) == 1, "not those of the steps"


def test_a_call_whose_process_dies_is_made_again_and_then_given_up(
    executor: gridengine.Executor, tmp_path: Path
) -> None:
    graph = {"folder": str(tmp_path), "a": (crash_once, "folder", 1), "b": (inc, "a")}
    [future] = executor.submit_graph(graph, ["b"], fuse=False)
    assert future.result(SECONDS) == 2
    graph = {"a": (crash,), "b": (inc, "a")}
    [future] = executor.with_options(retries=0).submit_graph(graph, ["b"], fuse=False)
    assert isinstance(future.exception(SECONDS), WorkerCrashed)


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("retries", [0, 1])
def test_a_crash_names_the_node(executor: gridengine.Executor, retries: int, fuse: bool) -> None:
    graph = {"a": (inc, 1), "b": (inc, [(inc, "a"), 3][0]), "died": (crash, ["b", (inc, "b")])}
    graph |= {"c": (len, "died"), "d": (add, "c", 1), "e": (len, "d"), "f": (len, "d")}
    executor = executor.with_options(retries=retries)
    d, e, f = executor.submit_graph(graph, ["d", "e", "f"], fuse=fuse)
    for future in (d, e, f):
        error = future.exception(SECONDS)
        assert isinstance(error, WorkerCrashed)
        assert "in node 'died'" in "\n".join(error.__notes__)
    assert "(node 'died') failed, and with it" in "\n".join(e.exception().__notes__)


def test_a_crash_after_several_calls_that_were_made_as_one_names_no_node_of_these(
    executor: gridengine.Executor,
) -> None:
    [done] = executor.submit_graph({"a": (inc, 1), "b": (inc, "a")}, ["b"])
    assert done.result(SECONDS) == 3
    error = executor.with_options(retries=0).submit(crash).exception(SECONDS)
    assert isinstance(error, WorkerCrashed)
    assert (error.step, error.__notes__) == (0, ["no argument"])


def test_what_no_key_needs_any_more_is_withdrawn(
    executor: gridengine.Executor, gate: Gate, tmp_path: Path
) -> None:
    graph = {"begun": gate.paths[0], "gate": gate.paths[1], "folder": str(tmp_path)}
    graph |= {"wait": (begin_and_wait, "begun", "gate")}
    graph |= {"no": "unwanted", "unwanted": (note, "folder", "wait")}
    graph |= {"name": "wanted", "other": (note, "folder", "name")}
    waiting, other = executor.submit_graph(graph, ["no", "other"], fuse=False)
    gate.await_begin()
    assert waiting.cancel()
    other.result(SECONDS)
    gate.open()
    executor.shutdown()
    assert Path(tmp_path, "wanted").exists()
    assert not Path(tmp_path, "waited").exists()


def test_a_call_of_a_graph_that_runs_can_be_killed(
    executor: gridengine.Executor, gate: Gate
) -> None:
    graph = {"begun": gate.paths[0], "gate": gate.paths[1], "a": (begin_and_wait, "begun", "gate")}
    a, b = executor.submit_graph(graph | {"b": (len, "a")}, ["a", "b"])
    gate.await_begin()
    assert executor.kill(a)
    assert isinstance(a.exception(SECONDS), Cancelled)
    assert b.cancelled() or isinstance(b.exception(SECONDS), Cancelled)


def test_the_initializer_runs_before_the_calls_of_a_graph() -> None:
    def fail() -> None:
        raise OSError("no scratch")

    with gridengine.Executor(1, initializer=fail) as broken:
        [future] = broken.submit_graph({"a": (inc, 1), "b": (add, "a", "a")}, ["b"], fuse=False)
        assert isinstance(future.exception(SECONDS), BrokenProcessPool)
        with pytest.raises(BrokenProcessPool):
            broken.submit_graph({"a": (inc, 1)}, ["a"])


def test_calls_of_a_graph_have_the_resources_of_the_executor() -> None:
    def cores() -> Any:
        return gridengine.current_job().resources.get(gridengine.Cores)

    with gridengine.Executor(2, resources=gridengine.Cores(2)) as executor:
        [future] = executor.submit_graph({"a": (cores,)}, ["a"])
        assert future.result(SECONDS).N == 2
