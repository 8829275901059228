"""Scripts that are themselves a Slurm job of several nodes."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.clusters import Slurm

pytestmark = pytest.mark.slurm
NODES = """
import os
from pathlib import Path
import gridengine

def node(index):
    name = os.environ["SLURMD_NODENAME"]
    Path("began", f"{index} {name}").touch()
    while len(os.listdir("began")) < COUNT or os.path.exists("stay"):
        pass
    return name

print(sorted(set(gridengine.map(node, range(COUNT), chunksize=1))), gridengine.map(len, ["abc"]))
"""
SAID = (
    "gridengine: map of 4 calls on the 4 cores of Slurm job {job}, on its 2 nodes, up to 4 calls "
    "at a time; scheduler= or GRIDENGINE_SCHEDULER names another place\n"
)


def submit(slurm: Slurm, folder: Path, *lines: str) -> tuple[str, Path]:
    """Submit a script that begins in a folder; return its job's number and its output's path.
    PYTHON runs the script of calls.
    """
    (folder / "began").mkdir(parents=True)
    (folder / "job.sh").write_text("\n".join(["#!/bin/bash", *lines, ""]))
    for path in (folder, folder / "began"):
        path.chmod(0o777)
    output = folder / "output"
    options = "--parsable", "--nodes=2", "--ntasks=4", f"--chdir={folder}", f"--output={output}"
    return slurm.command("sbatch", *options, str(folder / "job.sh")).strip(), output


def python(slurm: Slurm, folder: Path, count: int = 4) -> str:
    """Write the script of calls; return the command that runs it."""
    (folder / "sweep.py").write_text(NODES.replace("COUNT", str(count)))
    kept = ("GRIDENGINE_WATCH_DIRECTORY", "PYTHONPATH")
    said = [f"{name}={text}" for name, text in slurm.environment.items() if name in kept]
    return shlex.join(["env", *said, slurm.python, "sweep.py"])


@pytest.fixture
def folder(slurm: Slurm, request: pytest.FixtureRequest) -> Path:
    path: Path = slurm.folder / request.node.name
    path.mkdir(mode=0o755)
    return path


@pytest.mark.promise
def test_a_job_of_two_nodes_has_its_calls_on_both(slurm: Slurm, folder: Path) -> None:
    job, output = submit(slurm, folder, python(slurm, folder))
    wait_until(lambda: job not in slurm.jobs())
    assert output.read_text() == (SAID.format(job=job) + "['n1', 'n2'] [3]\n")


def test_the_output_says_why_one_node_is_used_when_srun_starts_nothing(
    slurm: Slurm, folder: Path
) -> None:
    refusing = "srun() { echo 'srun: error: Unable to create step: not today' >&2; exit 1; }; srun"
    (folder / "srun").write_text(f"#!/bin/bash\n{refusing}\n")
    (folder / "srun").chmod(0o755)
    call = python(slurm, folder, 1).replace("env ", 'env PATH="$PWD:$PATH" ', 1)
    job, output = submit(slurm, folder, call)
    wait_until(lambda: job not in slurm.jobs())
    words = "srun starts nothing on the others: Unable to create step: not today"
    assert f"Slurm job {job}, on one of its 2 nodes ({words}), up to " in output.read_text()
    assert "['n1'] [3]\n" in output.read_text()


def test_nothing_stays_on_any_node_of_a_job_whose_script_is_killed(
    slurm: Slurm, folder: Path
) -> None:
    (folder / "stay").touch()
    call = f"{python(slurm, folder)} & echo $! >pid; wait; touch killed; sleep 600"
    job, _ = submit(slurm, folder, call)
    wait_until(lambda: len(list((folder / "began").iterdir())) == 4)
    psutil.Process(int((folder / "pid").read_text())).kill()
    wait_until((folder / "killed").exists)
    steps = ("squeue", "--noheader", "--steps", f"--jobs={job}", "--format=%i")
    wait_until(lambda: slurm.command(*steps).split() == [f"{job}.batch"])
    left = ("gridengine.worker", "srun", "cleanup_process")
    wait_until(lambda: not any(word in line for line in commands_of(folder) for word in left))
    slurm.command("scancel", job)
    wait_until(lambda: job not in slurm.jobs())  # where this Slurm is taken down now, it would stay


def commands_of(folder: Path) -> list[str]:
    """Return the commands of all processes that run in a folder or are named after it."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        line = " ".join(process.info["cmdline"] or [])
        if str(folder) in line or process.info["cwd"] == str(folder):
            found.append(line)
    return found
