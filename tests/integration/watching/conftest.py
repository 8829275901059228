"""A folder for the sockets of dispatchers in which those of other tests are not found."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from gridengine.settings.values import settings
from tests.support.waiting import wait_until

SCRIPT = """
import gridengine, time
from pathlib import Path

def slow(number):
    print("call", number, "speaks")
    if number == 0:
        while not Path("begun-1").exists():
            time.sleep(0.01)
        raise ValueError("zero is bad")
    Path(f"begun-{number}").touch()
    while not Path("over").exists():
        time.sleep(0.01)
    return number

if __name__ == "__main__":
    with gridengine.ProcessScheduler(2) as scheduler:
        gridengine.map(slow, range(6), scheduler=scheduler, reraise=False)
"""
StartScript: TypeAlias = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("GRIDENGINE_WATCH_DIRECTORY", str(folder))
    monkeypatch.setenv("GRIDENGINE_RUN_DIRECTORY", str(tmp_path / "runs"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    # Those that a run leaves which takes ten seconds, as on a slow machine, nobody expects.
    monkeypatch.setenv("GRIDENGINE_KEEP_REPORTS", "0")
    settings.cache_clear()
    yield folder
    monkeypatch.undo()
    settings.cache_clear()


@pytest.fixture
def start_script(tmp_path: Path) -> Iterator[StartScript]:
    """Start scripts in the test's folder; at the end those that run are killed."""
    started: list[subprocess.Popen[str]] = []

    def start(text: str) -> subprocess.Popen[str]:
        path = tmp_path / "sweep.py"
        path.write_text(text)
        started.append(
            subprocess.Popen(
                [sys.executable, str(path)],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def process(start_script: StartScript, tmp_path: Path) -> subprocess.Popen[str]:
    """A script, one of whose calls has failed, and two run."""
    started = start_script(SCRIPT)
    wait_until((tmp_path / "begun-2").exists)
    wait_until(lambda: list(tmp_path.glob("runtime/*.sock")))
    return started
