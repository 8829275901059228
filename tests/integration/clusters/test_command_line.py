"""The command line on a machine with a batch system, as a plain user."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.support.command_line import command, doctor

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
