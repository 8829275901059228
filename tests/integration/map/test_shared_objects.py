"""`gridengine.share` with real processes: on this machine, and over the network."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import gridengine
from gridengine.schedulers import Scheduler
from tests.integration.map.test_large_functions import is_mapped, mapped
from tests.support.tcp_scheduler import TcpScheduler
from tests.support.waiting import wait_until

np = pytest.importorskip("numpy")

ITEMS = 1_000_000


@pytest.fixture(params=[gridengine.ProcessScheduler, TcpScheduler])
def scheduler(request: pytest.FixtureRequest) -> Iterator[Scheduler]:
    with request.param(2) as scheduler:
        yield scheduler


@pytest.fixture(autouse=True)
def without_garbage() -> Iterator[None]:
    """What a test leaves open is its own, and no test needs the collector to let go of it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def ones() -> Iterator[Any]:
    with gridengine.share(np.ones(ITEMS)) as shared:
        yield shared


def total(array: Any, number: int = 0) -> float:
    return float(array.sum()) + number


def blocks() -> set[int]:
    """Return the blocks that this process or one below it has open."""
    found = set()
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found |= {
                number
                for number in map(block_of, Path(f"/proc/{process.pid}/fd").iterdir())
                if number
            }
    return found


def block_of(descriptor: Path) -> int:
    """Return the number of the block that a descriptor stands for, 0 if it is none."""
    try:
        return descriptor.stat().st_ino if "gridengine-block" in str(descriptor.readlink()) else 0
    except OSError:  # it has been closed meanwhile, or its process has ended
        return 0


# ------------------------------------------------------------------ every way to hand in calls


def test_an_argument_is_mapped_and_not_copied(scheduler: Scheduler, ones: Any) -> None:
    results = gridengine.starmap(
        mapped, [(ones, number) for number in range(8)], chunksize=1, scheduler=scheduler
    )
    assert results == [(ITEMS, False, 0)] * 8


def by_executor(ones: Any, place: Scheduler) -> list[float]:
    with gridengine.Executor(scheduler=place) as executor:
        return [
            executor.submit(total, ones, 1).result(),
            executor.submit(total, number=2, array=ones).result(),
            executor.submit(functools.partial(total, ones), 3).result(),
        ]


def by_pool(ones: Any, place: Scheduler) -> list[float]:
    with gridengine.Pool(scheduler=place) as pool:
        return [pool.apply(total, (ones, 1)), *pool.starmap(total, [(ones, 2), (ones, 3)])]


class Summer(gridengine.Job):
    """A job that has a handle for an attribute."""

    array: Any = None

    def run(self) -> float:  # type: ignore[override]
        return total(self.array, 3)


def by_jobs(ones: Any, place: Scheduler) -> list[float]:
    jobs = [
        gridengine.Job(target=total, args=(ones, 1), scheduler=place),
        gridengine.Job(target=lambda box: total(box["in"][0], 2), args=({"in": [ones]},)),
        Summer(),
    ]
    jobs[2].array = ones
    with gridengine.JobDispatcher(place) as dispatcher:
        dispatcher.dispatch(jobs)
        return list(dispatcher.join())


WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "map": lambda ones, place: gridengine.map(total, [ones] * 3, [1, 2, 3], scheduler=place),
    "executor": by_executor,
    "pool": by_pool,
    "jobs": by_jobs,
}


@pytest.mark.parametrize("way", WAYS)
def test_calls_get_the_object(scheduler: Scheduler, ones: Any, way: str) -> None:
    assert WAYS[way](ones, scheduler) == [ITEMS + 1, ITEMS + 2, ITEMS + 3]


# ------------------------------------------------------------------ failures and ends


@pytest.mark.parametrize("captured", [False, True])
def test_nothing_is_left_of_it_when_it_is_closed(scheduler: Scheduler, captured: bool) -> None:
    shared = gridengine.share(np.ones(3 * ITEMS))
    if captured:
        gridengine.map(
            lambda number: total(shared, number), range(8), chunksize=1, scheduler=scheduler
        )
    else:
        gridengine.starmap(
            total, [(shared, number) for number in range(8)], chunksize=1, scheduler=scheduler
        )
    assert blocks()
    shared.close()
    wait_until(lambda: not blocks())
    wait_until(
        lambda: not any(gridengine.map(is_mapped, range(8), chunksize=1, scheduler=scheduler))
    )


def test_shared_objects_do_not_count_as_a_calls_memory() -> None:
    with (
        gridengine.ProcessScheduler(1) as scheduler,
        gridengine.share(np.ones(50 * ITEMS)) as shared,
    ):
        assert gridengine.map(
            total, [shared], scheduler=scheduler, resources=gridengine.Memory(0.25)
        ) == [50 * ITEMS]


def test_here_the_workers_map_the_very_copy_that_was_made() -> None:
    with gridengine.ProcessScheduler(2) as scheduler, gridengine.share(np.ones(ITEMS)) as shared:
        made = blocks()
        gridengine.starmap(
            total, [(shared, number) for number in range(8)], chunksize=1, scheduler=scheduler
        )
        assert blocks() == made
        assert len(made) == 1
