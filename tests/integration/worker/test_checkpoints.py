"""Calls that outlive their worker, on this machine's workers and on workers over TCP."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import gridengine
from gridengine.dispatcher.core.events import DrainHosts
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
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    one = Counter(tmp_path) if request.param == "object" else functools.partial(counts, tmp_path)
    yield one


def wait_for(folder: Path, name: str) -> None:
    wait_until(Path(folder, name).exists, 60)


def check(attempts: list[tuple[int, int]], count: int = 2) -> None:
    """Each attempt began where the one before had saved, in another process."""
    began = [start for start, _ in attempts]
    assert len(attempts) == count
    assert began == sorted(set(began))
    assert began[0] == 0
    assert len({pid for _, pid in attempts}) == count


def worker_of(pid: int) -> int:
    """The process of the worker, which a scheduler has started, of this process."""
    here = [parent.pid for parent in psutil.Process(pid).parents()]
    return here[here.index(os.getpid()) - 1]


def runner_below(pid: int) -> int:
    wait_until(lambda: len(psutil.Process(pid).children(recursive=True)) > 1, 60)
    return psutil.Process(pid).children(recursive=True)[-1].pid


def workers() -> list[int]:
    return [one.pid for one in psutil.Process().children() if "gridengine.worker" in one.cmdline()]


def test_a_call_goes_on_elsewhere_when_a_signal_ends_its_worker(job: Any, tmp_path: Path) -> None:
    with gridengine.Executor(scheduler=TcpScheduler(1)) as executor:
        future = executor.submit(job, 5)
        for attempt in (1, 2):
            wait_for(tmp_path, f"saved {attempt}")
            [worker] = workers()
            os.kill(worker, signal.SIGTERM)
            wait_for(tmp_path, f"began {attempt + 1}")
        Path(tmp_path, "go").touch()
        check(future.result(60), 3)


@KINDS
def test_a_call_on_a_host_that_is_drained_goes_on_elsewhere(
    kind: Any, job: Any, tmp_path: Path
) -> None:
    scheduler = kind(1)
    with gridengine.Executor(scheduler=scheduler) as executor:
        future = executor.submit(job, 5)
        wait_for(tmp_path, "saved 1")
        executor._dispatcher()
        wait_for(tmp_path, "began 2")
        Path(tmp_path, "go").touch()
        check(future.result(60))
    DrainHosts(frozenset())
