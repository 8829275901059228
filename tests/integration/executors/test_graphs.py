"""`Executor.submit_graph` on this machine's processes, used as a user would."""

from __future__ import annotations

import os
from concurrent.futures.process import BrokenProcessPool

import pytest

import gridengine
from gridengine.errors import WorkerCrashed

SECONDS = 120


def inc(x: int) -> int:
    return x + 1


def add(*values: int) -> int:
    return sum(values)


def crash(*_: object) -> None:
    os.abort()


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


def test_the_initializer_runs_before_the_calls_of_a_graph() -> None:
    def fail() -> None:
        raise OSError("no scratch")

    with gridengine.Executor(1, initializer=fail) as broken:
        [future] = broken.submit_graph({"a": (inc, 1), "b": (add, "a", "a")}, ["b"], fuse=False)
        assert isinstance(future.exception(SECONDS), BrokenProcessPool)
        with pytest.raises(BrokenProcessPool):
            broken.submit_graph({"a": (inc, 1)}, ["a"])
