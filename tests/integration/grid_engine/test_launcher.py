"""Workers as tasks of a real Grid Engine: started, watched, explained and deleted, whatever happens
to them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.launching import files, run

if TYPE_CHECKING:
    from tests.support.clusters import GridEngine

pytestmark = pytest.mark.grid_engine


def is_known(grid_engine: GridEngine, job: str) -> bool:
    return "job_number" in grid_engine.command("qstat", "-j", job.partition(".")[0])


def test_single_tasks_of_an_array_are_withdrawn_and_the_others_stay(
    grid_engine: GridEngine,
) -> None:
    told = run(
        grid_engine,
        """
import subprocess
launcher = make_launcher(queue="closed.q")
handles = launcher.launch(1000)
launcher.cancel(handles[10:])
left = []
while left != ["1-10:1"]:
    time.sleep(0.2)
    listing = subprocess.run(["qstat"], capture_output=True, text=True).stdout
    rows = [line.split() for line in listing.splitlines()]
    left = [row[-1] for row in rows if row[:1] == [number_of(handles[0])]]
reports = wait_for(launcher, handles[:10], {WorkerStatus.QUEUED})
launcher.close()
tell(job=handles[0].id, waiting=len(reports))
""",
    )
    assert told["waiting"] == 10
    wait_until_unknown(grid_engine, told["job"])


def wait_until_unknown(grid_engine: GridEngine, job: str) -> None:
    """Wait, as long as this test's time limit lets us, until a job has left the queue."""
    while is_known(grid_engine, job):
        subprocess.run(["sleep", "0.2"], check=True)


START_AND_TELL = """
from gridengine.schedulers.grid_engine import drmaa
launcher = make_launcher()
handles = launcher.launch(10)
wait_for(launcher, handles[:1], {WorkerStatus.RUNNING})
child = drmaa.shared_session()._running._process.pid
tell(job=handles[0].id, folder=str(launcher.run.directory), child=child)
"""


def test_a_fork_that_outlives_the_user_s_process_does_not_keep_its_cluster_tasks(
    grid_engine: GridEngine,
) -> None:
    script = f"""
from launching import *
{START_AND_TELL}
if os.fork() == 0:
    os.close(1); os.close(2)
    time.sleep(20)
    os._exit(0)
signal.pause()
"""
    started = grid_engine.start(script, files=files(grid_engine))
    assert started.stdout is not None
    told = json.loads(started.stdout.readline())
    os.kill(started.pid, signal.SIGKILL)
    started.wait(120)
    wait_until_gone(told["child"])
    wait_until_unknown(grid_engine, told["job"])


def wait_until_gone(pid: int) -> None:
    while Path(f"/proc/{pid}/exe").exists():
        subprocess.run(["sleep", "0.1"], check=True)


def test_when_the_process_that_speaks_drmaa_dies_another_takes_over(
    grid_engine: GridEngine,
) -> None:
    told = run(
        grid_engine,
        f"""
{START_AND_TELL}
os.kill(drmaa.shared_session()._running._process.pid, signal.SIGKILL)
states = [wait_for(launcher, handles[:1], {{WorkerStatus.RUNNING}})[handles[0]].state.value]
more = launcher.launch(1)
launcher.cancel(handles[1:])
os.kill(drmaa.shared_session()._running._process.pid, signal.SIGKILL)
launcher.close()
tell(states=states, jobs=[handles[0].id, more[0].id])
""",
    )
    assert told["states"] == ["running"]
    for job in told["jobs"]:
        wait_until_unknown(grid_engine, job)


def test_schedulers_of_one_process_share_a_session_and_not_their_tasks(
    grid_engine: GridEngine,
) -> None:
    told = run(
        grid_engine,
        """
from gridengine.schedulers.grid_engine import drmaa
one, other = make_launcher(), make_launcher(run=make_run("other"))
mine, others = one.launch(1), other.launch(1)
pids = {drmaa.shared_session()._running._process.pid}
one.close()
state = wait_for(other, others, {WorkerStatus.RUNNING})[others[0]].state
pids.add(drmaa.shared_session()._running._process.pid)
other.close()
tell(state=state.value, pids=len(pids), left=drmaa.shared_session()._running is not None)
""",
    )
    assert told == {"state": "running", "pids": 1, "left": False}
