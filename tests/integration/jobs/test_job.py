"""`Job` beside `multiprocessing.Process`, on this machine's processes."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gridengine
from gridengine import Job
from gridengine.errors import RemoteTraceback
from gridengine.worker import runner
from tests.support.jobs import ended
from tests.support.script_driver import MakeScript
from tests.support.waiting import wait_until

# ------------------------------------------------------------------ how it ends


def fail() -> None:
    raise ValueError("no")


def test_a_job_that_ignores_sigterm_is_killed(
    scheduler: gridengine.ProcessScheduler, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"

    def stubborn() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        ready.touch()
        time.sleep(600)

    job = Job(target=stubborn, scheduler=scheduler)
    job.start()
    wait_until(ready.exists)
    job.terminate()
    job.join()
    assert job.exitcode == -signal.SIGKILL


@pytest.mark.promise
def test_a_job_that_has_not_begun_never_runs(
    scheduler: gridengine.ProcessScheduler, tmp_path: Path
) -> None:
    busy = [Job(target=time.sleep, args=(600,), scheduler=scheduler) for _ in range(2)]
    for job in busy:
        job.start()
    waiting = Job(target=(tmp_path / "ran").touch, scheduler=scheduler)
    waiting.start()
    waiting.terminate()
    waiting.join()
    for job in busy:
        job.kill()
        job.join()
    assert waiting.exitcode == -signal.SIGTERM
    assert not (tmp_path / "ran").exists()


@pytest.mark.promise
def test_the_pid_is_that_of_the_process_that_runs_it(
    scheduler: gridengine.ProcessScheduler,
) -> None:
    job = ended(Job(target=os.getpid, scheduler=scheduler))
    assert job.pid == job.ident == job.result() != os.getpid()


@pytest.mark.promise
def test_a_failed_job_has_its_exception_with_the_remote_line(
    scheduler: gridengine.ProcessScheduler,
) -> None:
    error = ended(Job(target=fail, scheduler=scheduler)).exception()
    assert isinstance(error, ValueError)
    assert isinstance(error.__cause__, RemoteTraceback)
    assert 'raise ValueError("no")' in str(error.__cause__)


# ------------------------------------------------------------------ output


def print_by_a_library() -> None:
    c = ctypes.CDLL(None)

    def flush(stream: None) -> None:
        time.sleep(0.5)
        c.fflush(stream)

    library = SimpleNamespace(fflush=flush)
    runner.ctypes = SimpleNamespace(CDLL=lambda name: library)  # type: ignore[assignment]
    time.sleep(0.1)  # for longer than a result waits for the next
    c.printf(b"C\n")


def test_buffered_output_of_libraries_is_written_before_the_result_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # C's own output would be, too
    with gridengine.ProcessScheduler(1) as scheduler:
        assert ended(Job(target=print_by_a_library, scheduler=scheduler)).stdout() == "C\n"


# ------------------------------------------------------------------ controller, subclasses


def push_then_wait(path: str, controller: Any) -> tuple[int, int]:
    controller.push("first")
    while not Path(path).exists():
        time.sleep(0.01)
    controller.push(["second"])
    return controller.job_id, controller.attempt


@pytest.mark.promise
def test_messages_are_read_while_the_job_runs(
    scheduler: gridengine.ProcessScheduler, tmp_path: Path
) -> None:
    job = Job(target=push_then_wait, args=(str(tmp_path / "go_on"),), scheduler=scheduler)
    job.start()
    messages = job.messages()
    assert next(messages) == "first"
    assert job.is_alive()
    (tmp_path / "go_on").touch()
    assert list(messages) == [["second"]]
    job.join()
    assert list(job.messages()) == ["first", ["second"]]
    _, attempt = job.result()
    assert attempt == 1


class Counter(Job):
    def __init__(self, count: int, **options: Any) -> None:
        super().__init__(**options)
        self.count = count
        self.seen: list[int] = []

    def run(self, controller: Any = None) -> str:
        for step in range(self.count):
            controller.push(step)
            self.seen.append(step)
        self.where = (self.pid, os.getpid(), self.is_alive())
        return self.name


@pytest.mark.promise
def test_a_mutable_subclass_comes_back_as_its_run_left_it(
    scheduler: gridengine.ProcessScheduler,
) -> None:
    job = ended(Counter(3, name="it", mutable=True, scheduler=scheduler))
    assert (job.result(), job.seen, list(job.messages())) == ("it", [0, 1, 2], [0, 1, 2])
    assert job.where == (job.pid, job.pid, True)


@pytest.mark.promise
def test_a_subclass_that_is_not_mutable_stays_as_it_was(
    scheduler: gridengine.ProcessScheduler,
) -> None:
    job = ended(Counter(3, scheduler=scheduler))
    assert (job.seen, hasattr(job, "where")) == ([], False)


# ------------------------------------------------------------------ what processes are known by


class Unhashable(Job):
    __hash__ = None  # type: ignore[assignment]


@pytest.mark.promise
def test_active_children_are_the_jobs_that_have_been_started_and_have_not_ended(
    scheduler: gridengine.ProcessScheduler,
) -> None:
    before = gridengine.active_children()
    job = Unhashable(target=time.sleep, args=(600,), scheduler=scheduler, daemon=True)
    assert job not in gridengine.active_children()
    job.start()
    assert [one for one in gridengine.active_children() if one not in before] == [job]
    job.kill()
    job.join()
    assert job not in gridengine.active_children()


EXIT_SCRIPT = """
    import time, gridengine

    def work(name):
        time.sleep(SECONDS)
        with open(name, "w") as file:
            file.write("done")

    scheduler = gridengine.ProcessScheduler(1)
    gridengine.Job(target=work, args=("file",), daemon=DAEMON, scheduler=scheduler).start()
    ENDING
"""


@pytest.mark.parametrize(
    ("daemon", "seconds", "ending", "done"),
    [(False, 0.5, "", True), (True, 600, "", False), (False, 600, "raise LookupError", False)],
    ids=["waits for a job", "ends a daemon job", "ends all at an exception"],
)
def test_the_interpreters_exit(
    daemon: bool, seconds: float, ending: str, done: bool, script: MakeScript, tmp_path: Path
) -> None:
    source = (
        EXIT_SCRIPT.replace("SECONDS", str(seconds))
        .replace("DAEMON", str(daemon))
        .replace("ENDING", ending)
    )
    run = script(source).run()
    assert run.returncode == (1 if ending else 0), run.stderr
    assert (tmp_path / "file").exists() is done
