"""`JobDispatcher`: several jobs on one scheduler."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from gridengine import Job, JobDispatcher, errors
from gridengine.errors import ConfigurationError, PicklingError
from tests.support.fake_dispatcher import FakeScheduler
from tests.support.jobs import add, fail


def test_results_come_in_order_with_errors_in_their_places() -> None:
    with JobDispatcher(FakeScheduler()) as dispatcher:
        dispatcher.dispatch([Job(target=add, args=(1, 2)), Job(target=fail)])
        value, error = dispatcher.join()
    assert value == 3
    assert isinstance(error, ValueError)
    assert dispatcher.start_time is not None
    assert dispatcher.end_time is not None
    assert dispatcher.elapsed_time == dispatcher.elapsed_time


def test_options_of_a_job_dispatcher_are_defaults_of_its_jobs() -> None:
    scheduler = FakeScheduler()
    with JobDispatcher(scheduler, retries=5, timeout=7.0) as dispatcher:
        dispatcher.dispatch([Job(target=add, args=(1,)), Job(target=add, args=(1,), retries=0)])
        dispatcher.join()
    tasks = [entry.task for entry in scheduler.dispatcher.entries]
    assert [(task.options.retries, task.options.timeout) for task in tasks] == [(5, 7.0), (0, 7.0)]


def test_misuse_is_a_runtime_error(silent: FakeScheduler) -> None:
    dispatcher = JobDispatcher(silent)
    with pytest.raises(RuntimeError, match="no jobs have been dispatched"):
        dispatcher.join()
    dispatcher.dispatch([Job(target=add, args=(1,))])
    with pytest.raises(RuntimeError, match="join them first"):
        dispatcher.dispatch([Job(target=add, args=(1,))])


@pytest.mark.parametrize("jobs", [[abs], None, Job(target=abs), [Job(target=abs), "job"]])
def test_a_wrong_list_of_jobs_is_named_before_any_runs(silent: FakeScheduler, jobs: Any) -> None:
    with pytest.raises(TypeError, match=r"dispatch takes jobs, such as \[Job\(target=f\)\], not"):
        JobDispatcher(silent).dispatch(jobs)
    assert silent.dispatcher.entries == []


@pytest.mark.parametrize(("count", "words"), [(1, "1 of 1 job"), (2, "2 of 2 jobs")])
def test_jobs_that_are_not_done_in_time_are_counted_and_run_on(
    count: int, words: str, silent: FakeScheduler
) -> None:
    dispatcher = JobDispatcher(silent)
    dispatcher.dispatch([Job(target=add, args=(1,)) for _ in range(count)])
    with pytest.raises(
        errors.TimeoutError, match=f"{words} not done after 0 s; jobs that run go on"
    ):
        dispatcher.join(0)
    assert silent.dispatcher.cancelled == {}


def test_no_job_runs_when_one_of_them_cannot_be_pickled(silent: FakeScheduler) -> None:
    jobs = [Job(target=add, args=(1,)), Job(target=add, args=(threading.Lock(),))]
    with pytest.raises(PicklingError):
        JobDispatcher(silent).dispatch(jobs)
    [entry] = silent.dispatcher.entries
    assert set(silent.dispatcher.cancelled) == {entry.task.id}


def test_closing_a_job_dispatcher_ends_its_jobs_and_leaves_an_instance_open(
    silent: FakeScheduler,
) -> None:
    dispatcher = JobDispatcher(silent)
    job = Job(target=add, args=(1,))
    dispatcher.dispatch([job])
    dispatcher.close()
    dispatcher.close()
    assert job.exitcode == -9
    assert not silent.dispatcher.closed
    with pytest.raises(ConfigurationError, match="this JobDispatcher has been closed"):
        dispatcher.dispatch([])


def test_a_scheduler_that_was_made_for_it_is_closed_with_it() -> None:
    scheduler = FakeScheduler()
    with JobDispatcher(lambda: scheduler):
        assert not scheduler.dispatcher.closed
    assert scheduler.dispatcher.closed
