"""How workers come to run on a real Slurm: at once, later, or never."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.launching import run
from tests.support.scenario import Scenario, nothing_is_left, play
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.clusters import Slurm

pytestmark = pytest.mark.slurm
PATIENT = "import gridengine.schedulers.slurm.srun as srun\nsrun.ANSWER_SECONDS = 60.0\n"
"""However slow this machine is, what srun starts is started by it."""


@pytest.fixture
def idle(slurm: Slurm) -> Slurm:
    """The Slurm of this machine, once no job of an earlier test holds anything."""
    wait_until(lambda: not slurm.jobs())
    return slurm


# ------------------------------------------------------------------ never, or not in time


# ------------------------------------------------------------------ at once


def test_on_free_nodes_the_first_workers_are_jobs_of_srun_and_the_others_an_array(
    idle: Slurm,
) -> None:
    told = run(
        idle,
        """
launcher = make_launcher('readlink /proc/self/fd/1; echo "$SLURM_JOB_ID"; exec sleep 600')
handles = launcher.launch(6)
reports = wait_for(launcher, handles, {WorkerStatus.RUNNING})
texts = []
until = time.monotonic() + 60
while not all(len(text) == 2 for text in texts) or not texts:
    assert time.monotonic() < until, texts
    time.sleep(0.1)
    texts = [Path(handle.log).read_text().split() for handle in handles]
again = launcher.launch(1)
launcher.close()
ids, logs = [handle.id for handle in handles], [handle.log for handle in handles]
tell(ids=ids, logs=logs, texts=texts, again=again[0].id, name=launcher.name)
""",
    )
    assert ["_" in id for id in told["ids"]] == [False] * 4 + [True] * 2
    assert "_" in told["again"]
    assert [text[0] for text in told["texts"]] == told["logs"]
    assert [text[1] for text in told["texts"]][:4] == told["ids"][:4]
    lives = ("--states=PENDING,RUNNING", f"--name={told['name']}")
    wait_until(lambda: not idle.command("squeue", "--noheader", *lives).strip())


def test_on_full_nodes_all_workers_wait_in_an_array_without_srun(slurm: Slurm) -> None:
    told = run(
        slurm,
        """
said = []


class Noted(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())


logging.getLogger("gridengine").addHandler(Noted())
logging.getLogger("gridengine").setLevel("INFO")
launcher = make_launcher(partition="closed")
ids = [handle.id for handle in [*launcher.launch(2), *launcher.launch(1)]]
launcher.close()
tell(ids=ids, said=said)
""",
    )
    assert [id.partition("_")[2] for id in told["ids"]] == ["1", "2", "1"]
    [line] = [line for line in told["said"] if "srun" in line]
    assert line.startswith("srun started 0 of 2 workers at once; sbatch is asked for the others: ")


def test_workers_that_srun_cannot_start_are_not_charged_and_left_to_sbatch_from_then_on(
    idle: Slurm,
) -> None:
    told = run(
        idle,
        """
launcher = make_launcher()
launcher.prepare()
(launcher.run.directory / "logs").rmdir()
first = launcher.launch(1)
report = wait_for(launcher, first)[first[0]]
second = launcher.launch(1)
launcher.close()
tell(first=first[0].id, blameless=report.blameless, second=second[0].id)
""",
    )
    assert "_" not in told["first"]
    assert told["blameless"]
    assert "_" in told["second"]


def children_named(name: str, scenario: Scenario) -> list[psutil.Process]:
    """Return the children of a script that have this name; others of its commands come and go."""
    found = []
    for child in psutil.Process(scenario.process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.name() == name:
                found.append(child)
    return found


def test_calls_of_a_worker_whose_srun_is_killed_run_again(idle: Slurm) -> None:
    scenario = play(
        idle,
        f"{PATIENT}tell(results=gridengine.map(alone, [0], scheduler=lambda: "
        "CLUSTER(max_workers=1), retries=1))",
    )
    scenario.began(1)
    [srun] = children_named("srun", scenario)
    srun.kill()
    scenario.began(2)
    assert not (scenario.folder / "not alone").exists()
    scenario.go()
    assert scenario.result()["results"] == [0]
    nothing_is_left(idle, scenario.begun())


def test_from_within_a_job_workers_are_jobs_of_their_own_and_not_steps_of_it(slurm: Slurm) -> None:
    script = """
