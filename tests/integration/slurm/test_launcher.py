"""Workers as tasks of a real Slurm: started, watched, explained and cancelled, whatever happens to
them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.launching import run

if TYPE_CHECKING:
    from tests.support.clusters import Slurm

pytestmark = pytest.mark.slurm

LIVES = "PENDING,RUNNING,SUSPENDED,COMPLETING"


def jobs_named(slurm: Slurm, name: str) -> str:
    return slurm.command("squeue", "--noheader", f"--states={LIVES}", f"--name={name}").strip()


def test_tasks_of_many_arrays_are_asked_for_with_one_command(slurm: Slurm) -> None:
    told = run(
        slurm,
        """
launcher = make_launcher(partition="closed")
launcher._site
handles = [handle for _ in range(3) for handle in launcher.launch(2)]
launcher.largest = 2
calls = []
whole = launcher._slurm.run


def noted(*command, **options):
    calls.append(command[0])
    return whole(*command, **options)


launcher._slurm.run = noted
reports = launcher.poll(handles)
words = launcher.explain(handles)
states = [reports[handle].state.value for handle in handles]
tell(calls=calls, states=states, words=words, name=launcher._name)
launcher.close()
""",
    )
    assert told["calls"] == ["squeue"]
    assert told["states"] == ["queued"] * 6
    assert (
        told["words"]
        == "PartitionDown: its partition is down; use another partition=, or ask the administrators"
    )
    assert jobs_named(slurm, told["name"]) == ""


def test_tasks_of_an_array_cancelled_while_they_waited_are_reported_as_deleted(
    slurm: Slurm,
) -> None:
    told = run(
        slurm,
        """
import subprocess
launcher = make_launcher(partition="closed")
handles = launcher.launch(4)
wait_for(launcher, handles, {WorkerStatus.QUEUED})
job = handles[0].id.partition("_")[0]
subprocess.run(["scancel", f"{job}_[2-3]"], check=True)
some = wait_for(launcher, handles[1:3])
left = launcher.poll(handles)
subprocess.run(["scancel", job], check=True)
rest = wait_for(launcher, [handles[0], handles[3]])
launcher.close()
ends = [some[handles[1]], some[handles[2]], rest[handles[0]], rest[handles[3]]]
kinds = [type(end.error).__name__ for end in ends]
left = [handle.id[-1] for handle in left]
tell(deleted=[end.deleted for end in ends], kinds=kinds, left=left)
""",
    )
    assert told == {"deleted": [True] * 4, "kinds": ["JobDeleted"] * 4, "left": ["1", "4"]}


def test_a_task_that_is_forgotten_before_it_is_asked_for_is_no_success(slurm: Slurm) -> None:
    told = run(
        slurm,
        """
launcher = make_launcher("exit 0")
handles = launcher.launch(1)
until = time.monotonic() + 60
while launcher._slurm.jobs(launcher._name):
    assert time.monotonic() < until
    time.sleep(0.5)
report = wait_for(launcher, handles)[handles[0]]
launcher.close()
tell(state=report.state.value, reason=report.reason, deleted=report.deleted)
""",
        seconds=100,
    )
    assert told["state"] == "failed"
    assert "Slurm no longer knows it" in told["reason"]
    assert not told["deleted"]


def test_a_task_that_is_put_back_into_the_queue_is_replaced_and_never_starts_again(
    slurm: Slurm,
) -> None:
    told = run(
        slurm,
        """
import subprocess
launcher = make_launcher(native="--requeue")
handles = launcher.launch(2)
wait_for(launcher, handles, {WorkerStatus.RUNNING})
subprocess.run(["scontrol", "requeue", handles[0].id], check=True)
report = wait_for(launcher, handles[:1])[handles[0]]
rows = launcher._slurm.jobs(launcher._name)
other = launcher.poll(handles)[handles[1]].state.value
launcher.close()
row = rows[handles[0].id].state if handles[0].id in rows else "gone"
tell(reason=report.reason, blameless=report.blameless, row=row, other=other)
""",
    )
    assert "put back into the queue" in told["reason"]
    assert told["blameless"]
    assert told["row"] in ("CANCELLED", "gone")
    assert told["other"] == "running"


def test_a_task_that_slurm_starts_again_starts_no_worker(slurm: Slurm) -> None:
    told = run(
        slurm,
        """
