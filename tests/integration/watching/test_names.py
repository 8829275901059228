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
from tests.integration.watching.conftest import StartScript
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
TWINS = f"""{CALL}
if __name__ == "__main__":
    one, two = gridengine.ProcessScheduler(1), gridengine.ProcessScheduler(1)
    with one, two:
        named = threading.Thread(
            target=gridengine.starmap,
            args=(call, [(1, "seen")]),
            kwargs={{"name": "seen", "scheduler": one, "reraise": False}},
        )
        named.start()
        print(gridengine.starmap(call, [(1, "twin")], scheduler=two))
        named.join()
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
def twins(start_script: StartScript, tmp_path: Path) -> subprocess.Popen[str]:
    started = start_script(TWINS)
    wait_until(lambda: all((tmp_path / f"begun-{name}-1").exists() for name in ("seen", "twin")))
    wait_until(lambda: len(list(tmp_path.glob("runtime/*.sock"))) == 2)
    return started


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


def test_two_dispatchers_of_a_script_are_told_apart_and_named_by_what_is_listed(
    twins: subprocess.Popen[str], tmp_path: Path
) -> None:
    rows = [line.split()[:3] for line in command("ls").splitlines()[1:]]
    assert [(row[0], row[2]) for row in rows] == [("sweep.py", str(twins.pid))] * 2
    ids = [row[1] for row in rows]
    assert len(set(ids)) == 2
    for word in ("sweep", "sweep.py", str(twins.pid)):
        told = command("explain", word, status=1)
        assert all(f"{id} (sweep.py, process" in told for id in ids)
    for id in ids:
        assert "1 call is running" in command("explain", id)
    [seen] = [one["run_id"] for one in identities() if one["runs"]]
    for word in ("seen", str(tmp_path / "runs" / "named" / "seen.sqlite")):
        assert "1 call is running" in command("explain", word)
        assert "call 0 of call" in command("calls", word)
        assert seen in command("report", word, "-o", str(tmp_path / "a.html"))
        assert json.loads(command("top", word, "--once", "--json"))["identity"]["run_id"] == seen
        assert "launched 1 worker" in command("logs", word)
    assert "takes no workers from elsewhere" in command("worker", "seen", status=1)
    assert "has no run with a name" in command("results", *{*ids} - {seen[-6:]}, status=1)
    assert "1 call ended" in command("cancel", "seen", "--yes")
    wait_until(lambda: status_of(seen)["running"] == 0)
    [run] = json.loads(command("runs", "--json"))
    (tmp_path / "over").touch()
    assert twins.communicate(timeout=100)[0] == "[1]\n"
    for word in ("seen", run["path"], run["script"], str(run["pid"])):
        assert "1 of 1 call has no result: 1 left (run the " in command("results", word)
        assert gridengine.run_named(word).path == Path(run["path"])
    told = command("explain", "seen", status=1)
    assert "no dispatcher runs calls of the run 'seen' now" in told


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
