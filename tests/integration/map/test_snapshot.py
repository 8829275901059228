"""What other threads see of a dispatcher at work."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

import pytest

import gridengine
from gridengine.calls.interface import Dispatcher
from gridengine.client.connect import dispatcher_of
from gridengine.resources import Memory
from gridengine.status.snapshot import Snapshot


@contextlib.contextmanager
def looking(dispatcher: Dispatcher) -> Iterator[list[Snapshot | BaseException]]:
    """Meanwhile have a thread ask for snapshots without a pause; yield those that differ, and what
    was raised.
    """
    seen: list[Snapshot | BaseException] = []
    stop = threading.Event()

    def look() -> None:
        try:
            while not stop.is_set():
                one = dispatcher.snapshot().of(1)
                if not seen or seen[-1] != one:
                    seen.append(one)
        except BaseException as error:
            seen.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def restless_interpreter() -> Iterator[None]:
    """Threads are switched as often as can be."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def requests_of_many_kinds(scheduler: gridengine.schedulers.Scheduler, rounds: int) -> None:
    """Submit calls of 20 different requests, whose queues come and go in the core."""
    with gridengine.Pool(scheduler=scheduler) as pool:
        for size in range(rounds):
            resources = Memory((size % 20 + 1) / 100)
            with gridengine.Executor(scheduler=scheduler, resources=resources) as executor:
                results = [executor.submit(abs, -1) for _ in range(5)]
                assert [one.result() for one in results] == [1] * 5
        assert pool.apply(abs, (-1,)) == 1


@pytest.mark.usefixtures("restless_interpreter")
def test_a_snapshot_is_answered_while_queues_come_and_go() -> None:
    with (
        gridengine.ProcessScheduler(2, worker_resources=Memory(1)) as scheduler,
        looking(dispatcher_of(scheduler)) as seen,
    ):
        requests_of_many_kinds(scheduler, 60)
    assert [one for one in seen if isinstance(one, BaseException)] == []
