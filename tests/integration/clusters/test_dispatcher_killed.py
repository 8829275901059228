"""A stand-alone dispatcher that is killed while its jobs wait in a cluster, and started again."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.support.clusters import Cluster
from tests.support.waiting import wait_until

CLOSED = """
import json, os, signal, subprocess, sys, threading, time
from pathlib import Path
import gridengine
from gridengine.dispatcher.launcher_thread import LaunchRecord
from gridengine.dispatcher.standalone.serve import serve
from gridengine.settings.values import settings

folder = Path.cwd() / "runs/dispatchers/night"
connection = folder / "client.json"
launches = folder / "launches.json"

if sys.argv[1:]:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    if sys.argv[1] == "killed":
        LaunchRecord.add = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    serve(folder, gridengine.SCHEDULER(max_workers=2, CLOSED), settings(), stopped=stopped)
    sys.exit()

def start(how="serve"):
    "Start the dispatcher, and wait until clients can connect."
    connection.unlink(missing_ok=True)
    process = subprocess.Popen([sys.executable, __file__, how])
    while not connection.exists():
        assert process.poll() is None
        time.sleep(0.05)
    return process

def noted():
    "Return the ids of the jobs' tasks that are on record."
    groups = json.loads(launches.read_text())["groups"] if launches.exists() else []
    return [id for group in groups for id, _ in group["handles"]]

def wait_for_word(count=[0]):
    count[0] += 1
    while not Path(f"word{count[0]}").exists():
        time.sleep(0.05)

def end():
    wait_for_word()
    client.disconnect()
    dispatcher.terminate()
    dispatcher.wait()
"""
UNNOTED = """
dispatcher = start("killed")
client = gridengine.Client(str(connection))
future = client.submit(abs, -1)
dispatcher.wait()
assert not noted()
dispatcher = start()
while not noted():
    time.sleep(0.05)
print(*noted(), flush=True)
end()
"""


def on_closed(cluster: Cluster, script: str) -> subprocess.Popen[str]:
    """Start a script whose jobs wait for ever."""
    closed = CLOSED.replace("SCHEDULER", cluster.scheduler).replace("CLOSED", cluster.closed)
    return cluster.start(closed + script)


def say(process: subprocess.Popen[str], word: int) -> None:
    """Have the script go on."""
    Path(str(process.args[1])).with_name(f"word{word}").touch()  # type: ignore[index]


def line(process: subprocess.Popen[str]) -> str:
    """Return the next line that the script writes."""
    assert process.stdout
    assert process.stderr
    found = process.stdout.readline()
    assert found, process.stderr.read()
    return found.rstrip("\n")


def test_a_job_that_was_submitted_and_not_noted_is_deleted(cluster: Cluster) -> None:
    process = on_closed(cluster, UNNOTED)
    noted = {re.split("[._]", one)[0] for one in line(process).split()}
    wait_until(lambda: cluster.jobs() == noted)
    say(process, 1)
    assert process.wait(100) == 0
    wait_until(lambda: not cluster.jobs())
