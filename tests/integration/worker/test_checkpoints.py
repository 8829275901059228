"""Calls that outlive their worker, on this machine's workers and on workers over TCP."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import gridengine
from tests.support.tcp_scheduler import TcpScheduler
from tests.support.waiting import wait_until

KINDS = pytest.mark.parametrize(
    "kind", [gridengine.ProcessScheduler, TcpScheduler], ids=["local", "tcp"]
)


def counts(folder: Path, until: int, notice: float = 1.0) -> list[tuple[int, int]]:
    """Count, and save after each step; return where each attempt began, and in which process. The
    last one counts only while the file `go` is there.
    """
    done, attempts = gridengine.saved() or (0, [])
    attempts.append((done, os.getpid()))
    Path(folder, f"began {len(attempts)}").touch()
    while done < until or not Path(folder, "go").exists():
        done += 1
        gridengine.save((done, attempts))
        Path(folder, f"saved {len(attempts)}").touch()
        if gridengine.checkpoint(notice):
            raise gridengine.Interrupted
        time.sleep(0.01)
    return attempts


class Counter:
    """An object by submitit's convention, which knows nothing of this package."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        self.attempts: list[tuple[int, int]] = []

    def __call__(self, until: int) -> list[tuple[int, int]]:
        self.attempts.append((self.count, os.getpid()))
        Path(self.folder, f"began {len(self.attempts)}").touch()
        while self.count < until or not Path(self.folder, "go").exists():
            self.count += 1
            Path(self.folder, f"saved {len(self.attempts)}").touch()
            time.sleep(0.01)
        return self.attempts

    def checkpoint(self, until: int) -> Any:
        return functools.partial(self, until)


@pytest.fixture(params=["function", "object"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    one = Counter(tmp_path) if request.param == "object" else functools.partial(counts, tmp_path)
    return one


def wait_for(folder: Path, name: str) -> None:
    wait_until(Path(folder, name).exists, 60)


def check(attempts: list[tuple[int, int]], count: int = 2) -> None:
    """Each attempt began where the one before had saved, in another process."""
    began = [start for start, _ in attempts]
    assert len(attempts) == count
    assert began == sorted(set(began))
    assert began[0] == 0
    assert len({pid for _, pid in attempts}) == count


def end_worker(number: int = signal.SIGTERM) -> None:
    """Send the newest worker a signal; an earlier one may still be leaving."""
    living = [one for one in psutil.Process().children() if one.status() != psutil.STATUS_ZOMBIE]
    here = [one for one in living if "gridengine.worker" in one.cmdline()]
    max(here, key=psutil.Process.create_time).send_signal(number)


@contextlib.contextmanager
def executor_on(scheduler: Any, folder: Path, **options: Any) -> Iterator[gridengine.Executor]:
    """An executor whose calls end when the test has failed."""
    with gridengine.Executor(scheduler=scheduler, **options) as executor:
        try:
            yield executor
        finally:
            Path(folder, "go").touch()


@pytest.mark.promise
def test_a_call_goes_on_elsewhere_when_a_signal_ends_its_worker(job: Any, tmp_path: Path) -> None:
    with executor_on(TcpScheduler(1), tmp_path) as executor:
        future = executor.submit(job, 5)
        for attempt in (1, 2):
            wait_for(tmp_path, f"saved {attempt}")
            end_worker()
            wait_for(tmp_path, f"began {attempt + 1}")
        Path(tmp_path, "go").touch()
        check(future.result(60), 3)


@KINDS
def test_a_large_state_arrives_whole(kind: Any, tmp_path: Path) -> None:
    scheduler = kind(1)
    scheduler.walltime = 6.0
    with executor_on(scheduler, tmp_path) as executor:
        assert executor.submit(fills, tmp_path).result(60) == 3 * 5_000_000


def fills(folder: Path) -> int:
    """Save a large array, which the next attempt changes."""
    state = gridengine.saved()
    if state is None:
        gridengine.save(pickle.PickleBuffer(bytearray(5_000_000)))
    else:
        data = memoryview(state)
        data[:] = b"\x03" * len(data)
        return sum(data)
    while not gridengine.checkpoint(1.0):
        time.sleep(0.01)
    raise gridengine.Interrupted
