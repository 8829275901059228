"""Calls from tasks of asyncio and trio, and calls of coroutine functions."""

from __future__ import annotations

import asyncio
import functools
import time
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine import Executor, Job, Pool
from tests.support.event_loops import LOOPS, all_of, cancelled_once, run_in, until

loops = pytest.mark.parametrize("loop", LOOPS)


async def double(x: int) -> int:
    await asyncio.sleep(0)
    return 2 * x


class Doubler:
    async def __call__(self, x: int) -> int:
        return await double(x)


def stay_here(path: Path) -> None:
    path.touch()
    while True:
        time.sleep(0.01)


def wait_for(path: Path) -> str:
    while not path.exists():
        time.sleep(0.01)
    return path.name


# ------------------------------------------------------------------ calls of coroutine functions


@pytest.fixture(params=["processes", "inline"])
def place(request: pytest.FixtureRequest, scheduler: gridengine.ProcessScheduler) -> Any:
    return scheduler if request.param == "processes" else gridengine.InlineScheduler()


@pytest.mark.promise
@pytest.mark.parametrize("f", [double, Doubler(), functools.partial(double)])
def test_all_ways_to_call_take_coroutine_functions(place: Any, f: Any) -> None:
    doubled = [2 * x for x in range(9)]
    assert gridengine.map(f, range(9), scheduler=place) == doubled
    assert list(gridengine.imap(f, range(9), scheduler=place)) == doubled
    with Executor(scheduler=place, initializer=double, initargs=(1,)) as executor:
        assert executor.submit(f, x=4).result() == 8 if f is double else True
        assert list(executor.map(f, range(9))) == doubled
    with Pool(scheduler=place) as pool:
        assert pool.map(f, range(9)) == list(pool.imap(f, range(9))) == doubled
        assert pool.apply(f, (4,)) == 8
    job = Job(target=f, args=(4,), scheduler=place)
    job.start()
    assert job.result() == 8


def test_joblib_runs_coroutine_functions(scheduler: gridengine.ProcessScheduler) -> None:
    joblib = pytest.importorskip("joblib")
    from gridengine import joblib_backend  # noqa: F401

    with joblib.parallel_config("gridengine", scheduler=scheduler):
        assert joblib.Parallel(2)(joblib.delayed(double)(x) for x in range(9)) == [
            2 * x for x in range(9)
        ]


def test_a_job_is_told_to_end_and_sends_messages(scheduler: gridengine.ProcessScheduler) -> None:
    async def until_cancelled(controller: Any) -> str:
        controller.push("begun")
        while not controller.cancelled:
            await asyncio.sleep(0.01)
        return "ended"

    job = Job(target=until_cancelled, scheduler=scheduler)
    job.start()
    assert next(job.messages()) == "begun"
    job.terminate()
    assert job.result() == "ended"


# ------------------------------------------------------------------ calls from tasks


@loops
def test_an_executor_is_left_without_blocking_the_loop(loop: str, tmp_path: Path) -> None:
    async def use() -> str:
        async with Executor(max_workers=1) as executor:
            future = executor.submit(wait_for, tmp_path / "go")
            left.append(1)
        result: str = future.result(0)
        return result

    async def go() -> None:
        await until(lambda: left)
        (tmp_path / "go").touch()

    async def main() -> list[Any]:
        return await all_of([use, go])

    left: list[int] = []
    assert run_in(loop, main) == ["go", None]


@loops
@pytest.mark.parametrize("inside", [True, False])
def test_a_cancelled_task_ends_the_calls_of_its_executor(
    loop: str, inside: bool, tmp_path: Path
) -> None:
    async def use() -> None:
        async with Executor(max_workers=1) as executor:
            futures.append(executor.submit(stay_here, tmp_path / "begun"))
            if inside:
                await futures[0]

    async def main() -> None:
        await cancelled_once(use, (tmp_path / "begun").exists)
        assert futures[0].done()

    futures: list[Any] = []
    run_in(loop, main)
