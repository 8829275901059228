"""Large data that many calls use: held once on a machine, whoever maps it."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine.serialize import pickling
from gridengine.wire.messages import Results, portions
from tests.support.open_files import open_files
from tests.support.waiting import wait_until
from tests.support.worker_driver import WorkerDriver

np = pytest.importorskip("numpy")

ITEMS = 1_000_000
DESCRIPTORS = 2
"""How many a block takes: its own, and that of its mapping."""


@pytest.fixture
def scheduler() -> Iterator[gridengine.ProcessScheduler]:
    # a scheduler that was closed keeps some functions for as long as it is there itself
    gc.collect()
    with gridengine.ProcessScheduler(2) as scheduler:
        yield scheduler


def mapped(array: Any, number: int = 0) -> tuple[float, bool, int]:
    """Return the sum, whether the array may be written to, and how much of blocks is mapped here
    and a copy of our own, in pages.
    """
    total = float(array.sum())
    sections = Path("/proc/self/smaps").read_text().split("gridengine-block")[1:]
    assert sections, "nothing is mapped"
    copied = sum(
        int(line.split()[1])
        for one in sections
        for line in one.splitlines()[:24]
        if line.startswith("Anonymous:")
    )
    return total, bool(array.flags.writeable), copied // 4


def write(array: Any, number: int) -> float:
    before = float(array[number])
    array[number] = -1.0
    return before


def blocks_of_this_process() -> list[str]:
    return open_files("gridengine-block")


def is_mapped(number: int) -> bool:
    return "gridengine-block" in Path("/proc/self/maps").read_text()


@pytest.mark.promise
@pytest.mark.linux
def test_a_large_array_bound_to_a_function_is_mapped_and_not_copied(
    scheduler: gridengine.ProcessScheduler,
) -> None:
    array = np.ones(ITEMS)
    for found in gridengine.map(functools.partial(mapped, array), range(4), scheduler=scheduler):
        assert found == (ITEMS, True, 0)


def test_many_large_arrays_take_one_block(scheduler: gridengine.ProcessScheduler) -> None:
    arrays = [np.full(200_000, float(number)) for number in range(60)]
    seen = []

    def look(number: int) -> float:
        return float(arrays[number].sum())

    for result in gridengine.imap(look, range(60), scheduler=scheduler):
        seen.append(result)
        assert len(blocks_of_this_process()) <= DESCRIPTORS
    assert seen == [200_000.0 * number for number in range(60)]


def test_nothing_is_left_of_a_large_function_when_its_calls_are_done(
    scheduler: gridengine.ProcessScheduler,
) -> None:
    gridengine.map(functools.partial(mapped, np.ones(3 * ITEMS)), range(4), scheduler=scheduler)
    wait_until(lambda: not blocks_of_this_process())
    wait_until(
        lambda: not any(gridengine.map(is_mapped, range(8), chunksize=1, scheduler=scheduler))
    )


def test_runners_elsewhere_map_large_data_that_came_over_the_network(
    driver: WorkerDriver,
) -> None:
    driver.assign(functools.partial(mapped, np.ones(ITEMS)), 0)
    message, buffers = driver.wait_for(Results)
    assert isinstance(message, Results)
    [(_, payload)] = portions(message.results, buffers)
    assert pickling.load_values(payload[:-2]) == ([(ITEMS, True, 0)], True)