import subprocess
launcher = make_launcher("echo worker")
launcher.prepare()
again = {**os.environ, "SLURM_RESTART_COUNT": "1"}
done = subprocess.run([launcher.script], env=again, capture_output=True, text=True, check=True)
launcher.close()
tell(said=done.stdout, told=done.stderr)
""",
    )
    assert told["said"] == ""
    assert "another has taken its place" in told["told"]


def test_a_task_that_makes_room_for_another_job_is_not_charged(slurm: Slurm) -> None:
    told = run(
        slurm,
        """
low = make_launcher(partition="low", mem="6000M", nodelist="n2")
handles = low.launch(1)
wait_for(low, handles, {WorkerStatus.RUNNING})
high = make_launcher(run=make_run("other"), partition="high", mem="6000M", nodelist="n2")
others = high.launch(1)
report = wait_for(low, handles)[handles[0]]
wait_for(high, others, {WorkerStatus.RUNNING})
low.close()
high.close()
tell(reason=report.reason, blameless=report.blameless, deleted=report.deleted)
""",
    )
    assert told["blameless"]
    assert not told["deleted"]
    assert "preempted" in told["reason"]


BROKEN = """
try:
    launcher = make_launcher()
    launcher.launch(1)
except Exception as error:
    tell(kind=type(error).__name__, words=str(error))
launcher.close()
"""


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"PATH": "/usr/local/bin"}, "scontrol is not installed here"),
        (
            {"SLURM_CONF": "/nosuch/slurm.conf"},
            "there is no configuration file SLURM_CONF=/nosuch/slurm.conf",
        ),
    ],
)
def test_where_there_is_no_slurm_that_is_an_error_with_a_remedy(
    slurm: Slurm, environment: dict[str, str], words: str
) -> None:
    told = run(slurm, BROKEN, environment=environment)
    assert told["kind"] == "SchedulerUnavailable"
    assert words in told["words"]
    assert "try: " in told["words"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("SlurmctldPort=6999", "Unable to contact slurm controller"),
        ("AuthInfo=socket=/nosuch/munge", "munged runs"),
    ],
)
def test_a_slurm_that_does_not_answer_is_an_error_with_a_remedy(
    slurm: Slurm, line: str, words: str
) -> None:
    text = f"""
lines = Path("/etc/slurm/slurm.conf").read_text() + {line!r} + "\\n"
Path("slurm.conf").write_text(lines)
os.environ["SLURM_CONF"] = str(Path("slurm.conf").absolute())
"""
    told = run(slurm, text + BROKEN, seconds=100)
    assert told["kind"] == "SchedulerUnavailable"
    assert words in told["words"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root is refused by Slurm")
def test_for_root_the_error_says_to_run_it_as_a_plain_user(slurm: Slurm) -> None:
    text = """
import gridengine
try:
    gridengine.map(abs, [1], scheduler=gridengine.SlurmScheduler())
except gridengine.SchedulerUnavailable as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=150, check=True
    )
    assert "run this as a plain user" in done.stdout


def test_workers_take_the_share_of_a_core_of_memory_by_default(slurm: Slurm) -> None:
    told = run(
        slurm,
        """
from gridengine.resources import Memory
from gridengine.resources.demand import Demand
launcher = make_launcher(partition="closed")
demands = [Demand(), Demand(Memory(3)), Demand(Memory(3), 2.0)]
commands = [launcher.plan(1, demand).request["argv"] for demand in demands]
other = make_launcher(run=make_run("other"), mem="77M").plan(1).request["argv"]
commands.append(other)
tell(asked=[[word for word in command if word.startswith("--mem")] for command in commands])
launcher.close()
""",
    )
    assert told["asked"] == [
        ["--mem-per-cpu=2000M"],
        ["--mem=3072M"],
        ["--mem=6144M"],
        ["--mem=77M"],
    ]
