"""Calls that wait behind one that takes long are taken by another runner. Each test would wait for
ever if they were not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import gridengine

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


NEIGHBOURS = range(60, 66)
"""Calls that take long, one behind the other, among many that take next to nothing."""


def skewed(folder: str, index: int) -> int:
    with Path(folder, str(index)).open("a") as file:
        file.write("x")
    time.sleep(0.1 if index in NEIGHBOURS else 0.0)
    return index


def test_a_map_over_skewed_work_is_complete_and_each_call_runs_once_time_after_time(
    tmp_path: Path, scheduler: gridengine.ProcessScheduler
) -> None:
    for turn in range(3):
        folder = tmp_path / str(turn)
        folder.mkdir()
        f = partial(skewed, str(folder))
        assert gridengine.map(f, range(400), scheduler=scheduler) == list(range(400))
        assert [len((folder / str(index)).read_text()) for index in range(400)] == [1] * 400
