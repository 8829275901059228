"""What is known of a job once it has been started: its outcome, its attributes, its messages."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import gridengine
from gridengine import Job
from gridengine.errors import ConfigurationError, RemoteTraceback
from tests.support.fake_dispatcher import FakeScheduler
from tests.support.jobs import Counting, FailingCounting, add, ended, fail, push_all
from tests.support.waiting import wait_until

SHARED: dict[str, Any] = {}
"""What calls in this very process find by its name, and are not given."""


def test_the_result_of_a_failed_job_raises_its_exception(scheduler: FakeScheduler) -> None:
    job = ended(Job(target=fail, scheduler=scheduler))
    with pytest.raises(ValueError, match="no") as caught:
        job.result()
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert job.exception() is caught.value
    assert job.outcome() is caught.value


def test_a_returned_exception_is_a_value(scheduler: FakeScheduler) -> None:
    job = ended(Job(target=ValueError, args=("mine",), scheduler=scheduler))
    assert isinstance(job.result(), ValueError)
    assert (job.exception(), job.exitcode) == (None, 0)


def test_a_result_that_is_not_there_in_time_is_a_timeout_error_and_the_job_runs_on(
    silent: FakeScheduler,
) -> None:
    job = Job(target=add, args=(1,), name="slow", scheduler=silent)
    job.start()
    with pytest.raises(gridengine.TimeoutError, match="slow"):
        job.result(timeout=0.001)
    with pytest.raises(TimeoutError):
        job.exception(timeout=0.001)
    silent.dispatcher.run(silent.dispatcher.entries[0])
    assert job.result() == 1


def test_a_result_before_start_is_misuse() -> None:
    with pytest.raises(AssertionError, match="can only join a started process"):
        Job(target=add).result()


def test_a_mutable_job_has_its_attributes_as_the_run_left_them(scheduler: FakeScheduler) -> None:
    job = ended(Counting(1, mutable=True, scheduler=scheduler))
    assert (job.result(), job.count, job.new) == (2, 2, [2])
    assert not hasattr(job, "gone")
    assert job.exitcode == 0


def test_a_mutable_job_that_failed_has_them_too(scheduler: FakeScheduler) -> None:
    job = ended(FailingCounting(1, mutable=True, scheduler=scheduler))
    assert (job.exitcode, job.count) == (1, 2)
    with pytest.raises(ValueError, match="no"):
        job.result()


def test_a_mutable_job_may_have_a_target(scheduler: FakeScheduler) -> None:
    job = Job(target=add, args=(1, 2), mutable=True, scheduler=scheduler)
    job.note = "mine"  # type: ignore[attr-defined]
    assert ended(job).result() == 3
    assert job.note == "mine"  # type: ignore[attr-defined]


def test_messages_come_while_the_job_runs_and_end_with_it(silent: FakeScheduler) -> None:
    job = Job(target=push_all, args=(1, 2), scheduler=silent)
    job.start()
    messages = job.messages()
    runner = threading.Thread(target=silent.dispatcher.run, args=(silent.dispatcher.entries[0],))
    runner.start()
    assert list(messages) == [1, 2]
    runner.join()
    assert list(job.messages()) == [1, 2]


def test_messages_before_start_are_misuse() -> None:
    with pytest.raises(AssertionError, match="started"):
        Job(target=add).messages()


def call_shared(name: str) -> Any:
    return SHARED[name]()


@pytest.mark.parametrize("mutable", [False, True])
@pytest.mark.parametrize(
    "inside",
    [
        lambda job, at: gridengine.map(add, [job], scheduler=at),
        lambda job, at: gridengine.Executor(scheduler=at).submit(add, job).result(),
        lambda job, at: ended(Job(target=add, args=(job,), scheduler=at)).result(),
        lambda job, at: ended(Job(target=call_shared, args=("again",), scheduler=at)).result(),
    ],
    ids=["map", "submit", "job", "job in a job"],
)
def test_a_job_of_this_process_is_refused_by_what_it_would_wait_for(
    inside: Callable[[Job, Any], Any], mutable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = gridengine.InlineScheduler()
    job = Job(target=call_shared, args=("act",), scheduler=scheduler, mutable=mutable, name="own")
    monkeypatch.setitem(SHARED, "act", lambda: inside(job, scheduler))
    monkeypatch.setitem(SHARED, "again", lambda: gridengine.map(add, [job], scheduler=scheduler))
    with pytest.raises(ConfigurationError, match="made inside job own, whose result it needs"):
        ended(job).result()


def test_jobs_of_two_threads_that_would_wait_for_each_other_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler, both = gridengine.InlineScheduler(), threading.Barrier(2)
    one, two = (
        Job(target=call_shared, args=(name,), scheduler=scheduler, name=name) for name in "ab"
    )

    def needs(other: Job) -> Any:
        both.wait()
        return gridengine.map(add, [other], scheduler=scheduler)

    monkeypatch.setitem(SHARED, "a", lambda: needs(two))
    monkeypatch.setitem(SHARED, "b", lambda: needs(one))
    threads = [threading.Thread(target=job.start) for job in (one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors = [job.exception() for job in (one, two)]
    assert all(isinstance(error, ConfigurationError) for error in errors)
    assert "whose result it needs by way of job " in str(errors[0])
    assert any("failed, and with it add" in note for error in errors for note in notes_of(error))


def notes_of(error: BaseException | None) -> list[str]:
    return getattr(error, "__notes__", [])


@pytest.mark.parametrize("mutable", [False, True])
def test_a_job_that_another_thread_of_this_process_runs_is_waited_for(
    mutable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = gridengine.InlineScheduler()
    go, results = threading.Event(), []
    monkeypatch.setitem(SHARED, "act", lambda: go.wait() and 3)
    job = Job(target=call_shared, args=("act",), scheduler=scheduler, mutable=mutable)
    runs = threading.Thread(target=job.start)
    runs.start()
    wait_until(lambda: job.pid is not None)
    executor = gridengine.Executor(scheduler=scheduler)
    waits = threading.Thread(target=lambda: results.append(executor.submit(add, job, 4).result()))
    waits.start()
    wait_until(lambda: "gridengine-job-result" in {one.name for one in threading.enumerate()})
    go.set()
    runs.join()
    waits.join()
    assert results == [7]
