"""What is known of a job once it has been started: its outcome, its attributes, its messages."""

from __future__ import annotations

import threading

import pytest

import gridengine
from gridengine import Job
from gridengine.errors import RemoteTraceback
from tests.support.fake_dispatcher import FakeScheduler
from tests.support.jobs import Counting, FailingCounting, add, ended, fail, push_all


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
