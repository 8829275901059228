"""Results of a megabyte and more come in memory that their runner has made."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest

import gridengine
from gridengine.serialize.shared_memory import Block

ITEMS = 200_000
"""Of an array, 1.6 MB."""


def ones(count: int) -> numpy.ndarray:
    return numpy.ones(count)


def memory_of(array: numpy.ndarray) -> object:
    while isinstance(base := array.base, numpy.ndarray):
        array = base
    return base.obj if isinstance(base, memoryview) else base


def several(count: int) -> tuple[numpy.ndarray, bytes, list[numpy.ndarray]]:
    return numpy.ones(count), b"x" * (8 * count), [numpy.full(count, i) for i in range(20)]


def then_die(path: Path, index: int) -> numpy.ndarray:
    if index and not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return numpy.full(ITEMS, index)


@pytest.fixture
def scheduler() -> Iterator[gridengine.ProcessScheduler]:
    with gridengine.ProcessScheduler(2) as made:
        yield made


@pytest.fixture
def few_descriptors(scheduler: gridengine.ProcessScheduler) -> Iterator[None]:
    """This process may have few more files open than it has."""
    gridengine.map(abs, [1], scheduler=scheduler)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = len(list(Path("/proc/self/fd").iterdir())) + 40
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_descriptors")
def test_large_results_can_be_written_to_and_take_no_descriptors(
    scheduler: gridengine.ProcessScheduler,
) -> None:
    results = gridengine.map(ones, [ITEMS] * 100, scheduler=scheduler)
    assert type(memory_of(results[0])) is Block
    for index, one in enumerate(results):
        one[0] = index
    assert [one[0] for one in results] == list(range(100))
    assert {float(one[1:].sum()) for one in results} == {ITEMS - 1.0}


def test_a_result_of_many_large_parts_arrives_whole(scheduler: gridengine.ProcessScheduler) -> None:
    array, text, others = gridengine.map(several, [ITEMS], scheduler=scheduler)[0]
    assert array.sum() == ITEMS
    assert text == b"x" * (8 * ITEMS)
    assert [float(one[-1]) for one in others] == list(range(20))


def test_a_large_result_outlives_the_process_that_made_it(
    scheduler: gridengine.ProcessScheduler, tmp_path: Path
) -> None:
    results = gridengine.starmap(
        then_die,
        [(tmp_path / "died", index) for index in range(4)],
        chunksize=4,
        scheduler=scheduler,
    )
    assert [float(one[-1]) for one in results] == [0, 1, 2, 3]
