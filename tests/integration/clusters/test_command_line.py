"""The command line on a machine with a batch system, as a plain user."""

from __future__ import annotations

import os
import re
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.support.command_line import command, doctor
from tests.support.scenario import bring_up, stop_daemon
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.clusters import Cluster


def test_a_job_that_never_connects_is_not_waited_for_for_ever(cluster: Cluster) -> None:
    closed, value = cluster.closed.split("=")
    seconds, reason = {"grid_engine": ("4", ""), "slurm": ("30", "PartitionDown")}[cluster.name]
    status, found = doctor(
        cluster,
        "--scheduler",
        cluster.name,
        "--wait",
        seconds,
        environment={f"GRIDENGINE_{cluster.name}_{closed}".upper(): value.strip("'")},
    )
    assert status == 1
    text = found[f"{cluster.name} job"]["text"]
    assert f"did not return within {seconds} s" in text
    assert reason in text


def test_with_the_setting_for_this_machine_no_cluster_gets_a_trial_job(cluster: Cluster) -> None:
    status, found = doctor(cluster, environment={"GRIDENGINE_SCHEDULER": "processes"})
    assert status == 0, found
    assert {name.split()[0] for name in found} == {"here", "processes"}
    assert found["processes job"]["state"] == "ok"


@pytest.mark.skipif(os.getuid() != 0, reason="only root may stop daemons")
def test_a_master_that_is_down_is_found(cluster: Cluster) -> None:
    daemon, check, remedy = {
        "grid_engine": ("sge_qmaster", "master", "sge_qmaster"),
        "slurm": ("slurmctld", "controller", "slurmctld"),
    }[cluster.name]
    if cluster.name == "grid_engine":
        wait_until(lambda: not cluster.jobs())
    try:
        stop_daemon(daemon)
        status, found = doctor(cluster)
    finally:
        bring_up(cluster.up)
    assert status == 1
    assert found[f"{cluster.name} {check}"]["state"] == "broken"
    assert remedy in found[f"{cluster.name} {check}"]["remedy"]
    assert found["processes job"]["state"] == "ok"
    assert doctor(cluster, "--scheduler", "processes")[0] == 0


NEEDS_HELP = """
import os, gridengine

def parent(x):
    return os.getppid()

with gridengine.SCHEDULER as scheduler:
    parents = gridengine.map(parent, range(4), scheduler=scheduler, progress=False)
    print(*set(parents), flush=True)
"""
FIND = """
import pathlib, time
while not (found := list(pathlib.Path(FOLDER).glob("*/connection.json"))):
    time.sleep(0.1)
print(found[0])
"""
LIST = "import pathlib; print(list(pathlib.Path(FOLDER).rglob('*.json')))"


@pytest.mark.parametrize("by", ["processes", "the cluster"])
def test_workers_can_be_added_to_a_dispatcher_that_runs(cluster: Cluster, by: str) -> None:
    """Its own scheduler gives it none."""
    folder = str(cluster.folder / f"runs-{uuid.uuid4().hex}")
    runs = {"GRIDENGINE_RUN_DIRECTORY": folder}
    scheduler = f"{cluster.scheduler}({cluster.closed})"
    needy = cluster.start(NEEDS_HELP.replace("SCHEDULER", scheduler), environment=runs)
    found = cluster.run(FIND.replace("FOLDER", repr(folder))).stdout.strip()
    name = cluster.name if by == "the cluster" else by
    status, output = command(cluster, "up", found, "-n", "1", "--scheduler", name, environment=runs)
    assert status == 0, output
    assert re.search(r"worker \S+ ended: ", output)
    assert needy.wait(120) == 0
    assert cluster.run(LIST.replace("FOLDER", repr(folder))).stdout.strip() == "[]"
