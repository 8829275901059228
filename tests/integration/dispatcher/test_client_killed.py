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
    said, errors = again.communicate()
    assert said == GIVEN, errors
    # What had failed was tried again; all others were made once, those that ran then too.
    assert scripts.calls() == sorted([*range(8), 3])


def test_the_calls_of_a_killed_client_outlive_their_dispatcher(tmp_path: Path) -> None:
    first = Standalone(tmp_path, max_workers=8, GRIDENGINE_CLIENT_GRACE="1")
    scripts = Scripts(first, tmp_path)
    scripts.write(MAP)
    scripts.kill(scripts.start())
    first.kill()
    (tmp_path / "go").touch()
    second = Standalone(tmp_path, max_workers=8, GRIDENGINE_CLIENT_GRACE="1")
    try:
        said, errors = scripts.start().communicate()
        assert said == GIVEN, errors
        wait_until(lambda: scripts.rows("clients") == 0)
    finally:
        second.end()
