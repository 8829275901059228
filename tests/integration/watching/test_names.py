"""What commands print, handed to others: of a script with two dispatchers, one of which has a run
with a name, and of a stand-alone dispatcher that has another of a client's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import gridengine
from gridengine.cli.main import main
from gridengine.errors import Cancelled
from tests.support.dispatchers import Shell
from tests.support.waiting import wait_until

CALL = """
import gridengine, threading, time
from pathlib import Path

def call(number, name, folder=str(Path(__file__).parent)):
    Path(folder, f"begun-{name}-{number}").touch()
    while not Path(folder, "over").exists():
        time.sleep(0.01)
    return number
"""
CLIENT = f"""{CALL}
if __name__ == "__main__":
    with gridengine.Client("main") as client:
        plain = client.submit(call, 1, "plain")
        results = client.starmap(call, [(1, "far")], name="far", reraise=False)
        print(type(results[0]).__name__, plain.result())
"""


def command(*words: str, status: int = 0, typed: str = "") -> str:
    """Run a command in this process; return what it wrote."""
    done = CliRunner().invoke(main, words, input=typed)
    assert done.exit_code == status, (words, done.output, done.exception)
    return done.output


def identities() -> list[dict[str, Any]]:
    """Return who the dispatchers are that run."""
    return [one["identity"] for one in json.loads(command("ls", "--json"))["dispatchers"]]


def status_of(word: str) -> dict[str, Any]:
    """Return what a dispatcher is at."""
    found: dict[str, Any] = json.loads(command("top", word, "--once", "--json"))["status"]
    return found


@pytest.fixture
def client(tmp_path: Path, runtime_folder: Path) -> Iterator[subprocess.Popen[str]]:
    shell = Shell(tmp_path)
    shell.environment = {**shell.environment, "GRIDENGINE_WATCH_DIRECTORY": str(runtime_folder)}
    shell.done("dispatcher", "start", "main", "--scheduler", "processes", "--max-workers", "2")
    (tmp_path / "cl.py").write_text(CLIENT)
    words = [sys.executable, str(tmp_path / "cl.py")]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=shell.environment)
    wait_until(lambda: all((tmp_path / f"begun-{name}-1").exists() for name in ("far", "plain")))
    yield process
    process.kill()
    process.communicate()
    shell.done("dispatcher", "stop", "main", "--now")


def test_a_stand_alone_dispatcher_is_named_by_all_that_is_printed_of_it(
    client: subprocess.Popen[str], tmp_path: Path
) -> None:
    told = json.loads(command("dispatcher", "status", "main", "--json"))
    [who] = identities()
    folder = Path(told["folder"])
    words = ["main", str(told["pid"]), who["run_id"], who["run_id"][-6:], *told["addresses"]]
    words += [str(folder), *map(str, folder.glob("*.json")), str(folder / "journal.sqlite")]
    named = ["far", str(tmp_path / "runs" / "named" / "far.sqlite")]
    named += ["cl.py", str(client.pid)]
    for word in (*words, *named):
        assert "2 calls are running" in command("explain", word), word
        assert '"name": "main"' in command("dispatcher", "status", word, "--json"), word
        dry = command("up", word, "--dry", "--scheduler", "processes")
        assert f"{folder / 'worker.json'}" in dry, word
        with gridengine.Client(word) as other:
            assert other.describe()["pid"] == told["pid"], word
    for word in words:
        assert "runs already" in command("dispatcher", "start", word, status=1), word
    for word in named:
        assert "may have others too" in command("dispatcher", "stop", word, status=1), word
        assert "may have others too" in command("scale", word, "3", status=1), word
    with subprocess.Popen(
        [sys.executable, "-m", "gridengine", "worker", str(folder / "client.json"), "-n", "1"],
        stdout=subprocess.DEVNULL,
    ) as worker:
        wait_until(lambda: status_of("main")["worker_count"] == 2)
        worker.terminate()
    assert "1 call ended" in command("cancel", "far", "--yes")
    wait_until(lambda: status_of("main")["running"] == 1)
    (tmp_path / "over").touch()
    assert client.communicate(timeout=100)[0] == f"{Cancelled.__name__} 1\n"
    for word in named[:2]:
        assert gridengine.run_named(word).name == "far"
    assert "there is: far; " in command("results", "fra", status=1)
