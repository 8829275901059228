"""A stand-alone dispatcher that is killed and started again, with clients that stay."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import gridengine
from tests.support.standalone import Standalone
from tests.support.waiting import wait_until


class Killed:
    """A dispatcher that can be killed, and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.now = Standalone(folder)

    def kill(self) -> None:
        self.now.kill()

    def start(self) -> None:
        self.now = Standalone(self._folder)


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Killed]:
    killed = Killed(tmp_path)
    yield killed
    killed.now.end()


@pytest.fixture
def client(killed: Killed) -> Iterator[gridengine.Client]:
    with gridengine.Client(killed.now.path) as client:
        yield client


def test_a_map_under_way_has_each_result_once(
    killed: Killed, client: gridengine.Client, tmp_path: Path
) -> None:
    done: list[list[int]] = []

    def call(number: int) -> int:
        _when_there(tmp_path / f"part {number // 500}")  # else it might end before the last kill
        time.sleep(0.002)
        return number

    def work() -> None:
        done.append(client.map(call, range(2000)))

    thread = threading.Thread(target=work)
    thread.start()
    for part in range(3):
        before = client.status().done
        (tmp_path / f"part {part}").touch()
        wait_until(lambda: client.status().done > before + 20)  # noqa: B023
        killed.kill()
        killed.start()
    (tmp_path / "part 3").touch()
    thread.join(120)
    assert done == [list(range(2000))]


def _when_there(path: Path) -> int:
    while not path.exists():
        time.sleep(0.01)
    return 1


def test_a_call_goes_on_from_the_state_that_it_has_saved_before(
    killed: Killed, client: gridengine.Client, tmp_path: Path
) -> None:
    def count() -> list[int]:
        attempts: list[int] = gridengine.saved() or []
        gridengine.save([*attempts, len(attempts)])
        return attempts if attempts else [_when_there(tmp_path / "never")]

    with gridengine.Executor(scheduler=client) as executor:
        future = executor.submit(count)
        journal = killed.now.folder / "journal.sqlite"
        wait_until(lambda: _rows(journal, "states") == 1)
        killed.kill()
        killed.start()
        assert future.result(60) == [0]
        wait_until(lambda: _rows(journal, "states") == 0)


def _rows(journal: Path, table: str) -> int:
    with contextlib.closing(sqlite3.connect(journal)) as file:
        [(count,)] = file.execute(f"SELECT count(*) FROM {table}")
    return int(count)


def logged(path: Path, number: int) -> int:
    """Note a call in a file, and return its argument."""
    with open(path, "ab", buffering=0) as file:
        file.write(b"%d\n" % number)
    return number


def test_jobs_of_a_job_dispatcher_end_once(
    killed: Killed, client: gridengine.Client, tmp_path: Path
) -> None:
    calls, go = tmp_path / "calls", tmp_path / "go"

    def work(number: int) -> int:
        return _after(go, logged(calls, number))

    jobs = [gridengine.Job(target=work, args=(number,), retries=3) for number in range(20)]
    with gridengine.JobDispatcher(client) as dispatcher:
        dispatcher.dispatch(jobs)
        assert client.flush(120)
        wait_until(lambda: _logged(calls))
        killed.kill()
        killed.start()
        go.touch()
        dispatcher.join()
        assert [job.result() for job in jobs] == list(range(20))


def _after(path: Path, number: int) -> int:
    _when_there(path)
    return number


def _logged(calls: Path) -> list[int]:
    return [int(one) for one in calls.read_text().split()] if calls.exists() else []
