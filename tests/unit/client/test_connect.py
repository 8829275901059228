"""What `scheduler=` may be, wherever there is one."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import gridengine
from gridengine.client.connect import dispatcher_of, resolve
from gridengine.errors import ConfigurationError
from gridengine.schedulers.base import Scheduler


def by_map(scheduler: Any) -> int:
    [found] = gridengine.starmap(os.getpid, [()], scheduler=scheduler)
    return found


def by_imap(scheduler: Any) -> int:
    [found] = gridengine.imap(lambda x: os.getpid(), [0], scheduler=scheduler)
    return found


def by_job(scheduler: Any) -> Any:
    job = gridengine.Job(target=os.getpid, scheduler=scheduler)
    job.start()
    return job.result()


def by_dispatcher(scheduler: Any) -> Any:
    with gridengine.JobDispatcher(scheduler) as dispatcher:
        dispatcher.dispatch([gridengine.Job(target=os.getpid)])
        [found] = dispatcher.join()
    return found


def by_executor(scheduler: Any) -> int:
    with gridengine.Executor(scheduler=scheduler) as executor:
        return executor.submit(os.getpid).result()


def by_sized_executor(scheduler: Any) -> int:
    with gridengine.Executor(scheduler=scheduler, max_workers=2) as executor:
        return executor.submit(os.getpid).result()


def by_pool(scheduler: Any) -> int:
    with gridengine.Pool(2, scheduler=scheduler) as pool:
        return pool.apply(os.getpid)


def by_joblib(scheduler: Any) -> Any:
    joblib = pytest.importorskip(
        "joblib", reason="one of the optional libraries of setup.cfg's third-parties"
    )
    import gridengine.joblib_backend  # noqa: F401 - makes the backend known to joblib

    with joblib.parallel_config("gridengine", scheduler=scheduler):
        [found] = joblib.Parallel(n_jobs=2)([joblib.delayed(os.getpid)()])
    return found


EVERYWHERE = pytest.mark.parametrize(
    "run",
    [
        by_map,
        by_imap,
        by_job,
        by_dispatcher,
        by_executor,
        by_sized_executor,
        by_pool,
        by_joblib,
    ],
)


@EVERYWHERE
def test_a_name_is_a_scheduler_wherever_one_is(run: Callable[[Any], int]) -> None:
    assert run("inline") == os.getpid()


@EVERYWHERE
def test_an_unknown_name_is_an_error_wherever_one_is(run: Callable[[Any], int]) -> None:
    with pytest.raises(ConfigurationError, match="there is no scheduler 'process'"):
        run("process")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("process", "'processes' is one"),
        ("SGE", "'grid_engine' is one"),
        (
            "local",
            "there are: 'processes', 'grid_engine', 'slurm', 'htcondor', 'oar', 'pbs', 'lsf', "
            "'flux', 'inline'",
        ),
    ],
)
def test_an_unknown_name_is_an_error_that_offers_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=f"there is no scheduler '{name}'") as caught:
        resolve(name)
    assert caught.value.hint == hint


def test_a_name_is_this_process_s_own_scheduler_and_stays_open() -> None:
    scheduler, ours = resolve("inline")
    assert not ours
    assert resolve("inline") == (scheduler, False)


def test_a_worker_that_began_ahead_ends_when_its_dispatcher_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ConfigurationError("too many threads")

    told: list[str] = []
    ahead = SimpleNamespace(close=lambda: told.append("closed"))

    def begin(scheduler: Scheduler, settings: object, calls: str) -> Any:
        told.append(calls)
        return ahead

    monkeypatch.setattr("gridengine.dispatcher.started_ahead.StartedAhead.begin", begin)
    monkeypatch.setattr("gridengine.calls.posting.PostingDispatcher", fail)
    scheduler = Scheduler(max_workers=1)
    scheduler._starts_ahead = True
    with pytest.raises(ConfigurationError, match="too many threads"):
        dispatcher_of(scheduler, "simulate")
    assert told == ["simulate", "closed"]
