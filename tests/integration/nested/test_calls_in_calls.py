"""Calls that make calls and wait for them, in each of the ways that there are."""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import operator
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import gridengine
from gridengine import ConfigurationError


def fib(n: int) -> int:
    if n < 2:
        return n
    with gridengine.Executor() as executor:
        first, second = executor.submit(fib, n - 1), executor.submit(fib, n - 2)
        return int(first.result() + second.result())


def double(x: int) -> int:
    return 2 * x


def children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


class Watched:
    """Looks how many processes there are, until it is left."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.most = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._ended.wait(0.01):
            self.most = max(self.most, len(children()))

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        self._thread.join()


@pytest.mark.timeout(300)
def test_a_recursion_of_two_thousand_calls_ends_on_one_slot_with_a_process_for_each_depth() -> None:
    before = len(children())
    with gridengine.ProcessScheduler(1) as scheduler, Watched("fib") as watched:
        assert gridengine.map(fib, [15], scheduler=scheduler) == [610]
    # the slot, a waiting call for each of the 14 depths, and the fork server
    assert watched.most - before <= 1 + 14 + 1


def by_map() -> Any:
    return gridengine.map(double, [1, 2])


def by_executor() -> Any:
    with gridengine.Executor(1) as executor:
        return list(executor.map(double, [1, 2]))


def by_wait() -> Any:
    executor = gridengine.Executor()
    futures = [executor.submit(double, x) for x in (1, 2)]
    done, pending = concurrent.futures.wait(futures)
    assert not pending
    return sorted(one.result() for one in done)


def by_as_completed() -> Any:
    executor = gridengine.Executor()
    futures = [executor.submit(double, x) for x in (1, 2)]
    return sorted(one.result() for one in concurrent.futures.as_completed(futures))


def by_callback() -> Any:
    found: list[Any] = []
    with gridengine.Executor() as executor:
        for x in (1, 2):
            executor.submit(double, x).add_done_callback(lambda one: found.append(one.result()))
    return sorted(found)


def by_pool() -> Any:
    with gridengine.Pool(2) as pool:
        first = pool.map(double, [1])
        return [*first, pool.apply_async(double, (2,)).get()]


def by_jobs() -> Any:
    jobs = [gridengine.Job(target=double, args=(x,)) for x in (1, 2)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    return [job.result() for job in jobs]


def by_graph() -> Any:
    with gridengine.Executor() as executor:
        graph = {"a": (double, 1), "b": (double, "a"), "c": [(operator.sub, "b", "a"), "b"]}
        [future] = executor.submit_graph(graph, ["c"])
        return future.result()


def by_delayed() -> Any:
    one = gridengine.delayed(double)(1)
    return [one.result(), (one + gridengine.delayed(double)(1)).result()]


def by_futures_as_arguments() -> Any:
    with gridengine.Executor() as executor:
        one = executor.submit(double, 1)
        return [one.result(), executor.submit(double, one).result()]


async def by_awaiting() -> Any:
    async with gridengine.Executor() as executor:
        return list(await asyncio.gather(executor.submit(double, 1), executor.submit(double, 2)))


async def by_async_for() -> Any:
    return [value async for value in gridengine.aimap(double, [1, 2])]


async def by_an_awaited_job() -> Any:
    jobs = [gridengine.Job(target=double, args=(x,)) for x in (1, 2)]
    for job in jobs:
        job.start()
    return [await job for job in jobs]


def by_thread() -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(by_map()))
    thread.start()
    thread.join()
    return found


def by_joblib() -> Any:
    joblib = pytest.importorskip("joblib")
    import gridengine.joblib_backend  # noqa: F401 - makes the backend known to joblib

    with joblib.parallel_config("gridengine"):
        return joblib.Parallel(n_jobs=2)(joblib.delayed(double)(x) for x in (1, 2))


WAYS = [
    by_map,
    by_executor,
    by_wait,
    by_as_completed,
    by_callback,
    by_pool,
    by_jobs,
    by_graph,
    by_delayed,
    by_futures_as_arguments,
    by_awaiting,
    by_async_for,
    by_an_awaited_job,
    by_thread,
    by_joblib,
]


@pytest.mark.parametrize("way", WAYS)
def test_a_call_that_waits_gives_its_slot_to_those_that_it_waits_for(
    one: gridengine.ProcessScheduler, way: Callable[[], Any]
) -> None:
    if way is by_joblib:
        pytest.importorskip("joblib", reason="joblib is not installed")
    job = gridengine.Job(target=way, scheduler=one)
    job.start()
    assert job.result() == [2, 4]
    with gridengine.Executor(scheduler=one) as executor:
        assert [executor.submit(way).result() for _ in range(2)] == [[2, 4]] * 2


def whoami(_: object = None) -> int:
    return os.getpid()


def scheduler_of_a_call(_: object) -> tuple[str, list[int]]:
    scheduler = gridengine.current_scheduler()
    assert scheduler is gridengine.current_scheduler()
    with scheduler:  # may be closed, and used again
        pids = gridengine.map(whoami, [0, 1], scheduler=scheduler)
    with gridengine.Executor(scheduler=gridengine.current_scheduler()) as executor:
        pids.append(executor.submit(whoami).result())
    return type(scheduler).__name__, pids


def forks(_: object) -> str:
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, type(gridengine.current_scheduler()).__name__.encode())
        os._exit(0)
    os.wait()
    return os.read(reading, 100).decode()


def inline(_: object) -> str:
    [name] = gridengine.map(
        lambda _: type(gridengine.current_scheduler()).__name__,
        [0],
        scheduler=gridengine.InlineScheduler(),
    )
    return str(name)


@pytest.mark.promise
def test_the_scheduler_of_a_call_can_be_named(one: gridengine.ProcessScheduler) -> None:
    assert gridengine.current_scheduler() is gridengine.current_scheduler()
    [(name, pids)] = gridengine.map(scheduler_of_a_call, [0], scheduler=one)
    assert name == "NestedScheduler"
    own = {process.pid for process in children()}
    assert set(pids) <= own  # the very workers of the outer calls
    names = gridengine.map(forks, [0], scheduler=one) + gridengine.map(inline, [0], scheduler=one)
    assert names == ["InlineScheduler"] * 2


def of_a_scheduler_of_its_own(_: object) -> tuple[int, list[int]]:
    with gridengine.ProcessScheduler(2) as scheduler:
        parents = gridengine.map(lambda _: psutil.Process().ppid(), [0, 1], scheduler=scheduler)
    return psutil.Process().ppid(), parents


@pytest.mark.promise
def test_a_scheduler_that_is_named_is_used_inside_a_call_too(
    one: gridengine.ProcessScheduler,
) -> None:
    [(mine, theirs)] = gridengine.map(of_a_scheduler_of_its_own, [0], scheduler=one)
    assert mine not in theirs


@pytest.mark.promise
def test_a_module_that_makes_calls_of_its_own_when_it_is_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two: gridengine.ProcessScheduler
) -> None:
    module = tmp_path / "makes_calls.py"
    module.write_text(
        "import functools, gridengine\ndef f(x): return x\n"
        "gridengine.map(lambda x: x, [1])\n"  # travels by value, and imports nothing
        "gridengine.map(functools.partial(f), [1])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match="makes_calls makes calls of f when it is") as why:
        gridengine.map(import_by_name, ["makes_calls"], scheduler=two)
    assert "__main__" in str(why.value.hint)


def import_by_name(name: str) -> None:
    importlib.import_module(name)


def with_limit(most: int, path: Path) -> int:
    def enter(_: object) -> int:
        with (path / "now").open("a") as file:
            file.write("+")
        now = (path / "now").read_text()
        with (path / "now").open("a") as file:
            file.write("-")
        return now.count("+") - now.count("-")

    with gridengine.Executor(most) as executor:
        return max(one.result() for one in [executor.submit(enter, x) for x in range(20)])


def test_the_number_of_an_executor_inside_a_call_limits_its_own_calls(
    two: gridengine.ProcessScheduler, tmp_path: Path
) -> None:
    assert gridengine.starmap(with_limit, [(1, tmp_path)], scheduler=two) == [1]
