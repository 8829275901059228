"""A client goes wherever a scheduler goes."""

from __future__ import annotations

import asyncio
import functools
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine.errors import ConfigurationError, WorkerCrashed
from gridengine.resources import Capacity, Cores, Memory, Token
from tests.support.waiting import wait_until


def pid_of(x: int) -> tuple[int, int]:
    return x, os.getpid()


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


def test_a_pool(client: gridengine.Client) -> None:
    with gridengine.Pool(scheduler=client) as pool:
        assert pool.map(math.sqrt, [1, 4, 9]) == [1, 2, 3]
        assert sorted(pool.imap_unordered(abs, range(-9, 0))) == list(range(1, 10))
        assert pool.apply_async(divmod, (7, 2)).get() == (3, 1)


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


def test_joblib(client: gridengine.Client) -> None:
    joblib = pytest.importorskip("joblib", reason="one of the optional libraries")
    import gridengine.joblib_backend  # noqa: F401 - registers it

    with joblib.parallel_config("gridengine", scheduler=client):
        found = joblib.Parallel()(joblib.delayed(pid_of)(x) for x in range(20))
    assert [x for x, _ in found] == list(range(20))
    assert os.getpid() not in {pid for _, pid in found}


def test_delayed_functions(client: gridengine.Client) -> None:
    add = gridengine.delayed(lambda x, y: x + y)

    async def main() -> int:
        first = add(1, 2)
        return await add(first, add(first, 4))

    assert gridengine.run(main, scheduler=client) == 10


def test_a_graph_of_dask(client: gridengine.Client) -> None:
    dask = pytest.importorskip("dask", reason="one of the optional libraries")
    total = dask.delayed(sum)([dask.delayed(abs)(-x) for x in range(10)])
    get = functools.partial(gridengine.dask_get, scheduler=client)
    assert dask.compute(total, scheduler=get) == (45,)


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


def test_an_event_loop_awaits_calls(client: gridengine.Client) -> None:
    async def main() -> list[int]:
        with gridengine.Executor(scheduler=client) as executor:
            return await asyncio.gather(*(executor.submit(abs, -x) for x in range(20)))

    assert asyncio.run(main()) == list(range(20))


def test_large_arguments_and_results(client: gridengine.Client) -> None:
    numpy = pytest.importorskip("numpy", reason="an optional library")
    arrays = [numpy.full(1_500_000, x) for x in range(4)]
    doubled = client.map(lambda array: array * 2, arrays)
    assert [int(one.sum()) for one in doubled] == [3_000_000 * x for x in range(4)]


def test_resources_of_the_built_in_kinds(client: gridengine.Client) -> None:
    resources = Cores(1) & Memory(0.5)
    assert client.map(abs, [-1], resources=resources) == [1]
    with pytest.raises(ConfigurationError, match="Token"):
        client.map(abs, [-1], resources=Token("nosuch"))


def test_a_kind_of_ones_own_is_refused_with_the_reason(client: gridengine.Client) -> None:
    with pytest.raises(ConfigurationError, match="a kind of your own"):
        client.map(abs, [-1], resources=Own(1))


def test_more_than_a_client_may_have_open_is_an_error_where_it_is_submitted(
    client: gridengine.Client, tmp_path: Path
) -> None:
    def wait(path: Path) -> None:
        while not path.exists():
            time.sleep(0.01)

    with gridengine.Client(client.path, max_calls=3) as limited:
        futures = [limited.submit(wait, tmp_path / "go") for _ in range(3)]
        with pytest.raises(ConfigurationError, match=r"3 calls open, and may have 3 \(max_calls\)"):
            limited.submit(abs, 1)
        with pytest.raises(ConfigurationError, match="max_calls"):
            limited.map(abs, range(4))
        wait_until(lambda: client.status().running == 2)
        assert client.submit(abs, -1).done() is False
        (tmp_path / "go").touch()
        for future in futures:
            future.result()
        assert limited.map(abs, range(3)) == [0, 1, 2]
