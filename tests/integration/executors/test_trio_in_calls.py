"""Coroutine functions of trio as calls."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import gridengine
from tests.integration.conftest import LOCAL_AND_TCP


async def by_module(number: int) -> int:
    await trio.sleep(0)
    return number


async def by_another(number: int) -> int:
    return await by_module(number)


@LOCAL_AND_TCP
def test_calls_of_a_trio_program_run_in_trio(scheduler: gridengine.Scheduler) -> None:
    asking = gridengine.delayed(by_another) @ gridengine.Cores(1)

    async def main() -> Any:
        return await gridengine.each(asking(number) for number in range(3))

    assert gridengine.run(main, scheduler=scheduler, backend="trio") == [0, 1, 2]


@LOCAL_AND_TCP
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
