"""A client goes wherever a scheduler goes."""

from __future__ import annotations

import os
import time

import gridengine
from gridengine.errors import WorkerCrashed


def crash() -> None:
    os.abort()


def test_an_executor(client: gridengine.Client) -> None:
    with gridengine.Executor(scheduler=client) as executor:
        futures = [executor.submit(pow, 2, x) for x in range(200)]
        assert [future.result() for future in futures] == [2**x for x in range(200)]
        assert list(executor.map(abs, range(-5, 0))) == [5, 4, 3, 2, 1]
        assert isinstance(executor.submit(crash).exception(), WorkerCrashed)


def test_a_job_that_dies_and_one_that_is_terminated(client: gridengine.Client) -> None:
    died, slept = (
        gridengine.Job(target=crash, scheduler=client, retries=0),
        gridengine.Job(target=time.sleep, args=(3600,), scheduler=client),
    )
    died.start()
    slept.start()
    slept.terminate()
    died.join()
    slept.join()
    assert (died.exitcode, slept.exitcode) == (-6, -15)


def test_futures_as_arguments_and_shared_objects(client: gridengine.Client) -> None:
    table = gridengine.share(list(range(1000)))
    with gridengine.Executor(scheduler=client) as executor:
        first = executor.submit(lambda table: sum(table), table)
        assert executor.submit(lambda x, y: x + y, first, 1).result() == 499_501
    assert client.map(lambda x: table[x], [3, 5]) == [3, 5]


def test_calls_that_make_calls(client: gridengine.Client) -> None:
    def outer(x: int) -> list[int]:
        return gridengine.map(lambda y: x * y, range(3))

    assert client.map(outer, range(3)) == [[0, 0, 0], [0, 1, 2], [0, 2, 4]]
