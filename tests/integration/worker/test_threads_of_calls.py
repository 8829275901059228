"""How many threads libraries are told to start in calls."""

from __future__ import annotations

import os
from collections.abc import Callable

import joblib
import pytest

import gridengine
import gridengine.joblib_backend
from gridengine.call_context.process_resources import NOT_OF_OPENMP, THREADS
from gridengine.system import processors

Told = dict[str, str | None]


def told(_: object = None) -> Told:
    return {name: os.environ.get(name) for name in THREADS}


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in THREADS:
        monkeypatch.delenv(name, raising=False)


def test_a_call_has_as_many_threads_as_it_has_cores() -> None:
    cores = len(processors())
    with gridengine.ProcessScheduler(1) as one, gridengine.ProcessScheduler(2 * cores) as many:
        assert gridengine.map(told, [0], scheduler=one) == [dict.fromkeys(THREADS, str(cores))]
        assert gridengine.map(told, [0], scheduler=many) == [dict.fromkeys(THREADS, "1")]


@pytest.mark.promise
@pytest.mark.parametrize(
    ("name", "others"), [("OMP_NUM_THREADS", None), ("MKL_NUM_THREADS", "cores")]
)
def test_thread_counts_that_the_script_sets_hold(
    monkeypatch: pytest.MonkeyPatch, name: str, others: str | None
) -> None:
    monkeypatch.setenv(name, "77")
    cores = str(len(processors()))
    with gridengine.ProcessScheduler(1) as scheduler:
        [found] = gridengine.map(told, [0], scheduler=scheduler)
    left = {**dict.fromkeys(THREADS, others and cores), **dict.fromkeys(NOT_OF_OPENMP, cores)}
    assert found == {**left, name: "77"}


def per_batch(**options: int) -> list[Told]:
    with (
        gridengine.ProcessScheduler(2) as scheduler,
        joblib.parallel_config("gridengine", scheduler=scheduler, **options),
    ):
        look: Callable[[int], Told] = told
        return list(joblib.Parallel(n_jobs=2)(joblib.delayed(look)(one) for one in range(4)))


def test_joblib_says_how_many_threads_its_calls_have() -> None:
    assert per_batch(inner_max_num_threads=5) == [dict.fromkeys(THREADS, "5")] * 4
