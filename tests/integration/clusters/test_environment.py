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

SITE_S = (
    LOOK
    + """
os.environ["MINE"] = "1"
prologue = ["export PATH=/prologue/bin:$PATH ADDED=1"]
with told(prologue=prologue) as scheduler:
    print(json.dumps([*gridengine.map(path, [0], scheduler=scheduler), run(look, scheduler)]))
with told(environment=None) as scheduler:
    run(look, scheduler)
    os.environ["MINE"] = "2"
    print(json.dumps(run(look, scheduler)))
"""
)


def test_variables_of_a_prologue_stay_and_the_site_s_variables_are_there(cluster: Cluster) -> None:
    done = cluster.run(SITE_S.replace("SCHEDULER", cluster.scheduler))
    first, second = map(json.loads, done.stdout.splitlines())
    assert first[0].startswith("/prologue/bin:")
    assert first[1] == ["1", None, "1", None, None]
    assert second[0] == ("1" if cluster.name == "slurm" else None)  # which hands it on itself


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
