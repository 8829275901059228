"""Clients that are killed, or leave: their calls of runs with a name go on, and the next script
that has the run takes what has come of them.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gridengine
from gridengine.settings.values import settings
from tests.support.standalone import Standalone
from tests.support.waiting import wait_until

SCRIPT = """
import sys, time
from pathlib import Path
import gridengine

folder = Path(sys.argv[2])

def work(number):
    with open(folder / "calls", "ab", buffering=0) as file:
        file.write(b"%d\\n" % number)
    while number >= 4 and not (folder / "go").exists():
        time.sleep(0.01)
    if number == 3:
        raise ValueError("three")
    return number * 10

def run(client):
    {run}

if __name__ == "__main__":
    client = gridengine.Client(sys.argv[1])
    run(client)
"""
MAP = (
    'print(client.map(work, range(8), name="sweep", chunksize=1, reraise=False, retries=0), '
    "flush=True)"
)
SINGLE = """executor = gridengine.Executor(scheduler=client, name="sweep", retries=0)
    futures = [executor.submit(work, n) for n in range(8)]
    if len(sys.argv) > 3:
        client.disconnect(detach=True)
    else:
        print([one.exception() or one.result() for one in futures], flush=True)"""


class Scripts:
    """A script that uses a dispatcher, and may be run again."""

    def __init__(self, standalone: Standalone, folder: Path) -> None:
        self.standalone = standalone
        self.folder = folder
        self.script = folder / "script.py"

    def write(self, run: str) -> None:
        self.script.write_text(SCRIPT.replace("{run}", run))

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, self.script, self.standalone.path, self.folder, *words],
            env={**os.environ, "GRIDENGINE_RUN_DIRECTORY": str(self.folder / "runs")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def calls(self) -> list[int]:
        path = self.folder / "calls"
        return sorted(map(int, path.read_text().split())) if path.exists() else []

    def rows(self, table: str) -> int:
        with sqlite3.connect(self.standalone.folder / "journal.sqlite") as file:
            found: int = file.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        return found

    def kill(self, process: subprocess.Popen[str]) -> None:
        """Kill the script while calls of its run are at work, others have ended."""
        wait_until(lambda: max(self.calls(), default=0) >= 4)
        wait_until(lambda: self.in_file("SELECT ifnull(sum(stop - first), 0) FROM handed") >= 8)
        wait_until(lambda: self.in_file("SELECT ifnull(sum(stop - start), 0) FROM results") >= 4)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def in_file(self, query: str) -> int:
        """Return what the file of the run says."""
        with sqlite3.connect(self.folder / "runs" / "named" / "sweep.sqlite") as file:
            [[found]] = file.execute(query)
        return int(found)


@pytest.fixture
def scripts(standalone: Standalone, tmp_path: Path) -> Scripts:
    return Scripts(standalone, tmp_path)


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    made = Standalone(tmp_path, max_workers=8, GRIDENGINE_CLIENT_GRACE="1")
    yield made
    made.end()


GIVEN = "[0, 10, 20, ValueError('three'), 40, 50, 60, 70]\n"


@pytest.mark.parametrize("run", [MAP, SINGLE], ids=["map", "executor"])
def test_a_script_that_was_killed_goes_on_with_the_calls_of_its_run(
    scripts: Scripts, run: str
) -> None:
    scripts.write(run)
    scripts.kill(scripts.start())
    again = scripts.start()
    (scripts.folder / "go").touch()
    said, errors = again.communicate(timeout=120)
    assert said == GIVEN, errors
    # What had failed was tried again; all others were made once, those that ran then too.
    assert scripts.calls() == sorted([*range(8), 3])


def test_after_a_flush_the_calls_of_a_run_are_made_once_though_its_script_is_killed(
    scripts: Scripts,
) -> None:
    leaves = "import os; assert client.flush(120); os.kill(os.getpid(), 9)"
    scripts.write(SINGLE.replace("client.disconnect(detach=True)", leaves))
    killed = scripts.start("killed")
    assert killed.wait(timeout=120) == -signal.SIGKILL
    assert scripts.in_file("SELECT ifnull(sum(stop - first), 0) FROM handed") == 8
    again = scripts.start()
    (scripts.folder / "go").touch()
    said, errors = again.communicate(timeout=120)
    assert said == GIVEN, errors
    assert scripts.calls() == sorted([*range(8), 3])


GRAPH = """def mend(number):
        with open(folder / "calls", "ab", buffering=0) as file:
            file.write(b"%d\\n" % number)
        if not (folder / "repaired").exists():
            raise ValueError("broken")
        while not (folder / "go").exists():
            time.sleep(0.01)
        return number * 10

    executor = gridengine.Executor(scheduler=client, name="sweep", retries=0)
    [future] = executor.submit_graph({"a": (mend, 7)}, ["a"])
    print(future.exception() or future.result(), flush=True)"""


def test_a_call_of_a_graph_that_is_made_again_goes_on_without_its_script(scripts: Scripts) -> None:
    scripts.write(GRAPH)
    assert scripts.start().communicate(timeout=120)[0] == "broken\n"
    (scripts.folder / "repaired").touch()
    killed = scripts.start()
    wait_until(lambda: scripts.calls() == [7, 7])
    wait_until(lambda: scripts.in_file("SELECT count(*) FROM handed") > 0)
    killed.kill()
    killed.wait()
    again = scripts.start()
    (scripts.folder / "go").touch()
    said, errors = again.communicate(timeout=120)
    assert said == "70\n", errors
    assert scripts.calls() == [7, 7]


LOOK = """with client:
        run = client.run_named("sweep")
        print(run.done, run.left, [one.name for one in client.runs()], flush=True)
        if not run.left:
            print(run.results())"""


def test_what_a_client_leaves_is_there_for_the_next(scripts: Scripts) -> None:
    scripts.write(SINGLE)
    left = scripts.start("detach")
    _, errors = left.communicate(timeout=120)
    assert left.returncode == 0, errors
    scripts.write(LOOK)

    def look() -> list[str]:
        return scripts.start().communicate(timeout=120)[0].splitlines()

    wait_until(lambda: look() == ["3 4 ['sweep']"])
    (scripts.folder / "go").touch()
    wait_until(lambda: look() == ["7 0 ['sweep']", GIVEN.strip()])
    assert scripts.calls() == list(range(8))
    wait_until(lambda: scripts.rows("absent") == scripts.rows("outcomes") == 0)


def test_what_a_client_leaves_is_there_though_it_is_killed_right_after(scripts: Scripts) -> None:
    killed = "client.disconnect(detach=True)\n        os.kill(os.getpid(), 9)"
    scripts.write("import os\n    " + SINGLE.replace("client.disconnect(detach=True)", killed))
    assert scripts.start("detach").wait(120) == -signal.SIGKILL
    assert scripts.in_file("SELECT count(DISTINCT task) FROM handed") > 0
    assert scripts.in_file("SELECT sum(calls) FROM blocks") == 8
    (scripts.folder / "go").touch()
    again = scripts.start()
    assert again.communicate(timeout=120)[0] == GIVEN
    assert scripts.calls() == sorted([*range(8), 3])


@pytest.fixture
def runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Has this process, whose settings were read before, look for runs where the scripts do."""
    monkeypatch.setenv("GRIDENGINE_RUN_DIRECTORY", str(tmp_path / "runs"))
    settings.cache_clear()
    yield
    monkeypatch.undo()
    settings.cache_clear()


