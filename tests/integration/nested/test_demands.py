"""Calls that make calls, and ask for resources for them: what they had is others' meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable

import psutil
import pytest

import gridengine
from gridengine import Cores, GPUs, ProcessScheduler
from tests.support.tcp_scheduler import TcpScheduler


def cores(_: object) -> tuple[int, set[int]]:
    """Return how many the call has, and which it may use."""
    held = gridengine.GVAR.res
    assert held.c is not None
    return held.N, os.sched_getaffinity(0)


def one_after_the_other(x: int) -> int:
    return sum(gridengine.map(abs, [x] * 3, resources=GPUs(1)))


def test_many_calls_may_each_make_some_for_which_there_is_little_room() -> None:
    with ProcessScheduler(worker_resources=Cores(2) & GPUs(1)) as scheduler:
        told = gridengine.map(one_after_the_other, range(40), scheduler=scheduler)
        waiting = len(psutil.Process().children(recursive=True))
    assert told == [3 * x for x in range(40)]
    assert waiting < 12, "no more wait at a time than twice as many as there are slots"


def in_turn(depth: int) -> int:
    """Make calls that ask for another number of cores at each depth."""
    if not depth:
        return 1
    return 1 + sum(gridengine.map(in_turn, [depth - 1] * 2, resources=Cores(1 + depth % 2)))


@pytest.mark.parametrize("kind", [ProcessScheduler, TcpScheduler])
def test_calls_of_different_requests_may_be_inside_each_other(
    kind: Callable[..., ProcessScheduler],
) -> None:
    with kind(2) as scheduler:
        assert gridengine.map(in_turn, [4], scheduler=scheduler) == [31]
