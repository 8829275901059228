"""What nobody sees of a caller's environment on a batch system."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

HIDDEN = """
import json, os, subprocess
import gridengine

os.environ["MINE"] = "a-secret-of-mine"

def record(_=None):
    name = "JOB_ID" if "JOB_ID" in os.environ else "SLURM_JOB_ID"
    return os.environ["MINE"], os.environ[name]

with gridengine.SCHEDULER(max_workers=1) as scheduler:
    [(value, job)] = gridengine.map(record, [0], scheduler=scheduler)
    commands = {"JOB": ["qstat", "-j", job], "SLURM": ["scontrol", "show", "job", "-dd", job]}
    command = commands["SLURM" if "Slurm" in "SCHEDULER" else "JOB"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    print(json.dumps([value, job in shown, value in shown]))
"""


def test_the_batch_system_shows_nobody_the_environment(cluster: Cluster) -> None:
    done = cluster.run(HIDDEN.replace("SCHEDULER", cluster.scheduler))
    assert json.loads(done.stdout) == ["a-secret-of-mine", True, False]
