"""What becomes of calls inside calls when one of them fails, is ended or is lost."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import gridengine
from tests.support.agent_driver import alive
from tests.support.waiting import wait_until


def fail(name: str) -> None:
    raise OSError(f"no {name}")


def maps(f: Any, value: Any) -> Any:
    return gridengine.map(f, [value])[0]


def sleeps(path: Path) -> None:
    """Write down this process's id, and sleep until it is ended."""
    new = path.with_suffix(".new")
    new.write_text(str(os.getpid()))
    new.rename(path)
    while True:
        time.sleep(60)


def pid_in(path: Path) -> int:
    wait_until(path.exists)
    return int(path.read_text())


def is_gone(path: Path) -> None:
    """Wait until the process of a call that sleeps has ended."""
    pid = pid_in(path)
    wait_until(lambda: not alive(pid))


def test_an_exception_of_a_child_comes_out_of_the_call_that_made_it(
    one: gridengine.ProcessScheduler,
) -> None:
    with pytest.raises(OSError, match="no x") as caught:
        gridengine.starmap(maps, [(lambda name: maps(fail, name), "x")], scheduler=one)
    notes = "\n".join(caught.value.__notes__)
    assert "call 0 of fail, argument 'x'" in notes
    assert "call 0 of maps" in notes


def dies_once(folder: Path) -> str:
    """Wait for a child; the first time the child kills this very process."""
    with gridengine.Executor() as executor:
        if (folder / "child").exists():
            return executor.submit(str, "again").result()
        executor.submit(kills, os.getpid(), folder).result()
    return "never"


def kills(pid: int, folder: Path) -> None:
    (folder / "pid").write_text(str(os.getpid()))
    (folder / "pid").rename(folder / "child")
    os.kill(pid, signal.SIGKILL)
    time.sleep(1000)


def test_a_call_whose_process_dies_is_made_again_and_the_children_of_the_first_time_end(
    one: gridengine.ProcessScheduler, tmp_path: Path
) -> None:
    assert gridengine.map(dies_once, [tmp_path], scheduler=one) == ["again"]
    is_gone(tmp_path / "child")


def gives_up(path: Path) -> str:
    with gridengine.Executor() as executor:
        future = executor.submit(sleeps, path)
        try:
            future.result(timeout=0.5)
        except concurrent.futures.TimeoutError:
            executor.kill(future)
        return type(future.exception()).__name__


def test_a_call_that_waits_no_longer_goes_on_and_may_end_its_child(
    one: gridengine.ProcessScheduler, tmp_path: Path
) -> None:
    assert gridengine.map(gives_up, [tmp_path / "child"], scheduler=one) == ["Cancelled"]


def prepared() -> None:
    assert gridengine.map(abs, [-1, -2]) == [1, 2]


def test_an_initializer_may_make_calls(one: gridengine.ProcessScheduler) -> None:
    with gridengine.Executor(scheduler=one, initializer=prepared) as executor:
        assert executor.submit(abs, -3).result() == 3
