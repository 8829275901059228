"""Scripts that use a place's launcher alone: shared by the tests of the launchers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.places import Place

LAUNCHING = '''
"""What these scripts share: a launcher whose workers are a shell script, and waiting."""

import json, logging, os, re, signal, stat, sys, time
from pathlib import Path

import gridengine.schedulers
import gridengine.schedulers.slurm.srun
from gridengine.schedulers.launcher import LaunchContext, WorkerStatus

gridengine.schedulers.slurm.srun.ANSWER_SECONDS = 60.0  # however slow this machine is
ENDS = {WorkerStatus.ENDED, WorkerStatus.FAILED}


def make_run(name=None):
    folder = Path.cwd() / (name or f"run{len(list(Path.cwd().iterdir()))}")
    folder.mkdir(mode=0o700)
    (folder / "connection").write_text("")
    return LaunchContext("test", folder, folder / "connection", print)


def make_launcher(worker="exec sleep 600", run=None, **given):
    if worker is not None:
        path = Path.cwd() / "worker"
        path.write_text(f"#!/bin/bash\\n{worker}\\n")
        path.chmod(0o700)
        if issubclass(SCHEDULER, gridengine.ProcessScheduler):
            sys.executable = str(path)
        else:
            given["python"] = str(path)
    return SCHEDULER(**given).launcher(run or make_run())


def wait_for(launcher, handles, states=ENDS, seconds=100):
    """Poll until each of these is in one of the states; return the last reports."""
    def state(handle):
        return reports[handle].state if handle in reports else None

    reports = {}
    until = time.monotonic() + seconds
    while not all(state(handle) in states for handle in handles):
        assert time.monotonic() < until, reports
        reports.update(launcher.poll([one for one in handles if state(one) not in ENDS]))
        time.sleep(0.1)
    return reports


def number_of(handle):
    """The number of the job that this worker is, or is a task of."""
    return re.split("[._]", handle.id)[0]


def tell(**facts):
    print(json.dumps(facts), flush=True)
'''


def files(place: Place) -> dict[str, str]:
    """Return what the scripts import, by its name."""
    return {
        "launching.py": f"{LAUNCHING}\nfrom {place.module} import {place.scheduler} as SCHEDULER\n"
    }


def run(place: Place, script: str, **options: Any) -> dict[str, Any]:
    """Run a script that ends with `tell(...)`, and return what it told."""
    done = place.run(f"from launching import *\n{script}", files=files(place), **options)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told
