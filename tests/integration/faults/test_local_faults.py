"""What goes wrong on one machine, and what must come of it: each call ends with its result, or with
an error that says why.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine import (
    Cancelled,
    ConfigurationError,
    Executor,
    Job,
    JobDispatcher,
    ProcessScheduler,
    TimeoutError,
    WorkerCrashed,
)
from gridengine.client.connect import dispatcher_of
from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.launcher import LaunchContext, Launcher
from tests.support.agent_driver import alive, leave_a_grandchild, written
from tests.support.clocked import clocked
from tests.support.manual_clock import ManualClock
from tests.support.script_driver import MakeScript
from tests.support.waiting import wait_until

MEGABYTE = 2**20


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def by_clock(clock: ManualClock) -> Iterator[ProcessScheduler]:
    """One whose time passes only when the test advances the clock."""
    with clocked(ProcessScheduler(max_workers=2), clock) as scheduler:
        yield scheduler


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def note(path: Path | str, text: object = "") -> None:
    """Add a line to a file, in one write."""
    with Path(path).open("a") as file:
        file.write(f"{text}\n")


def ended(job: Job) -> Job:
    job.start()
    job.join()
    return job


# ------------------------------------------------------------------ the call's process dies


def kill_own_process(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.promise
def test_a_call_that_kills_every_process_fails_alone(scheduler: ProcessScheduler) -> None:
    def call(x: int) -> int:
        return kill_own_process(x) if x == 57 else x * x  # type: ignore[func-returns-value]

    results = gridengine.map(call, range(200), scheduler=scheduler, reraise=False)
    assert results[:57] + results[58:] == [x * x for x in range(200) if x != 57]
    assert isinstance(results[57], WorkerCrashed)
    assert "call 57 of " in results[57].message, (
        "the call is named by its place among all arguments"
    )


@pytest.mark.promise
def test_a_job_has_the_record_of_each_attempt(scheduler: ProcessScheduler, tmp_path: Path) -> None:
    def target() -> str:
        note(tmp_path / "attempts")
        if len(lines(tmp_path / "attempts")) < 3:
            os._exit(len(lines(tmp_path / "attempts")))
        return "done"

    job = Job(target=target, scheduler=scheduler)
    assert job.attempts == ()
    assert ended(job).result() == "done"
    assert [one.exitcode for one in job.attempts] == [1, 2, 0]
    assert [one.outcome for one in job.attempts] == [
        "its process exited with status 1",
        "its process exited with status 2",
        "it returned",
    ]
    assert all(one.host for one in job.attempts)
    assert all(one.seconds >= 0 and one.peak_memory > MEGABYTE for one in job.attempts)
    assert all(
        before.ended <= after.started
        for before, after in zip(job.attempts, job.attempts[1:], strict=False)
    )
    with pytest.raises(AttributeError):
        job.attempts[0].host = "elsewhere"  # type: ignore[misc]


# ------------------------------------------------------------------ exceptions that are to be
# retried


@pytest.mark.promise
def test_an_exception_is_retried_when_the_caller_says_so(
    scheduler: ProcessScheduler, tmp_path: Path
) -> None:
    def call(x: int) -> int:
        note(tmp_path / str(x))
        if len(lines(tmp_path / str(x))) <= 2:
            raise FileNotFoundError(x)
        return x

    assert gridengine.map(call, range(20), scheduler=scheduler, retry_on=(OSError,)) == list(
        range(20)
    )
    assert {len(lines(tmp_path / str(x))) for x in range(20)} == {3}


# ------------------------------------------------------------------ time


@pytest.mark.promise
def test_a_call_over_its_time_is_not_run_again_and_the_others_go_on(
    by_clock: ProcessScheduler, clock: ManualClock, tmp_path: Path
) -> None:
    def call(x: int) -> int:
        note(tmp_path / str(x))
        if x == 5:
            signal.pause()
        return x

    with Executor(scheduler=by_clock, timeout=10.0) as executor:
        late, *others = (executor.submit(call, x) for x in (5, *range(5), *range(6, 20)))
        assert [one.result() for one in others] == [x for x in range(20) if x != 5]
        clock.advance_until(late.done)
        with pytest.raises(TimeoutError, match=r"limit of 10 s"):
            late.result()
    assert len(lines(tmp_path / "5")) == 1


@pytest.mark.promise
def test_a_call_that_comes_back_when_its_time_is_over_was_late_all_the_same(
    by_clock: ProcessScheduler, clock: ManualClock, tmp_path: Path
) -> None:
    def target(controller: Any) -> str:
        note(tmp_path / "begun")
        wait_until(lambda: controller.cancelled)
        return "tidied up"

    job = Job(target=target, timeout=10.0, scheduler=by_clock)
    job.start()
    wait_until((tmp_path / "begun").exists)
    clock.advance(10.0)
    job.join()
    assert isinstance(job.exception(), TimeoutError)
    assert job.exitcode != 0
    assert [one.outcome for one in job.attempts] == ["it ran over its time"]


# ------------------------------------------------------------------ to be ended on request


@pytest.mark.promise
@pytest.mark.parametrize("end", [Job.terminate, Job.kill])
def test_a_job_that_was_ended_on_request_is_never_run_again(
    end: Callable[[Job], None], scheduler: ProcessScheduler, tmp_path: Path
) -> None:
    def target() -> None:
        note(tmp_path / "begun")
        signal.pause()

    job = Job(target=target, retries=5, scheduler=scheduler)
    job.start()
    wait_until(lambda: lines(tmp_path / "begun"))
    end(job)
    job.join()
    assert isinstance(job.exception(), Cancelled)
    assert [one.outcome for one in job.attempts] == ["it was ended on request"]
    assert len(lines(tmp_path / "begun")) == 1


def with_a_grandchild(path: str) -> None:
    leave_a_grandchild(path)
    signal.pause()


@pytest.mark.promise
@pytest.mark.parametrize("way", ["cancel", "timeout", "crash", "close"])
def test_processes_in_sessions_of_their_own_end_with_their_call(
    way: str, clock: ManualClock, tmp_path: Path
) -> None:
    path = tmp_path / "pid"
    with clocked(ProcessScheduler(1), clock) as scheduler:
        job = Job(
            target=with_a_grandchild,
            args=(str(path),),
            timeout=60.0,
            retries=0,
            scheduler=scheduler,
        )
        job.start()
        wait_until(written(path))
        if way == "cancel":
            job.terminate()
        elif way == "crash":
            wait_until(lambda: job.pid is not None)
            os.kill(job.pid or 0, signal.SIGSEGV)
        elif way == "timeout":
            clock.advance_until(lambda: not job.is_alive())
        if way != "close":
            job.join()
            wait_until(lambda: not alive(int(path.read_text())))
    wait_until(lambda: not alive(int(path.read_text())))


@pytest.mark.promise
def test_closing_an_iterator_ends_its_running_calls_and_starts_no_more(
    scheduler: ProcessScheduler, tmp_path: Path
) -> None:
    def call(x: int) -> None:
        note(tmp_path / "pids", os.getpid())
        signal.pause()

    with gridengine.imap(call, range(100), scheduler=scheduler):
        wait_until(lambda: len(lines(tmp_path / "pids")) == 2)
    wait_until(lambda: not any(alive(int(pid)) for pid in lines(tmp_path / "pids")))
    assert gridengine.map(abs, [-1], scheduler=scheduler) == [1]
    assert len(lines(tmp_path / "pids")) == 2


# ------------------------------------------------------------------ the user's process


STUBBORN = """
import os, signal, threading, time

