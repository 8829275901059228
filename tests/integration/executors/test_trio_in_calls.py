"""Coroutine functions of trio as calls."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
from trio import sleep

import gridengine
from tests.support.tcp_scheduler import TcpScheduler


@pytest.fixture(
    scope="module", params=[gridengine.ProcessScheduler, TcpScheduler], ids=["local", "tcp"]
)
def scheduler(request: pytest.FixtureRequest) -> Iterator[gridengine.Scheduler]:
    with request.param(1) as scheduler:
        yield scheduler


async def by_module(number: int) -> int:
    await trio.sleep(0)
    return number


async def by_name(number: int) -> int:
    await sleep(0)
    return number


async def by_import(number: int) -> int:
    import trio

    await trio.lowlevel.checkpoint()
    return number


async def of_asyncio(number: int) -> int:
    await asyncio.sleep(0)
    return number


async def by_another(number: int) -> int:
    return await by_module(number)


@pytest.mark.parametrize(
    "function", [by_module, by_name, by_import, functools.partial(by_module), of_asyncio]
)
def test_a_coroutine_function_runs_in_a_loop_of_the_library_that_it_names(
    scheduler: gridengine.Scheduler, function: Callable[[int], Any]
) -> None:
    assert gridengine.map(function, [4], scheduler=scheduler) == [4]


def test_calls_of_a_trio_program_run_in_trio(scheduler: gridengine.Scheduler) -> None:
    asking = gridengine.delayed(by_another) @ gridengine.Cores(1)

    async def main() -> Any:
        return await gridengine.each(asking(number) for number in range(3))

    assert gridengine.run(main, scheduler=scheduler, backend="trio") == [0, 1, 2]


def test_an_exception_of_a_trio_coroutine_arrives_as_itself(
    scheduler: gridengine.Scheduler,
) -> None:
    async def fail(number: int) -> None:
        await trio.sleep(0)
        raise ValueError(number)

    with pytest.raises(ValueError, match="7"):
        gridengine.map(fail, [7], scheduler=scheduler)


class Sleeping(gridengine.Job):
    async def run(self) -> int:
        await trio.sleep(0)
        return 9


def test_a_job_may_have_a_coroutine_function_of_trio() -> None:
    job = Sleeping()
    job.start()
    assert job.result(60) == 9