def where(_):
    import os
    return os.environ["SLURM_JOB_ID"]

tell(inner=gridengine.map(where, [0], scheduler=lambda: CLUSTER(max_workers=1)))
"""
    outer = {
        "SLURM_JOB_ID": "1",
        "SLURM_JOBID": "1",
        "SLURM_STEP_ID": "0",
        "SLURM_NTASKS": "2",
        "SLURM_NNODES": "2",
    }
    told = play(slurm, script, environment=outer).result()
    assert told["inner"][0] not in ("", "1")


def test_a_call_may_start_steps_of_its_own_in_its_worker_s_job(idle: Slurm) -> None:
    script = """
def step(_):
    import os, subprocess
    command = ["srun", "--immediate=20", "bash", "-c", "echo $SLURM_JOB_ID"]
    done = subprocess.run(command, capture_output=True, text=True)
    in_array = "SLURM_ARRAY_JOB_ID" in os.environ
    return os.environ["SLURM_JOB_ID"], done.stdout.strip(), in_array, done.stderr

from gridengine.resources import Cores, Memory
facts = [
    gridengine.map(step, [0], scheduler=lambda: CLUSTER(max_workers=1), resources=one)[0]
    for one in (None, Cores(2) & Memory(1))
]
tell(facts=facts)
"""
    for job, step, in_array, errors in play(idle, PATIENT + script).result(120)["facts"]:
        assert not in_array
        assert step == job, errors


# ------------------------------------------------------------------ what is left


def test_a_run_that_is_over_leaves_no_folder_though_slurm_wrote_into_each_log(slurm: Slurm) -> None:
    script = """
scheduler = CLUSTER(max_workers=6)
results = gridengine.map(hold, range(6), scheduler=scheduler, chunksize=1)
logs = list(Path("runs").glob("*/logs/*.log"))
os.system("scancel " + " ".join(JOBS))
while not all("CANCELLED AT" in log.read_text() for log in logs):
    time.sleep(0.05)
scheduler.close()
tell(results=results, logs=len(logs), left=[str(path) for path in Path("runs").iterdir()])
"""
    script = script.replace("JOBS", "{path.name.split()[3] for path in FOLDER.glob('began *')}")
    scenario = play(slurm, script, environment={"GRIDENGINE_RUN_DIRECTORY": "runs"})
    scenario.began(6)
    scenario.go()
    told = scenario.result()
    assert told["logs"] == 6
    assert told["left"] == []


# ------------------------------------------------------------------ on one node of two

BAD = """if [ "$SLURMD_NODENAME" = n1 ]; then echo no scratch >&2; exit 1; fi"""
"""A line of a prologue that fails on the node n1."""
ON_NODES = """
import os
def node(_):
    return os.environ["SLURMD_NODENAME"]
def run(**given):
    with CLUSTER(max_workers=2, **given) as scheduler:
        return gridengine.map(node, range(6), scheduler=scheduler)
"""


def test_a_node_that_starts_no_workers_is_left_out_and_the_others_run_the_calls(
    idle: Slurm,
) -> None:
    told = play(idle, f"{ON_NODES}tell(nodes=run(prologue={BAD!r}))").result()
    assert told["nodes"] == ["n2"] * 6


def test_an_error_says_that_no_other_node_is_left(idle: Slurm) -> None:
    script = f"{ON_NODES}tell(**facts_of(lambda: run(prologue={BAD!r}, nodelist='n1')))"
    told = play(idle, script).result()
    assert told["kind"] == "WorkerNotStarted"
    assert "a line of its prologue failed" in told["text"]
    assert "attempt: without n1: Slurm refuses the job" in told["text"]


def test_the_users_hosts_are_left_out_from_the_beginning(idle: Slurm) -> None:
    told = play(idle, f"{ON_NODES}tell(nodes=run(exclude_hosts=['n2']))").result()
    assert told["nodes"] == ["n1"] * 6