def work(x=0):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("working", flush=True)
    while True:
        time.sleep(600)

def tell_and_join(thread, timeout=None, join=threading.Thread.join):
    os.write(1, b"closing\\n")
    join(thread, timeout)

scheduler = gridengine.ProcessScheduler(1)
executor = gridengine.Executor(scheduler=scheduler)
executor.submit(abs, 1).result()
threading.Thread.join = tell_and_join
"""
AT_EXIT = """
import atexit

def tell_and_wait(condition, timeout=None, wait=threading.Condition.wait):
    if threading.current_thread() is threading.main_thread():
        os.write(1, b"waiting\\n")
    return wait(condition, timeout)

# Called first, being registered last: what the exit itself waits with tells of it.
atexit.register(setattr, threading.Condition, "wait", tell_and_wait)
"""


@pytest.mark.parametrize(
    ("ending", "waits"),
    [
        ("job = gridengine.Job(target=work, scheduler=scheduler); job.start(); job.join()", ""),
        ("gridengine.map(work, [1], scheduler=scheduler)", ""),
        ("executor.submit(work).result()", ""),
        (
            "gridengine.Job(target=work, scheduler=scheduler).start()",
            "interrupted while waiting for jobs; they are ended\n",
        ),
        ("executor.submit(work)", "interrupted while waiting for calls; they are ended\n"),
    ],
    ids=["job", "map", "executor", "waiting for a job", "waiting for calls"],
)
def test_ctrl_c_at_the_end_prints_no_noise(ending: str, waits: str, script: MakeScript) -> None:
    one = script(STUBBORN + ending + (AT_EXIT if waits else ""))
    process = one.start(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    # Not before it waits: a Ctrl-C in the very last line of the script ends that.
    lines_to_come = {"working\n", "waiting\n"} if waits else {"working\n"}
    while lines_to_come:
        lines_to_come.discard(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    if waits:
        assert process.stderr.readline() == waits
    assert "closing\n" in iter(process.stdout.readline, "")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert "KeyboardInterrupt" in said or waits
    assert "atexit" not in said
    assert not waits or said == ""
    assert one.leftovers() == []


@pytest.mark.promise
def test_after_a_fork_a_scheduler_of_the_parent_is_an_error(
    scheduler: ProcessScheduler, tmp_path: Path
) -> None:
    assert gridengine.map(abs, [-1], scheduler=scheduler) == [1]
    pid = os.fork()
    if pid == 0:
        try:
            for act in (
                lambda: gridengine.map(abs, [-1], scheduler=scheduler),
                Job(target=abs, args=(1,), scheduler=scheduler).start,
            ):
                try:
                    act()
                except ConfigurationError as error:
                    note(tmp_path / "said", error.message)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert ["forked" in said for said in lines(tmp_path / "said")] == [True, True]
    assert gridengine.map(abs, [-2], scheduler=scheduler) == [2]


@pytest.mark.promise
def test_a_fork_may_use_a_scheduler_of_its_own(script: MakeScript) -> None:
    one = script(
        """
        import os
        with gridengine.ProcessScheduler(1) as scheduler:
            assert gridengine.map(abs, [-1], scheduler=scheduler) == [1]
            pid = os.fork()
            if pid == 0:
                with gridengine.ProcessScheduler(1) as own:
                    print(gridengine.map(abs, [-2], scheduler=own), flush=True)
                os._exit(0)
            print(os.waitpid(pid, 0)[1], gridengine.map(abs, [-3], scheduler=scheduler))
        """
    )
    run = one.run()
    assert run.stdout == "[2]\n0 [3]\n", run.stderr
    assert one.leftovers() == []


# ------------------------------------------------------------------ the machine's set-up


class Elsewhere(Scheduler):
    """Has workers that reach this machine over the network, and starts none."""

    local = False

    def __init__(self) -> None:
        super().__init__(max_workers=1)

    def launcher(self, run: LaunchContext) -> Launcher:
        raise NotImplementedError


@pytest.mark.promise
def test_without_a_home_the_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.raises(ConfigurationError, match="home") as caught, Elsewhere() as scheduler:
        dispatcher_of(scheduler)
    assert "GRIDENGINE_RUN_DIRECTORY" in str(caught.value)


@pytest.mark.promise
def test_without_a_home_local_processes_work(
    script: MakeScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME", raising=False)
    one = script("print(gridengine.map(abs, [-1], scheduler=gridengine.ProcessScheduler(1)))")
    assert one.run().stdout == "[1]\n"


# ------------------------------------------------------------------ the clock


@pytest.mark.promise
def test_a_clock_that_jumps_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = time.time, iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: real() + (-1) ** next(calls) * 86_400 * 365)
    with JobDispatcher(lambda: ProcessScheduler(2), timeout=30.0) as dispatcher:
        dispatcher.dispatch([Job(target=abs, args=(-number,)) for number in range(20)])
        assert dispatcher.join(120) == list(range(20))
        assert 0 <= (dispatcher.elapsed_time or -1) < 3600
    with pytest.raises(TimeoutError), ProcessScheduler(1) as scheduler:
        gridengine.map(time.sleep, [600], scheduler=scheduler, timeout=0.5)
