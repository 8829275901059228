"""`Executor` on this machine's processes, used as a user would."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import gridengine
from gridengine.errors import Cancelled
from tests.support.script_driver import MakeScript
from tests.support.waiting import wait_until

SECONDS = 120


def square(x: int) -> int:
    return x * x


def begin_and_wait(begun: str, gate: str) -> str:
    """Tell the test that the call runs, and wait until the test opens the gate."""
    for path, mode in ((begun, os.O_WRONLY), (gate, os.O_RDONLY)):
        os.close(os.open(path, mode))  # opening a FIFO waits for its other side
    return "waited"


WAITING = -1


def negate(x: int, paths: tuple[str, str]) -> int:
    if x == WAITING:
        begin_and_wait(*paths)
    return -x


class Gate:
    """Where calls wait: two FIFOs, whose other sides a test opens."""

    def __init__(self, folder: Path) -> None:
        self.paths = str(folder / "begun"), str(folder / "gate")
        for path in self.paths:
            os.mkfifo(path)
        self._open: list[int] = []

    def await_begin(self) -> None:
        """Wait until a call is at it."""
        os.close(os.open(self.paths[0], os.O_RDONLY))

    def open(self) -> None:
        """Let all calls go on, those to come too."""
        self._open += [os.open(path, os.O_RDWR | os.O_NONBLOCK) for path in self.paths]

    def close(self) -> None:
        """Let go of the FIFOs."""
        for end in self._open:
            os.close(end)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path)
    yield gate
    gate.close()


# ------------------------------------------------------------------ ends


@pytest.mark.promise
def test_after_quick_calls_all_that_has_not_begun_can_be_cancelled(gate: Gate) -> None:
    with gridengine.Executor(scheduler=gridengine.ProcessScheduler, max_workers=1) as executor:
        for future in [executor.submit(negate, index, gate.paths) for index in range(5000)]:
            future.result(SECONDS)  # from here on calls travel together
        futures = [executor.submit(negate, WAITING, gate.paths) for _ in range(200)]
        gate.await_begin()
        cancelled = [future.cancel() for future in futures]
        gate.open()
        assert cancelled == [False] + [True] * 199
        assert futures[0].result(SECONDS) == -WAITING


@pytest.mark.promise
def test_a_call_that_runs_can_be_killed(executor: gridengine.Executor, gate: Gate) -> None:
    future = executor.submit(begin_and_wait, *gate.paths)
    gate.await_begin()
    assert not future.cancel()
    assert executor.kill(future)
    with pytest.raises(Cancelled):
        future.result(SECONDS)
    assert executor.submit(square, 3).result(SECONDS) == 9


# ------------------------------------------------------------------ max_tasks_per_child


def processes(max_workers: int) -> gridengine.ProcessScheduler:
    return gridengine.ProcessScheduler(max_workers)


def test_a_thread_left_by_the_last_call_of_a_process_is_waited_for(tmp_path: Path) -> None:
    def leave(x: int) -> None:
        def write() -> None:
            wait_until((tmp_path / "go").exists)
            (tmp_path / "written").touch()

        threading.Thread(target=write).start()

    with gridengine.Executor(1, max_tasks_per_child=1, scheduler=processes) as executor:
        executor.submit(leave, 1).result(SECONDS)
        (tmp_path / "go").touch()
        assert executor.submit(square, 3).result(SECONDS) == 9
        assert (tmp_path / "written").exists()


# ------------------------------------------------------------------ scripts


@pytest.mark.parametrize("last", ["", "executor.shutdown(wait=False)", "del executor"])
def test_the_interpreter_waits_for_submitted_calls(
    last: str, script: MakeScript, tmp_path: Path
) -> None:
    done = script(
        f"""
        import time

        def touch(path):
            time.sleep(0.05)
            open(path, "w").close()

        executor = gridengine.Executor(max_workers=2)
        for index in range(20):
            executor.submit(touch, f"ran-{{index}}")
        {last}
        """
    ).run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(list(tmp_path.glob("ran-*"))) == 20


@pytest.mark.promise
def test_a_ctrl_c_within_a_with_ends_its_calls(scheduler: gridengine.ProcessScheduler) -> None:
    def never_ends(x: int) -> None:
        signal.pause()

    with pytest.raises(KeyboardInterrupt), gridengine.Executor(scheduler=scheduler) as executor:  # noqa: PT012
        futures = [executor.submit(never_ends, x) for x in range(6)]
        raise KeyboardInterrupt
    assert all(isinstance(future.exception(SECONDS), Cancelled) for future in futures)


@pytest.mark.parametrize("make", [gridengine.Executor, gridengine.Pool])
def test_a_closed_scheduler_leaves_no_descriptor(make: type) -> None:
    def numbers() -> set[str]:
        with make(1) as pool:
            assert list(pool.map(square, [2])) == [4]
        return {one.name for one in Path("/proc/self/fd").iterdir()}

    numbers()
    before, _, after = numbers(), numbers(), numbers()
    assert len(after) <= len(before)


@pytest.mark.promise
def test_a_call_that_a_close_has_ended_is_cancelled_as_the_standard_library_has_it() -> None:
    scheduler = gridengine.ProcessScheduler(1)
    executor = gridengine.Executor(scheduler=scheduler)
    futures = [executor.submit(time.sleep, 600) for _ in range(3)]
    futures.append(executor.submit(str, futures[-1]))
    wait_until(futures[0].running)
    scheduler.close()
    for future in futures:  # those that ran, and those that waited
        with pytest.raises(concurrent.futures.CancelledError):
            future.result(60)
        assert future.cancelled()
        assert isinstance(future.exception(), gridengine.Cancelled)


@pytest.mark.promise
def test_a_call_that_raises_cancelled_itself_is_not_cancelled() -> None:
    def fail() -> None:
        raise gridengine.Cancelled("of the call's own")

    with gridengine.Executor(max_workers=1) as executor:
        future = executor.submit(fail)
        assert isinstance(future.exception(60), gridengine.Cancelled)
        assert not future.cancelled()
