"""dask's collections computed by `dask_get`."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import Any

import pytest

import gridengine

dask = pytest.importorskip("dask", reason="one of the optional libraries of setup.cfg")


@pytest.fixture(autouse=True)
def get(scheduler: gridengine.ProcessScheduler) -> Iterator[Any]:
    """The scheduler that dask computes with here."""
    get = functools.partial(gridengine.dask_get, scheduler=scheduler)
    with dask.config.set(scheduler=get):
        yield get


def inc(x: int) -> int:
    return x + 1


def test_delayed_calls_run_on_workers() -> None:
    numbers = [dask.delayed(inc)(index) for index in range(50)]
    total, pid = dask.compute(
        dask.delayed(sum, pure=True)(numbers), dask.delayed(os.getpid)(dask_key_name="pid")
    )
    assert total == sum(range(51))
    assert pid != os.getpid()


def test_arrays() -> None:
    array = pytest.importorskip("dask.array")
    numpy = pytest.importorskip("numpy")
    plain = numpy.arange(90_000.0).reshape(300, 300) / 1000
    x = array.from_array(plain, chunks=(100, 70))
    got = dask.compute((x @ x.T).mean(), x[::7, 5], (x - x.mean(axis=0)).std(), x.cumsum(axis=1))
    expected = (plain @ plain.T).mean(), plain[::7, 5], (plain - plain.mean(axis=0)).std()
    for one, other in zip(got, (*expected, plain.cumsum(axis=1)), strict=True):
        numpy.testing.assert_allclose(one, other)
    y = array.random.default_rng(1).random((500, 500), chunks=100).persist()
    assert float((y - y).sum()) == 0


def test_the_arguments_of_compute_are_those_of_the_calls() -> None:
    job = dask.delayed(gridengine.current_job)()
    resources = job.resources.compute(resources=gridengine.Memory(0.5), num_workers=3)
    assert resources.get(gridengine.Memory).M == 0.5
