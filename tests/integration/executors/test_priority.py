"""Calls of a higher priority begin first."""

from __future__ import annotations

import os
import time
from pathlib import Path

import gridengine
from tests.support.waiting import wait_until


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def note(path: Path, word: str) -> None:
    with path.open("a") as file:
        file.write(word + "\n")


def test_waiting_calls_of_a_higher_priority_begin_first(tmp_path: Path) -> None:
    go, told = tmp_path / "go", tmp_path / "told"
    with (
        gridengine.ProcessScheduler(1) as scheduler,
        gridengine.Executor(scheduler=scheduler) as executor,
    ):
        first = executor.submit(wait_for, go)
        later = [
            executor.with_options(priority=priority).submit(note, told, word)
            for priority, word in ((-1, "low"), (0, "plain"), (2, "high"), (2, "high too"))
        ]
        job = gridengine.Job(target=note, args=(told, "job"), scheduler=scheduler, priority=1)
        job.start()
        executor.submit(os.getpid)
        wait_until(lambda: scheduler.status().waiting == 6)
        go.touch()
        for future in (first, *later):
            future.result()
        job.join()
    assert told.read_text().split("\n")[:-1] == ["high", "high too", "job", "plain", "low"]
