"""What calls on a batch system find in their environment: one rule for all of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

LOOK = """
import json, multiprocessing, os, sys, tempfile
import gridengine

NAMES = "MINE", "GONE", "ADDED", "CUDA_VISIBLE_DEVICES", "DISPLAY"

def look(_=None):
    return [os.environ.get(name) for name in NAMES]

def path(_=None):
    return os.environ["PATH"]

def scratch(_=None):
    return os.path.isdir(os.environ.get("TMPDIR", tempfile.gettempdir()))

def process(_=None):
    os.environ["MINE"] = "changed"
    umask = os.umask(0)
    os.umask(umask)
    name = multiprocessing.current_process().name
    return sys.argv[1:], umask, name, multiprocessing.parent_process() is not None

def told(**arguments):
    return gridengine.SCHEDULER(max_workers=1, **arguments)

def run(f, scheduler):
    job = gridengine.Job(target=f, name="reader", scheduler=scheduler)
    job.start()
    job.join()
    return job.result()
"""


HIDDEN = (
    LOOK
    + """
import subprocess
from pathlib import Path

os.environ["MINE"] = "a-secret-of-mine"

def record(_=None):
    name = "JOB_ID" if "JOB_ID" in os.environ else "SLURM_JOB_ID"
    return os.environ["MINE"], os.environ[name]

with told() as scheduler:
    [(value, job)] = gridengine.map(record, [0], scheduler=scheduler)
    commands = {"JOB": ["qstat", "-j", job], "SLURM": ["scontrol", "show", "job", "-dd", job]}
    command = commands["SLURM" if "Slurm" in "SCHEDULER" else "JOB"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    print(json.dumps([value, job in shown, value in shown]))
"""
)


def test_the_batch_system_shows_nobody_the_environment(cluster: Cluster) -> None:
    done = cluster.run(HIDDEN.replace("SCHEDULER", cluster.scheduler))
    assert json.loads(done.stdout) == ["a-secret-of-mine", True, False]
