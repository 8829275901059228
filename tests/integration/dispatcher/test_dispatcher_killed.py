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


class Counter:
    def __init__(self) -> None:
        self.value = 0

    def increment(self) -> int:
        self.value += 1
        return self.value

    def after(self, path: Path) -> int:
        return _when_there(path)


def test_an_actor_is_lost_since_what_it_was_told_may_be(
    killed: Killed, client: gridengine.Client, tmp_path: Path
) -> None:
    with client.actor(Counter) as counter:
        assert counter.increment().result() == 1
        running = counter.after(tmp_path / "go")
        killed.kill()
        killed.start()
        for future in (running, counter.increment()):
            with pytest.raises(gridengine.ActorLost, match="the dispatcher was started again"):
                future.result()
    with client.actor(Counter) as counter:
        assert counter.increment().result() == 1