@pytest.mark.usefixtures("runs_here")
def test_a_process_sees_what_is_left_again_and_again(scripts: Scripts) -> None:
    scripts.write(SINGLE)
    scripts.start("detach").communicate(timeout=120)
    with gridengine.Client(scripts.standalone.path) as client:

        def seen() -> tuple[int, int, int]:
            run = client.run_named("sweep")
            return run.done, run.failed, run.left

        wait_until(lambda: seen() == (3, 1, 4))
        wait_until(lambda: [one["run"] for one in client.describe()["left_runs"]] == ["sweep"])
        (scripts.folder / "go").touch()
        wait_until(lambda: seen() == (7, 1, 0))
        assert str(client.run_named("sweep").results()) == GIVEN.strip()
        assert [run.name for run in client.runs()] == ["sweep"]
    wait_until(lambda: scripts.rows("absent") == scripts.rows("outcomes") == 0)


def test_calls_without_a_name_end_with_their_client(scripts: Scripts) -> None:
    scripts.write("client.submit(work, 5); client.disconnect(detach=True)")
    _, errors = scripts.start().communicate(timeout=120)
    assert not errors
    wait_until(lambda: scripts.rows("clients") == 0)


def test_beginning_anew_ends_what_was_left(scripts: Scripts) -> None:
    scripts.write(MAP)
    scripts.kill(scripts.start())
    scripts.write(MAP.replace("name=", "resume=False, name="))
    again = scripts.start()
    wait_until(lambda: scripts.calls().count(2) == 2)
    (scripts.folder / "go").touch()
    assert again.communicate(timeout=120)[0] == GIVEN
    wait_until(lambda: scripts.rows("clients") == 0)


def test_the_calls_of_a_killed_client_outlive_their_dispatcher(tmp_path: Path) -> None:
    first = Standalone(tmp_path, max_workers=8, GRIDENGINE_CLIENT_GRACE="1")
    scripts = Scripts(first, tmp_path)
    scripts.write(MAP)
    scripts.kill(scripts.start())
    first.process.kill()
    first.process.wait()
    (tmp_path / "go").touch()
    second = Standalone(tmp_path, max_workers=8, GRIDENGINE_CLIENT_GRACE="1")
    try:
        said, errors = scripts.start().communicate(timeout=120)
        assert said == GIVEN, errors
        wait_until(lambda: scripts.rows("clients") == 0)
    finally:
        second.end()


def test_what_nobody_takes_goes_when_the_time_is_over(tmp_path: Path) -> None:
    made = Standalone(tmp_path, max_workers=8, GRIDENGINE_RETENTION="0.00001")
    try:
        scripts = Scripts(made, tmp_path)
        scripts.write(SINGLE)
        scripts.start("detach").communicate(timeout=120)
        wait_until(lambda: scripts.rows("clients") == scripts.rows("requests") == 0)
        assert scripts.rows("absent") == 0
    finally:
        made.end()
