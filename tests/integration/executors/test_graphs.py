"""`Executor.submit_graph` on this machine's processes, used as a user would."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest

import gridengine
from gridengine.errors import WorkerCrashed

SECONDS = 120


@pytest.fixture
def executor(scheduler: gridengine.ProcessScheduler) -> Iterator[gridengine.Executor]:
    with gridengine.Executor(scheduler=scheduler) as executor:
        yield executor


def inc(x: int) -> int:
    return x + 1


def add(*values: int) -> int:
    return sum(values)


def pid(*_: object) -> int:
    return os.getpid()


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
