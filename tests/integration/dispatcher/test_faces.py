"""A client goes wherever a scheduler goes."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

import gridengine
from gridengine.errors import ConfigurationError, WorkerCrashed
from gridengine.resources import Capacity


def crash() -> None:
    os.abort()


class Own(Capacity):
    """A kind of a user's own."""


def test_an_executor(client: gridengine.Client) -> None:
    with gridengine.Executor(scheduler=client) as executor:
        futures = [executor.submit(pow, 2, x) for x in range(200)]
        assert [future.result() for future in futures] == [2**x for x in range(200)]
        assert list(executor.map(abs, range(-5, 0))) == [5, 4, 3, 2, 1]
        assert isinstance(executor.submit(crash).exception(), WorkerCrashed)


def test_jobs_print_push_and_return(client: gridengine.Client) -> None:
    def talk(controller: Any) -> str:
        print("said")
        controller.push("pushed")
        return "returned"

    job = gridengine.Job(target=talk, scheduler=client)
    job.start()
    assert list(job.messages()) == ["pushed"]
    assert (job.result(), job.exitcode, job.stdout()) == ("returned", 0, "said\n")


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


def test_a_kind_of_ones_own_is_refused_with_the_reason(client: gridengine.Client) -> None:
    with pytest.raises(ConfigurationError, match="a kind of your own"):
        client.map(abs, [-1], resources=Own(1))
