"""Libraries that take an executor, a pool or a joblib backend take ours. Each is optional: `pip
install '.[third-parties]'`.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine.errors import WorkerCrashed
from tests.support.waiting import wait_until

WHY = "one of the optional libraries of setup.cfg's third-parties"


@pytest.fixture
def joblib(scheduler: gridengine.ProcessScheduler) -> Iterator[Any]:
    """The library, with our backend in use."""
    library = pytest.importorskip("joblib", reason=WHY)
    import gridengine.joblib_backend  # noqa: F401 - registers it

    with library.parallel_config("gridengine", scheduler=scheduler):
        yield library


def pid_of(x: int) -> tuple[int, int]:
    return x, os.getpid()


def invert(x: int) -> float:
    return 1 / x


def test_dask_computes_a_graph_on_an_executor(scheduler: gridengine.ProcessScheduler) -> None:
    dask = pytest.importorskip("dask", reason=WHY)
    sums = [dask.delayed(operator.add)(index, 1) for index in range(50)]
    pids = [dask.delayed(os.getpid)(dask_key_name=f"pid-{index}") for index in range(10)]
    with gridengine.Executor(scheduler=scheduler) as executor:
        total, *ran = dask.compute(dask.delayed(sum)(sums), *pids, scheduler=executor)
    assert total == sum(range(51))
    assert os.getpid() not in ran


def test_joblib_runs_calls_on_the_workers(joblib: Any) -> None:
    results = joblib.Parallel()(joblib.delayed(pid_of)(index) for index in range(200))
    assert [x for x, _ in results] == list(range(200))
    assert os.getpid() not in {pid for _, pid in results}


def test_joblib_s_calls_are_given_the_results_of_futures(
    joblib: Any, scheduler: gridengine.ProcessScheduler
) -> None:
    with gridengine.Executor(scheduler=scheduler) as executor:
        half = executor.submit(invert, 2)
        calls = (joblib.delayed(invert)(number) for number in [half, 4, half])
        assert joblib.Parallel(n_jobs=2)(calls) == [2, 0.25, 2]


def test_joblib_raises_the_exception_of_a_call_and_goes_on(joblib: Any) -> None:
    with joblib.Parallel(n_jobs=2) as parallel:
        with pytest.raises(ZeroDivisionError) as caught:
            parallel(joblib.delayed(invert)(index) for index in range(10, -1, -1))
        first, second = caught.value.__notes__
        assert first == "the call of invert, argument 0"
        assert second.startswith("the call of invert, on ")
        assert parallel(joblib.delayed(invert)(index) for index in (1, 2)) == [1, 0.5]


def test_joblib_s_calls_are_known_by_their_function(
    joblib: Any, scheduler: gridengine.ProcessScheduler
) -> None:
    with pytest.raises(WorkerCrashed, match="the call of _exit exited with status 3"):
        joblib.Parallel(n_jobs=2, batch_size=2)([joblib.delayed(os._exit)(3)] * 3)
    with gridengine.Executor(scheduler=scheduler) as executor:
        failed = executor.submit(invert, 0)
        with pytest.raises(ZeroDivisionError) as caught:
            joblib.Parallel(n_jobs=2)([joblib.delayed(abs)(failed)] * 2)
    [note] = caught.value.__notes__
    assert note.endswith("failed, and with it abs")


def test_joblib_gives_results_as_a_generator(joblib: Any) -> None:
    results = joblib.Parallel(n_jobs=2, return_as="generator")(
        joblib.delayed(pid_of)(index) for index in range(100)
    )
    assert [x for x, _ in results] == list(range(100))


def test_joblib_gets_how_many_calls_run_at_a_time(joblib: Any) -> None:
    assert joblib.effective_n_jobs(-1) == 2
    assert joblib.effective_n_jobs(1) == 1
    assert joblib.effective_n_jobs(100) == 2


def test_scikit_learn_searches_on_the_workers(joblib: Any) -> None:
    selection = pytest.importorskip("sklearn.model_selection", reason=WHY)
    tree = pytest.importorskip("sklearn.tree", reason=WHY)
    datasets = pytest.importorskip("sklearn.datasets", reason=WHY)
    data = datasets.load_iris(return_X_y=True)

    def search() -> Any:
        return selection.GridSearchCV(
            tree.DecisionTreeClassifier(random_state=1), {"max_depth": [1, 2, 3]}
        ).fit(*data)

    found = search()
    with joblib.parallel_config("threading", n_jobs=1):
        alone = search()
    assert (
        found.cv_results_["mean_test_score"].tolist()
        == alone.cv_results_["mean_test_score"].tolist()
    )
    assert found.best_params_ == alone.best_params_


def first_numbers(count: int) -> tuple[list[float], list[str], str]:
    """Have joblib's own processes read a large array; return what is in shared memory meanwhile,
    and whose it is.
    """
    import joblib
    import numpy as np

    array = np.arange(1_000_000.0)
    numbers = joblib.Parallel(n_jobs=2)(
        joblib.delayed(lambda large, place: float(large[place]))(array, place)
        for place in range(count)
    )
    return numbers, in_shared_memory(str(os.getpid())), str(os.getpid())


def in_shared_memory(owner: str) -> list[str]:
    return [
        path.name
        for path in Path("/dev/shm").iterdir()
        if f"-{owner}-" in path.name or f"_{owner}_" in path.name
    ]


def test_memory_shared_by_joblib_s_processes_goes_with_the_workers() -> None:
    pytest.importorskip("joblib", reason=WHY)
    pytest.importorskip("numpy", reason=WHY)
    with gridengine.ProcessScheduler(max_workers=1) as scheduler:
        [(numbers, shared, owner)] = gridengine.map(first_numbers, [3], scheduler=scheduler)
    assert numbers == [0.0, 1.0, 2.0]
    assert shared
    wait_until(lambda: in_shared_memory(owner) == [])  # what removes it may run a little longer
