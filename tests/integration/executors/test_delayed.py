"""Delayed functions, programs and wait groups on this machine's processes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Literal

import pytest

import gridengine
from gridengine import Cores, Memory, delayed, delayedval, each, exec1, run
from tests.support.waiting import wait_until

Backend = Literal["asyncio", "trio"]


@delayed
def tenfold(x: Any) -> Any:
    return 10 * x


@delayed(nout=2)
def bounds(values: Any) -> Any:
    return min(values), max(values)


def stay(folder: str) -> None:
    Path(folder, str(os.getpid())).touch()
    time.sleep(600)


def fail_once_there_is_one_in(folder: str) -> None:
    wait_until(lambda: list(Path(folder).iterdir()))
    raise ValueError("no")


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return request.param  # type: ignore[no-any-return]


def test_results_are_calculated_with_before_they_are_there(
    scheduler: gridengine.ProcessScheduler, backend: Backend
) -> None:
    async def main() -> Any:
        low, high = bounds([tenfold(1) + 1, (tenfold @ Cores(1))(3), 5])
        table = delayedval({"low": low})
        table["high"] = (tenfold @ Memory(0.2))(high)
        return await each(low, high, table, tenfold(table["low"]))

    expected = [5, 30, {"low": 5, "high": 300}, 50]
    assert run(main, scheduler=scheduler, backend=backend) == expected


def test_a_call_that_is_not_awaited_any_more_is_ended(
    scheduler: gridengine.ProcessScheduler, backend: Backend, tmp_path: Path
) -> None:
    async def fails() -> None:
        await exec1(None, fail_once_there_is_one_in, str(tmp_path))

    async def waits() -> None:
        await exec1(Memory(0.2), stay, str(tmp_path))

    with pytest.raises(ExceptionGroup):
        run([waits, fails], scheduler=scheduler, backend=backend)
    (pid,) = (int(path.name) for path in tmp_path.iterdir())
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
