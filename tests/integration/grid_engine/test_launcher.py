"""Workers as tasks of a real Grid Engine: started, watched, explained and deleted, whatever happens
to them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.launching import files, run

if TYPE_CHECKING:
    from tests.conftest import GridEngine

pytestmark = pytest.mark.grid_engine


def is_known(grid_engine: GridEngine, job: str) -> bool:
    return "job_number" in grid_engine.command("qstat", "-j", job.partition(".")[0])


def test_each_task_s_output_goes_to_the_log_of_its_handle(grid_engine: GridEngine) -> None:
    told = run(
        grid_engine,
        """
launcher = make_launcher('readlink /proc/self/fd/1 /proc/self/fd/2; echo "$@"')
handles = launcher.launch(3)
wait_for(launcher, handles)
launcher.close()
tell(logs=[handle.log for handle in handles], texts=[Path(handle.log).read_text() for handle in handles])
""",
    )
    assert len(set(told["logs"])) == 3
    folder = told["logs"][0].rpartition("/logs/")[0]
    assert told["texts"] == [
        f"{log}\n{log}\n-P -m gridengine.worker {folder}/connection\n" for log in told["logs"]
    ]


def test_a_run_directory_with_blanks_and_accents_works(grid_engine: GridEngine) -> None:
    told = run(
        grid_engine,
        """
launcher = make_launcher('echo "$4"', run=make_run("a röm 'x"))
handles = launcher.launch(1)
wait_for(launcher, handles)
launcher.close()
tell(folder=str(Path.cwd()), text=Path(handles[0].log).read_text())
""",
    )
    assert told["text"] == f"{told['folder']}/a röm 'x/connection\n"


def test_a_task_waits_runs_and_ends(grid_engine: GridEngine) -> None:
    told = run(
        grid_engine,
        """
launcher = make_launcher('while ! [[ -e go ]]; do sleep 0.1; done; exit 3')
handles = launcher.launch(1)
wait_for(launcher, handles, {TaskState.RUNNING})
(launcher.run.directory / "go").touch()
report = wait_for(launcher, handles)[handles[0]]
launcher.close()
tell(state=report.state.value, reason=report.reason, deleted=report.deleted)
""",
    )
    assert told == {"state": "failed", "reason": "exit status 3", "deleted": False}


def test_an_end_without_error_is_no_failure(grid_engine: GridEngine) -> None:
    told = run(
        grid_engine,
        """
launcher = make_launcher("exit 0")
handles = launcher.launch(1)
report = wait_for(launcher, handles)[handles[0]]
launcher.close()
tell(state=report.state.value)
""",
    )
    assert told["state"] == "ended"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("python='/nosuch/python'", "/nosuch/python: No such file or directory"),
        ("prologue=['echo first', 'false']", "the prologue failed with status 1"),
        ("prologue='module load nosuch'", "module: command not found"),
    ],
)
def test_a_worker_that_cannot_start_is_an_error_with_the_log_s_tail(
    grid_engine: GridEngine, given: str, words: str
) -> None:
    told = run(
        grid_engine,
        f"""
launcher = make_launcher(None, {given})
handles = launcher.launch(1)
error = wait_for(launcher, handles)[handles[0]].error
launcher.close()
tell(kind=type(error).__name__, text=str(error), log=handles[0].log, job=handles[0].id)
""",
    )
    assert told["kind"] == "WorkerNotStarted"
    assert words in told["text"]
    assert told["log"] in told["text"]
    assert told["job"] in told["text"]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ("(launcher.run.directory / 'logs').rmdir()", "opening input/output file"),
        ("(launcher.run.directory / 'worker.sh').unlink()", "worker.sh"),
        ("import shutil; shutil.rmtree(launcher.run.directory)", "changing into working directory"),
    ],
)
def test_a_task_that_grid_engine_cannot_start_is_an_error_with_its_own_words(
    grid_engine: GridEngine, spoil: str, words: str
) -> None:
    told = run(
        grid_engine,
        f"""
launcher = make_launcher()
launcher.prepare()
{spoil}
handles = launcher.launch(1)
report = wait_for(launcher, handles)[handles[0]]
launcher.close()
tell(state=report.state.value, kind=type(report.error).__name__, text=str(report.error))
""",
    )
    assert (told["state"], told["kind"]) == ("failed", "WorkerNotStarted")
    assert words in told["text"]
    assert "No such file or directory" in told["text"]


def test_a_task_over_its_time_is_told_from_a_crash(grid_engine: GridEngine) -> None:
    told = run(
        grid_engine,
        """
