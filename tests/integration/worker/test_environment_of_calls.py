"""Calls see the environment of their submission, and of each other no more than they should."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Iterator
from typing import Any

import pytest

import gridengine
from gridengine import ConfigurationError, Job

NAME = "A_VARIABLE_OF_THE_TEST"


def look(_: object = None, name: str = NAME) -> str | None:
    return os.environ.get(name)


@pytest.fixture
def scheduler() -> Iterator[gridengine.ProcessScheduler]:
    with gridengine.ProcessScheduler(1) as scheduler:
        yield scheduler


def seen_by(job: Job) -> object:
    job.start()
    job.join()
    return job.result()


# ---------------------------------------------------------------- as of the submission


@pytest.mark.parametrize("wrong", [{"a b": "1"}, {"A": 1}, ["A"]])
def test_a_wrong_environment_is_refused(wrong: Any) -> None:
    with pytest.raises((TypeError, ConfigurationError), match="environment"):
        gridengine.ProcessScheduler(1, environment=wrong)


@pytest.mark.promise
def test_calls_of_maps_executors_and_pools_have_that_of_their_submission(
    monkeypatch: pytest.MonkeyPatch, scheduler: gridengine.ProcessScheduler
) -> None:
    executor, pool = gridengine.Executor(scheduler=scheduler), gridengine.Pool(scheduler=scheduler)
    with executor, pool:
        for value in "012":
            monkeypatch.setenv(NAME, value)
            assert gridengine.map(look, [0], scheduler=scheduler) == [value]
            assert list(gridengine.imap(look, [0], scheduler=scheduler)) == [value]
            assert executor.submit(look).result() == value
            assert list(executor.map(look, [0])) == [value]
            assert executor.with_options(retries=0).submit(look).result() == value
            assert pool.apply(look) == value
            assert pool.map(look, [0]) == [value]
            assert list(pool.imap(look, [0])) == [value]


# ---------------------------------------------------------------- as multiprocessing has it


def names() -> tuple[str, str | None]:
    record = logging.LogRecord("name", 10, "path", 1, "message", (), None)
    return multiprocessing.current_process().name, record.processName


def parent() -> tuple[int | None, bool]:
    process = multiprocessing.parent_process()
    assert process is not None
    return process.pid, process.is_alive()


@pytest.mark.promise
def test_the_process_of_a_call_has_a_name_and_a_parent(
    scheduler: gridengine.ProcessScheduler,
) -> None:
    assert seen_by(Job(target=names, name="reader", scheduler=scheduler)) == ("reader", "reader")
    [(name, logged)] = gridengine.starmap(names, [()], scheduler=scheduler)
    assert name == logged
    assert name.startswith("PoolWorker-")
    assert gridengine.starmap(parent, [()], scheduler=scheduler) == [(os.getpid(), True)]


GPUS = "CUDA_VISIBLE_DEVICES"


def test_a_scheduler_s_environment_wins_over_the_caller_s(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("1", "2"):
        monkeypatch.setenv(NAME, value)
        monkeypatch.setenv(GPUS, value)
        monkeypatch.setenv("TMPDIR", f"/tmp/{value}")
        with gridengine.ProcessScheduler(1, environment={NAME: "added", "OWN": "x"}) as scheduler:
            assert gridengine.map(
                look,
                [None] * 5,
                [NAME, "OWN", GPUS, "TMPDIR", "GRIDENGINE_JOB_KEPT"],
                scheduler=scheduler,
            ) == ["added", "x", value, f"/tmp/{value}", None]
            monkeypatch.setenv(NAME, "later")
            monkeypatch.setenv(GPUS, "later")
            job = Job(target=look, args=(None, GPUS), scheduler=scheduler)
            assert seen_by(job) == "later"
            assert seen_by(Job(target=look, scheduler=scheduler)) == "added"
