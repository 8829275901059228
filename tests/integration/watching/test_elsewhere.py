"""Dispatchers that stand on their own are watched as from another machine: where their sockets are
not, by the watcher's key in their folder alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import gridengine as gridengine_package
from gridengine.calls.remote import RemoteDispatcher
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder
from gridengine.watching.remote_connections import RemoteWatched
from tests.integration.watching.test_commands import gridengine, told_at_last
from tests.support.dispatchers import Shell
from tests.support.waiting import stop_process, wait_until

SCRIPT = """
import gridengine, time
from pathlib import Path

def slow(number, folder):
    Path(folder, f"begun-{number}").touch()
    while not Path(folder, "over").exists():
        time.sleep(0.01)
    return number

if __name__ == "__main__":
    folder = str(Path(__file__).parent)
    with gridengine.Client("night") as client:
        gridengine.starmap(slow, [(n, folder) for n in range(3)], scheduler=client, chunksize=1)
"""


@pytest.fixture
def night(tmp_path: Path) -> Iterator[DispatcherFolder]:
    """A dispatcher whose socket is in a folder in which nobody looks here."""
    hidden = tmp_path / "its own"
    hidden.mkdir(mode=0o700)
    shell = Shell(tmp_path)
    shell.environment = {**shell.environment, "GRIDENGINE_WATCH_DIRECTORY": str(hidden)}
    shell.done("dispatcher", "start", "night", "--scheduler", "processes", "--max-workers", "2")
    yield DispatcherFolder.of("night")
    shell.done("dispatcher", "stop", "night", "--now")


@pytest.fixture
def script(night: DispatcherFolder, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    process = subprocess.Popen([sys.executable, str(path)])
    wait_until(lambda: (tmp_path / "begun-0").exists() and (tmp_path / "begun-1").exists())
    yield process
    (tmp_path / "over").touch()
    process.wait(60)


def test_a_dispatcher_elsewhere_is_listed_shown_explained_and_its_calls_ended(
    script: subprocess.Popen[bytes],
) -> None:
    [found] = json.loads(gridengine("ls", "--json"))["dispatchers"]
    assert found["identity"]["script"] == "gridengine dispatcher start night"
    told = json.loads(gridengine("top", "night", "--once", "--json"))
    assert told["status"]["running"] == 2
    told_at_last("1 call waits for a free slot", "explain", "night")
    assert len(json.loads(gridengine("calls", "--running", "--json"))) == 2
    assert "1 call ended" in gridengine("cancel", "night", "2")


STUCK = """
import sys, time
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder
from gridengine.errors import ClusterError
from gridengine.watching.remote_connections import RemoteWatched

one = RemoteWatched(DispatcherFolder.of("night"))
if sys.argv[1] == "follow":
    one.follow(interval=0.1)
    for _ in range(3):
        one.next_answer()
one.ask()
print("here", flush=True)
words = ""
while "given up" not in words:  # a question that it is stopped in is not answered in time
    try:
        one.ask()
        time.sleep(0.1)
    except ClusterError as error:
        words = error.message
        print(words, flush=True)
"""


def watchers(remote: RemoteDispatcher) -> int:
    """Return how many may only look and are there, with who asks."""
    return sum(one["number"] == 0 for one in remote.control("describe")["clients"])


@pytest.mark.parametrize("does", ["ask", "follow"])
def test_a_watcher_that_is_stopped_is_dropped_and_meanwhile_no_burden(
    night: DispatcherFolder, does: str
) -> None:
    words = [sys.executable, "-c", STUCK, does]
    stuck = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert stuck.stdout is not None
    assert stuck.stdout.readline() == "here\n"
    with closing(RemoteDispatcher(night.path / "client.json")) as remote:
        assert watchers(remote) == 1
        stop_process(stuck.pid)
        with RemoteWatched(night) as watched:
            for _ in range(20):
                assert watched.ask().identity.name == "night"
            wait_until(lambda: watched.ask() and watchers(remote) == 1)
        wait_until(lambda: watchers(remote) == 0)
    os.kill(stuck.pid, signal.SIGCONT)
    told, _ = stuck.communicate(timeout=60)
    assert "cannot be watched: it does not answer" in told
    assert "has given up this client" in told


def test_a_follower_goes_on_with_a_restarted_dispatcher(
    night: DispatcherFolder, tmp_path: Path
) -> None:
    seen: list[Any] = []
    with (
        gridengine_package.Client("night") as client,
        gridengine_package.watch(seen.append, client, interval=0.1),
    ):
        pid = client.describe()["pid"]
        Shell(tmp_path).done("dispatcher", "restart", "night", "--now")
        assert client.describe()["pid"] != pid
        del seen[:]
        assert client.submit(abs, -1).result() == 1
        wait_until(lambda: seen and seen[-1].done == 1)
