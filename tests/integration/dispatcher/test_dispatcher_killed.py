"""A stand-alone dispatcher that is killed and started again, with clients that stay."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
        self.now.process.kill()
        self.now.process.wait()

    def start(self) -> None:
        self.now = Standalone(self._folder)

    def rows(self, table: str) -> int:
        with sqlite3.connect(self.now.folder / "journal.sqlite") as file:
            found: int = file.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        return found


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Killed]:
    killed = Killed(tmp_path)
    yield killed
    killed.now.end()


@pytest.fixture
def client(killed: Killed) -> Iterator[gridengine.Client]:
    with gridengine.Client(killed.now.path) as client:
        yield client


def logged(path: Path, number: int) -> int:
    """Note a call in a file, and return its argument."""
    with open(path, "ab", buffering=0) as file:
        file.write(b"%d\n" % number)
    return number


def test_calls_that_wait_are_made_by_the_next(killed: Killed, client: gridengine.Client) -> None:
    futures = [client.submit(pow, 2, n) for n in range(500)]
    assert client.flush(120)
    assert all(one.acknowledged for one in futures)
    killed.kill()
    killed.start()
    assert [one.result(120) for one in futures] == [2**n for n in range(500)]
    wait_until(lambda: killed.rows("requests") == 1)  # that of the function
    assert not killed.rows("outcomes")


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


def test_large_results_of_a_map_under_way_come_once_however_they_are_grouped_then(
    killed: Killed, client: gridengine.Client
) -> None:
    taken: list[bytes] = []

    def large(number: int) -> bytes:
        time.sleep(0.01)
        return b"%07d" % number * 50_000

    def work() -> None:
        for result in gridengine.imap(large, range(300), scheduler=client):
            taken.append(result[:7])

    thread = threading.Thread(target=work)
    thread.start()
    for several in (5, 100, 200):
        wait_until(lambda: len(taken) > several, 120)  # noqa: B023
        killed.kill()
        killed.start()
    thread.join(120)
    assert taken == [b"%07d" % n for n in range(300)]
    wait_until(lambda: killed.rows("requests") == 1)  # that of the function
    assert not killed.rows("outcomes")


def test_what_was_handed_in_while_it_was_away_is_taken_once(
    killed: Killed, client: gridengine.Client, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    killed.kill()
    futures = [client.submit(logged, calls, n) for n in range(1, 50)]
    killed.start()
    assert [one.result(120) for one in futures] == list(range(1, 50))
    assert sorted(map(int, calls.read_text().split())) == list(range(1, 50))


def test_a_call_that_needs_one_that_has_ended_is_given_its_result(
    killed: Killed, client: gridengine.Client, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    first = client.submit(logged, calls, 7)
    waits = client.submit(_when_there, tmp_path / "go")
    last = client.submit(lambda a, b: a + b, first, waits)
    assert first.result(120) == 7
    assert client.submit(abs, -1).result(120) == 1
    assert client.flush(120)  # what came of the first was written before
    killed.kill()
    killed.start()
    (tmp_path / "go").touch()
    assert last.result(120) == 8
    assert calls.read_text() == "7\n"


def _when_there(path: Path) -> int:
    while not path.exists():
        time.sleep(0.01)
    return 1


def test_questions_are_answered_by_the_next(killed: Killed, client: gridengine.Client) -> None:
    pid = client.describe()["pid"]
    killed.kill()
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(client.describe()["pid"]))
    thread.start()
    killed.start()
    thread.join(120)
    assert answers == [killed.now.process.pid] != [pid]
    assert os.getpid() not in answers


def test_a_graph_under_way_goes_on(
    killed: Killed, client: gridengine.Client, tmp_path: Path
) -> None:
    calls, go = tmp_path / "calls", tmp_path / "go"
    graph: dict[str, Any] = {f"first {n}": (logged, calls, n) for n in range(20)}
    graph |= {f"waits {n}": (_after, go, f"first {n}") for n in range(20)}
    graph["all"] = (sum, [f"waits {n}" for n in range(20)])
    futures = client.submit_graph(graph, ["all", "waits 7"], fuse=False)
    assert client.flush(120)
    wait_until(lambda: len(_logged(calls)) >= 2)
    killed.kill()
    killed.start()
    go.touch()
    assert [one.result(120) for one in futures] == [190, 7]
    assert set(_logged(calls)) == set(range(20))


@pytest.mark.parametrize("face", [gridengine.imap, gridengine.imap_unordered])
def test_results_that_are_taken_one_by_one_come_once(
    killed: Killed, client: gridengine.Client, face: Any
) -> None:
    taken = []
    with face(lambda x: (time.sleep(0.002), x)[1], range(1000), scheduler=client) as results:
        for result in results:
            taken.append(result)
            if result in (100, 600):
                killed.kill()
                killed.start()
    assert (taken if face is gridengine.imap else sorted(taken)) == list(range(1000))


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