launcher = make_launcher(h_rt=1)
handles = launcher.launch(1)
report = wait_for(launcher, handles)[handles[0]]
launcher.close()
tell(reason=report.reason, deleted=report.deleted, fault=report.fault.__name__)
""",
    )
    assert told["fault"] == "TimeoutError"
    assert told["reason"].startswith("killed by SIGKILL")
    assert "h_rt=1" in told["reason"]
    assert not told["deleted"]


def test_tasks_that_somebody_deletes_are_reported_as_deleted(grid_engine: GridEngine) -> None:
    told = run(
        grid_engine,
        """
import subprocess
running, waiting = make_launcher(), make_launcher(run=make_run("other"), queue="closed.q")
handles = running.launch(1) + waiting.launch(1)
wait_for(running, handles[:1], {TaskState.RUNNING})
subprocess.run(["qdel", *(handle.id.partition(".")[0] for handle in handles)], check=True, stdout=subprocess.DEVNULL)
reports = wait_for(running, handles[:1]) | wait_for(waiting, handles[1:])
running.close(); waiting.close()
tell(deleted=[reports[handle].deleted for handle in handles], kinds=[type(reports[handle].error).__name__ for handle in handles])
""",
    )
    assert told == {"deleted": [True, True], "kinds": ["JobDeleted", "JobDeleted"]}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("nosuch=1", 'unknown resource "nosuch"'),
        ("h_vmem='abc'", "is not a memory value"),
        ("queue='nosuch.q'", 'unknown queue "nosuch.q"'),
        ("parallel_environment='nosuch 2'", 'parallel environment "nosuch" does not exist'),
        ("parallel_environment='smp 64'", "no suitable queues"),
        ("hostname='nosuch'", 'can\'t resolve hostname "nosuch"'),
        ("native='-nosuch 3'", "-nosuch"),
    ],
)
def test_what_can_never_run_is_refused_at_once_in_grid_engine_s_words(
    grid_engine: GridEngine, given: str, words: str
) -> None:
    told = run(
        grid_engine,
        f"""
launcher = make_launcher({given})
try:
    launcher.launch(2)
except Exception as error:
    tell(kind=type(error).__name__, text=str(error))
finally:
    launcher.close()
""",
    )
    assert told["kind"] == "SubmissionRefused"
    assert words in told["text"]


def test_a_disabled_queue_is_waited_for_and_named(grid_engine: GridEngine) -> None:
    told = run(
        grid_engine,
        """
launcher = make_launcher(queue="closed.q")
handles = launcher.launch(2)
wait_for(launcher, handles, {TaskState.QUEUED})
until = time.monotonic() + 20
while not (words := launcher.explain(handles)) and time.monotonic() < until:
    time.sleep(0.2)
launcher.close()
tell(words=words)
""",
    )
    assert 'queue instance "closed.q@' in told["words"]
    assert "disabled" in told["words"]


def test_a_suspended_task_is_suspended_and_goes_on(grid_engine: GridEngine) -> None:
    script = """
launcher = make_launcher()
handles = launcher.launch(1)
wait_for(launcher, handles, {TaskState.RUNNING})
tell(job=handles[0].id)
wait_for(launcher, handles, {TaskState.SUSPENDED})
tell(state="suspended")
wait_for(launcher, handles, {TaskState.RUNNING})
launcher.close()
tell(state="running")
"""
    started = grid_engine.start(f"from launching import *\n{script}", files=files(grid_engine))
    assert started.stdout is not None
    job = json.loads(started.stdout.readline())["job"]
    grid_engine.command("qmod", "-sj", job)
    assert json.loads(started.stdout.readline())["state"] == "suspended"
    grid_engine.command("qmod", "-usj", job)
    assert json.loads(started.stdout.readline())["state"] == "running"


def test_some_of_an_array_s_tasks_are_withdrawn_and_the_others_stay(
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
    lines = subprocess.run(["qstat"], capture_output=True, text=True).stdout.splitlines()
    left = [line.split()[-1] for line in lines if line.split()[:1] == [handles[0].id.partition(".")[0]]]
reports = wait_for(launcher, handles[:10], {TaskState.QUEUED})
launcher.close()
tell(job=handles[0].id, waiting=len(reports))
""",
    )
    assert told["waiting"] == 10
    assert not is_known(grid_engine, told["job"])


def test_an_array_larger_than_the_site_allows_is_split(grid_engine: GridEngine) -> None:
    limit = next(
        int(line.split()[1])
        for line in grid_engine.command("qconf", "-sconf").splitlines()
        if line.startswith("max_aj_tasks")
    )
    told = run(
        grid_engine,
        f"""
launcher = make_launcher(queue="closed.q")
handles = launcher.launch({limit} + 5)
launcher.close()
jobs = {{handle.id.partition(".")[0] for handle in handles}}
tell(count=len(set(handles)), logs=len({{handle.log for handle in handles}}), jobs=len(jobs))
""",
    )
    assert told == {"count": limit + 5, "logs": limit + 5, "jobs": 2}


