"""Calls that wait behind one that takes long, and calls whose own process is interrupted."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import gridengine
from tests.support.tcp_scheduler import TcpScheduler

LONG = 400


def wait_while_busy(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 150
    while not done():
        if time.monotonic() > until:
            raise AssertionError("what waits behind this call is not run")
        os.sched_yield()


def work(folder: str, index: int) -> int:
    """Call `LONG` ends when the others have; each leaves a mark, one more for each time it runs."""
    path = Path(folder)
    if index == LONG:
        wait_while_busy(lambda: len(list(path.iterdir())) == 999)
    with (path / str(index)).open("a") as file:
        file.write("x")
    return index


@pytest.mark.parametrize(
    "options", [{}, {"chunksize": 1}, {"chunksize": 50}, {"timeout": 400}], ids=str
)
def test_all_that_waits_behind_a_long_call_of_a_map_is_run_elsewhere_and_once(
    tmp_path: Path, scheduler: gridengine.ProcessScheduler, options: dict[str, int]
) -> None:
    f = partial(work, str(tmp_path))
    assert gridengine.map(f, range(1000), scheduler=scheduler, **options) == list(range(1000))
    assert {len(path.read_text()) for path in tmp_path.iterdir()} == {1}


def interrupted(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    return number


@pytest.mark.promise
@pytest.mark.parametrize("kind", [gridengine.ProcessScheduler, TcpScheduler])
def test_an_interruption_of_a_calls_own_process_is_an_error_of_the_call(
    kind: type[gridengine.Scheduler],
) -> None:
    with kind(1) as scheduler:
        results = gridengine.map(interrupted, range(3), reraise=False, scheduler=scheduler)
    assert (results[0], type(results[1]), results[2]) == (0, gridengine.CallError, 2)
    assert "call 1 of interrupted raised KeyboardInterrupt" in str(results[1])
