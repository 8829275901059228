"""Workers elsewhere, and their calls, when their dispatcher is killed and started again."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import gridengine
from gridengine.schedulers.worker_command import worker_command
from tests.support.standalone import Standalone
from tests.support.waiting import wait_until

PATIENCE = 120
TCP = "tests.support.tcp_dispatcher"


class Restarts:
    """A dispatcher whose workers outlive it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        self.calls.touch()
        self.now = Standalone(folder, module=TCP)
        self.client = gridengine.Client(self.now.path)

    def kill(self) -> None:
        self.now.kill()

    def start(self) -> None:
        self.now = Standalone(self.folder, module=TCP)

    def begun(self) -> Counter[int]:
        """How often each call has begun."""
        return Counter(int(line.split()[0]) for line in self.calls.read_text().splitlines())

    def processes(self) -> set[int]:
        return {int(line.split()[1]) for line in self.calls.read_text().splitlines()}


@pytest.fixture
def restarts(tmp_path: Path) -> Iterator[Restarts]:
    found = Restarts(tmp_path)
    yield found
    found.client.disconnect()
    found.now.end()


def noted(calls: Path, number: int, until: Path) -> int:
    """Note that a call begins, and by which process; wait until this file is there, and note that
    beside it.
    """
    with open(calls, "ab", buffering=0) as file:
        file.write(b"%d %d\n" % (number, os.getpid()))
    while not until.exists():
        time.sleep(0.02)
    until.with_suffix(".seen").touch()
    return number * number


@pytest.mark.parametrize("retries", [0, 2])
@pytest.mark.parametrize("ends_meanwhile", [False, True])
def test_a_call_that_runs_goes_on_and_gives_its_result_though_it_ends_without_a_dispatcher(
    restarts: Restarts, retries: int, ends_meanwhile: bool
) -> None:
    go = restarts.folder / "go"
    with gridengine.Executor(scheduler=restarts.client, retries=retries) as executor:
        future = executor.submit(noted, restarts.calls, 7, go)
        wait_until(lambda: restarts.begun()[7] == 1, PATIENCE)
        restarts.kill()
        if ends_meanwhile:
            go.touch()
            wait_until(go.with_suffix(".seen").exists, PATIENCE)
        restarts.start()
        if not ends_meanwhile:
            wait_until(lambda: restarts.client.status().running == 1, PATIENCE)
            go.touch()
        assert future.result(PATIENCE) == 49
    assert restarts.begun() == {7: 1}


def test_a_call_of_the_dispatchers_own_worker_ends_with_it_and_begins_once(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    first = Standalone(tmp_path)
    client = gridengine.Client(first.path)
    with gridengine.Executor(scheduler=client, retries=0) as executor:
        future = executor.submit(noted, calls, 7, tmp_path / "go")
        wait_until(calls.exists, PATIENCE)
        first.kill()
        again = Standalone(tmp_path)
        with pytest.raises(gridengine.errors.WorkerLost, match="ended with its dispatcher"):
            future.result(PATIENCE)
        assert executor.submit(abs, -1).result(PATIENCE) == 1
    client.disconnect()
    again.end()
    assert len(calls.read_text().splitlines()) == 1


def outer(calls: Path, until: Path) -> list[int]:
    """Make calls, of which one waits."""
    return gridengine.map(functools.partial(noted, calls, until=until), range(2))


def test_a_call_that_has_made_calls_runs_again(restarts: Restarts) -> None:
    go = restarts.folder / "go"
    future = restarts.client.submit(outer, restarts.calls, go)
    wait_until(lambda: len(restarts.begun()) == 2, PATIENCE)
    restarts.kill()
    restarts.start()
    go.touch()
    assert future.result(PATIENCE) == [0, 1]


def test_a_worker_that_was_started_by_hand_returns_too(tmp_path: Path) -> None:
    calls, go = tmp_path / "calls", tmp_path / "go"
    first = Standalone(tmp_path, max_workers=1)
    client = gridengine.Client(first.path)
    worker = subprocess.Popen(worker_command(sys.executable, first.folder / "worker.json"))
    wait_until(lambda: client.describe()["workers"] >= 1, PATIENCE)
    futures = [client.submit(noted, calls, number, go) for number in range(2)]
    wait_until(lambda: calls.exists() and len(calls.read_text().splitlines()) == 2, PATIENCE)
    first.kill()
    again = Standalone(tmp_path, max_workers=1)
    go.touch()
    assert [one.result(PATIENCE) for one in futures] == [0, 1]
    assert worker.poll() is None
    client.disconnect()
    again.end()
    worker.wait(PATIENCE)
    begun = Counter(line.split()[0] for line in calls.read_text().splitlines())
    assert 1 in begun.values()  # that of the worker by hand
