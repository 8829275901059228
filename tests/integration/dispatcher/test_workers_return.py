"""Workers elsewhere, and their calls, when their dispatcher is killed and started again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import gridengine
from gridengine.schedulers.worker_command import worker_command
from tests.support.standalone import Standalone
from tests.support.waiting import wait_until

PATIENCE = 120


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
