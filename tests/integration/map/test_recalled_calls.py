"""Calls that wait behind one that takes long are taken by another runner. Each test would wait for
ever if they were not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import gridengine

LONG = 400


@pytest.fixture(scope="module")
def scheduler() -> Iterator[gridengine.ProcessScheduler]:
    with gridengine.ProcessScheduler(2) as two:
        yield two


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
    "options", [{}, {"chunksize": 50}, {"chunksize": 1000}, {"timeout": 60}], ids=str
)
def test_all_that_waits_behind_a_long_call_of_a_map_is_run_elsewhere_and_once(
    tmp_path: Path, scheduler: gridengine.ProcessScheduler, options: dict[str, int]
) -> None:
    f = partial(work, str(tmp_path))
    assert gridengine.map(f, range(1000), scheduler=scheduler, **options) == list(range(1000))
    assert {len(path.read_text()) for path in tmp_path.iterdir()} == {1}


def test_single_calls_behind_a_long_one_are_run_elsewhere_and_once(
    tmp_path: Path, scheduler: gridengine.ProcessScheduler
) -> None:
    f = partial(work, str(tmp_path))
    assert sorted(
        gridengine.imap_unordered(f, range(1000), scheduler=scheduler, chunksize=1)
    ) == list(range(1000))
    assert {len(path.read_text()) for path in tmp_path.iterdir()} == {1}


NEIGHBOURS = range(60, 66)
"""Calls that take long, one behind the other, among many that take next to nothing."""


def skewed(folder: str, index: int) -> int:
    with Path(folder, str(index)).open("a") as file:
        file.write("x")
    time.sleep(0.12 if index in NEIGHBOURS else 0.0)
    return index


@pytest.fixture(params=["gridengine.map", "Executor.map", "Pool.map"])
def mapping(
    request: pytest.FixtureRequest, scheduler: gridengine.ProcessScheduler
) -> Iterator[Callable[..., list[int]]]:
    if request.param == "Executor.map":
        with gridengine.Executor(scheduler=scheduler) as executor:
            yield lambda f, xs: list(executor.map(f, xs))
    elif request.param == "Pool.map":
        with gridengine.Pool(scheduler=scheduler) as pool:
            yield pool.map
    else:
        yield partial(gridengine.map, scheduler=scheduler)


def test_a_map_over_skewed_work_is_complete_and_each_call_runs_once_time_after_time(
    tmp_path: Path, mapping: Callable[..., list[int]]
) -> None:
    for turn in range(4):
        folder = tmp_path / str(turn)
        folder.mkdir()
        assert mapping(partial(skewed, str(folder)), range(400)) == list(range(400))
        assert [len((folder / str(index)).read_text()) for index in range(400)] == [1] * 400
