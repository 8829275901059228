"""A started job on its host, played without workers."""

from __future__ import annotations

import gc
import os
import select
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine import Job
from gridengine.api.job_result import JobHandle, exitcode_of
from gridengine.errors import (
    Cancelled,
    ClusterError,
    ConfigurationError,
    GridEngineError,
    RemoteTraceback,
    WorkerCrashed,
    out_of_memory,
)
from gridengine.requests import Attempt, CallsFinished
from gridengine.serialize import pickling
from tests.support.fake_dispatcher import FakeDispatcher, FakeScheduler
from tests.support.jobs import Counting, FailingCounting, add, ended, fail, push_all
from tests.support.open_files import open_files
from tests.support.tasks import make_task
from tests.support.waiting import wait_until

ENDED = CallsFinished(1, 0, 1, [b""])


def make(scheduler: FakeScheduler | None = None) -> JobHandle:
    return JobHandle(FakeDispatcher(), scheduler, ours=scheduler is not None, daemon=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("end", "error", "code"),
    [
        (ENDED, None, 0),
        (CallsFinished(1, 0, 1, [b""], raised=True, exitcode=1), ValueError(), 1),
        (CallsFinished(1, 0, 1, [b""], raised=True, exitcode=1), SystemExit(), 0),
        (CallsFinished(1, 0, 1, [b""], raised=True, exitcode=1), SystemExit(258), 2),
        (CallsFinished(1, 0, 1, [b""], raised=True, exitcode=1), SystemExit(-1), 255),
        (CallsFinished(1, 0, 1, [b""], raised=True, exitcode=1), SystemExit(True), 1),
        (CallsFinished(1, 0, 1, [b""], raised=True, exitcode=1), SystemExit("words"), 1),
        (CallsFinished(1, 0, 1, None, error=WorkerCrashed("it died"), exitcode=-9), None, -9),
    ],
)
def test_the_exit_code_is_that_of_a_process(
    end: CallsFinished, error: BaseException | None, code: int
) -> None:
    assert exitcode_of(end, error) == code


def test_callbacks_at_the_end_run_before_the_end_is_visible() -> None:
    handle, seen = make(), []
    handle.when_ended(lambda: seen.append("before"))
    handle.settled(ENDED)
    handle.when_ended(lambda: seen.append("after"))
    assert seen == ["before", "after"]
    assert handle.wait(0)


def test_the_sentinel_is_readable_from_the_end_on() -> None:
    handle = make()
    sentinel = handle.sentinel()
    assert handle.sentinel() == sentinel
    assert select.select([sentinel], [], [], 0)[0] == []
    handle.settled(ENDED)
    assert select.select([sentinel], [], [], 0)[0] == [sentinel]
    assert os.read(sentinel, 1) == b""
    [pipe] = open_files(str(Path(f"/proc/self/fd/{sentinel}").readlink()))
    del handle
    gc.collect()
    assert open_files(pipe) == []


def test_a_scheduler_that_was_made_for_the_job_is_closed_once_it_is_known_to_have_ended() -> None:
    scheduler = FakeScheduler()
    handle = make(scheduler)
    assert not handle.wait(0)
    assert not scheduler.dispatcher.closed
    handle.settled(ENDED)
    assert handle.wait(0)
    assert scheduler.dispatcher.closed


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (None, []),
        (Cancelled("it was ended"), []),
        (WorkerCrashed("job one died"), ["job one died"]),
        (ClusterError("no"), ["job one could not be run: no"]),
    ],
)
def test_unprinted_output_is_logged_with_the_jobs_name(
    error: GridEngineError | None, lines: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    handle = make()
    task = make_task(1, pickling.dump_calls([]), count=0, name="one")
    handle.expect(task)
    handle.settled(CallsFinished(1, 0, 1, None, error=error))
    assert caplog.messages == lines


def test_a_job_out_of_memory_tells_of_its_attempts_where_it_printed_a_bare_memory_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    payload = pickling.dump_exception(out_of_memory("job one", limit=2**30, peak=0))
    attempts = [Attempt("node1", "", 0, 1, "it ran out of memory")]
    make().settled(CallsFinished(1, 0, 1, payload, raised=True, attempts=attempts))
    assert "its limit was 1.00 GB" in caplog.text
    assert "attempt: on node1, after 1.0 s: it ran out of memory" in caplog.text


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
def test_a_job_of_this_process_that_would_wait_for_its_own_result_is_refused(
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
