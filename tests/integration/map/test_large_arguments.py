"""Large arrays among the arguments of a map's calls, with real processes: those that many calls
are given are sent to a worker once.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from typing import Any

import pytest

import gridengine
from gridengine.schedulers import Scheduler
from tests.integration.map.test_large_functions import blocks_of_this_process, mapped, write
from tests.support.tcp_scheduler import TcpScheduler
from tests.support.waiting import wait_until

np = pytest.importorskip("numpy")

ITEMS, CALLS, SIZE = 1_000_000, 12, 2_000_000


@pytest.fixture(
    params=[gridengine.ProcessScheduler, TcpScheduler, gridengine.InlineScheduler],
    ids=["here", "elsewhere", "inline"],
)
def scheduler(request: pytest.FixtureRequest) -> Iterator[Scheduler]:
    slots = () if request.param is gridengine.InlineScheduler else (2,)
    with request.param(*slots) as scheduler:
        yield scheduler


def first_and_write(array: Any) -> float:
    return write(array, 0)


def test_no_call_sees_writes_of_another_into_its_array(scheduler: Scheduler) -> None:
    array = np.ones(ITEMS)
    assert gridengine.map(first_and_write, [array] * CALLS, scheduler=scheduler) == [1] * CALLS
    assert array[0] == 1


def test_an_array_of_many_calls_is_mapped_and_then_let_go() -> None:
    with gridengine.ProcessScheduler(2) as scheduler:
        results = gridengine.map(mapped_or_not, [np.ones(ITEMS)] * CALLS, scheduler=scheduler)
        assert all(results)
        wait_until(lambda: not blocks_of_this_process())


def test_a_process_without_descriptors_is_replaced_when_a_large_argument_comes() -> None:
    with gridengine.ProcessScheduler(1) as scheduler:
        [first] = gridengine.map(use_all_descriptors, [0], scheduler=scheduler)
        [(last, size)] = gridengine.map(process_and_size, [bytes(SIZE)], scheduler=scheduler)
    assert (last != first, size) == (True, SIZE)


def use_all_descriptors(_: int) -> int:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with contextlib.suppress(OSError):
        while True:
            os.open(os.devnull, os.O_RDONLY)
    return os.getpid()


def process_and_size(content: bytes) -> tuple[int, int]:
    return os.getpid(), len(content)


def mapped_or_not(array: Any) -> bool:
    try:
        return mapped(array)[:2] == (ITEMS, True)
    except AssertionError:  # nothing is mapped
        return False