def test_nothing_is_left_after_a_close(grid_engine: GridEngine) -> None:
    told = run(
        grid_engine,
        """
launcher = make_launcher()
handles = launcher.launch(10)
wait_for(launcher, handles[:1], {TaskState.RUNNING})
launcher.close()
launcher.close()
tell(files=sorted(path.name for path in launcher.run.directory.iterdir()), job=handles[-1].id)
""",
    )
    assert told["files"] == ["connection", "logs"]
    wait_until_unknown(grid_engine, told["job"])


def wait_until_unknown(grid_engine: GridEngine, job: str) -> None:
    """Wait, as long as this test's time limit lets us, until a job has left the queue."""
    while is_known(grid_engine, job):
        subprocess.run(["sleep", "0.2"], check=True)


START_AND_TELL = """
from gridengine.schedulers.grid_engine import drmaa
launcher = make_launcher()
handles = launcher.launch(10)
wait_for(launcher, handles[:1], {TaskState.RUNNING})
tell(job=handles[0].id, folder=str(launcher.run.directory), child=drmaa.shared_session().pid)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_when_the_user_s_process_is_killed_its_cluster_tasks_go_and_its_keys_too(
    grid_engine: GridEngine, number: int
) -> None:
    script = f"from launching import *\n{START_AND_TELL}\nsignal.pause()"
    started = grid_engine.start(script, files=files(grid_engine))
    assert started.stdout is not None
    told = json.loads(started.stdout.readline())
    os.kill(started.pid, number)
    started.wait(30)
    wait_until_unknown(grid_engine, told["job"])
    wait_until_gone(told["child"])
    assert [path.name for path in Path(told["folder"]).iterdir()] == ["logs"]


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
    started.wait(30)
    wait_until_gone(told["child"])
    wait_until_unknown(grid_engine, told["job"])


def wait_until_gone(pid: int) -> None:
    while Path(f"/proc/{pid}/exe").exists():
        subprocess.run(["sleep", "0.1"], check=True)


def test_a_fork_leaves_its_parent_s_cluster_tasks_alone(grid_engine: GridEngine) -> None:
    told = run(
        grid_engine,
        f"""
{START_AND_TELL}
pid = os.fork()
if pid == 0:
    launcher.close()
    os._exit(0)
os.waitpid(pid, 0)
state = wait_for(launcher, handles[:1], {{TaskState.RUNNING}})[handles[0]].state
launcher.close()
tell(state=state.value)
""",
    )
    assert told["state"] == "running"


def test_when_the_process_that_speaks_drmaa_dies_another_takes_over(
    grid_engine: GridEngine,
) -> None:
    told = run(
        grid_engine,
        f"""
{START_AND_TELL}
os.kill(drmaa.shared_session().pid, signal.SIGKILL)
states = [wait_for(launcher, handles[:1], {{TaskState.RUNNING}})[handles[0]].state.value]
more = launcher.launch(1)
launcher.cancel(handles[1:])
os.kill(drmaa.shared_session().pid, signal.SIGKILL)
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
pids = {drmaa.shared_session().pid}
one.close()
state = wait_for(other, others, {TaskState.RUNNING})[others[0]].state
pids.add(drmaa.shared_session().pid)
other.close()
tell(state=state.value, pids=len(pids), left=drmaa.shared_session().pid is not None)
""",
    )
    assert told == {"state": "running", "pids": 1, "left": False}


CHOOSE = """
import logging
logging.basicConfig(level=logging.INFO, format="%(message)s")
import gridengine.schedulers
print(type(gridengine.schedulers.best_available()).__name__)
"""


def test_the_best_available_is_grid_engine_for_a_user_who_may_submit(
    grid_engine: GridEngine,
) -> None:
    done = grid_engine.run(CHOOSE)
    assert done.stdout == "GridEngineScheduler\n"
    assert "Grid Engine takes jobs of this user" in done.stderr


def test_the_best_available_without_sge_root_and_slurm_s_commands_is_this_machine(
    grid_engine: GridEngine,
) -> None:
    done = grid_engine.run(CHOOSE, environment={"SGE_ROOT": "", "PATH": "/usr/local/bin"})
    assert done.stdout == "ProcessScheduler\n"
    assert "SGE_ROOT is not set" in done.stderr
    assert "sbatch is not installed here" in done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root is refused by Grid Engine")
def test_the_best_available_for_root_is_this_machine(grid_engine: GridEngine) -> None:
    environment = {**os.environ, "SGE_ROOT": grid_engine.environment["SGE_ROOT"]}
    done = subprocess.run(
        [sys.executable, "-c", CHOOSE],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "ProcessScheduler\n"
    assert "user id 0 is lower than minimum" in done.stderr
