"""Async programs on this machine's processes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Literal

import pytest

import gridengine
from gridengine import Memory, exec1, run
from tests.support.waiting import wait_until

Backend = Literal["asyncio", "trio"]


def stay(folder: str) -> None:
    Path(folder, str(os.getpid())).touch()
    time.sleep(600)


def fail_once_there_is_one_in(folder: str) -> None:
    wait_until(lambda: list(Path(folder).iterdir()))
    raise ValueError("no")


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return request.param  # type: ignore[no-any-return]


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
