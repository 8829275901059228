"""A stand-alone dispatcher whose workers are a cluster's, from start to stop, as a plain user."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clusters import Cluster
from tests.support.command_line import command
from tests.support.waiting import wait_until

MAP = """
import gridengine, os

def job(number):
    return number * number, os.environ.get("SLURM_JOB_ID") or os.environ.get("JOB_ID")

with gridengine.Client("sweeps") as client:
    found = gridengine.map(job, range(20), scheduler=client)
print(sum(square for square, _ in found), len({job for _, job in found if job}) > 0)
"""


SUBMIT = {
    "slurm": ("sbatch", "--output=/dev/null", "--export=NONE", "{script}"),
    "grid_engine": ("qsub", "-j", "y", "-o", "/dev/null", "-S", "/bin/sh", "{script}"),
}


@pytest.fixture
def runs(cluster: Cluster) -> Iterator[dict[str, str]]:
    folder = cluster.folder / f"dispatchers-{cluster.name}"
    environment = {"GRIDENGINE_RUN_DIRECTORY": str(folder)}
    yield environment
    if Path(folder, "dispatchers", "sweeps", "options.json").exists():
        command(cluster, "dispatcher", "stop", "sweeps", "--now", environment=environment)


def test_a_dispatcher_inside_a_cluster_job_takes_clients_and_ends_its_job(
    cluster: Cluster, runs: dict[str, str]
) -> None:
    words = [cluster.python, "-m", "gridengine", "dispatcher", "start", "sweeps", "--foreground"]
    words += ["--scheduler", cluster.name, "--max-workers", "1"]
    variables = [f"{name}={value}" for name, value in {**cluster.environment, **runs}.items()]
    script = cluster.folder / "dispatcher.sh"
    script.write_text(f"#!/bin/sh\nexec {shlex.join(['env', *variables, *words])}\n")
    script.chmod(0o755)
    told = cluster.command(*(word.format(script=script) for word in SUBMIT[cluster.name]))
    assert "ubmitted" in told
    status = ("dispatcher", "status", "sweeps")
    wait_until(lambda: command(cluster, *status, environment=runs)[0] == 0)
    assert cluster.run(MAP, environment=runs).stdout == "2470 True\n"
    assert command(cluster, "dispatcher", "stop", "sweeps", environment=runs)[0] == 0
    wait_until(lambda: not cluster.jobs())


def test_scale_says_how_many_cluster_tasks_there_are(
    cluster: Cluster, runs: dict[str, str]
) -> None:
    def call(*words: str) -> str:
        status, output = command(cluster, *words, environment=runs)
        assert status == 0, output
        return output

    def workers() -> int:
        told = json.loads(call("dispatcher", "status", "sweeps", "--json"))
        return int(told["workers"])

    words = ("--scheduler", cluster.name, "--max-workers", "1", "--min-workers", "1")
    call("dispatcher", "start", "sweeps", *words)
    wait_until(lambda: workers() == 1)
    assert "sweeps: 2 workers" in call("scale", "sweeps", "2")
    wait_until(lambda: workers() == 2)
    call("scale", "sweeps", "0")
    wait_until(lambda: workers() == 0)
    wait_until(lambda: not cluster.jobs())
    assert "sweeps: 1 worker" in call("scale", "sweeps", "--auto")
    assert cluster.run(MAP, environment=runs).stdout == "2470 True\n"
    call("dispatcher", "stop", "sweeps")
    wait_until(lambda: not cluster.jobs())
