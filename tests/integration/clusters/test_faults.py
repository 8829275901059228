"""Calls on a batch system: hosts that nodes do not reach, where calls run, who sees what."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

import os
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import completed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.clusters import Cluster

import re
from typing import TYPE_CHECKING

from tests.support.scenario import QUICK, play

if TYPE_CHECKING:
    from tests.support.clusters import Cluster


# ------------------------------------------------------------------ workers that do not come


def test_a_host_that_nodes_do_not_reach_is_named_with_the_addresses(cluster: Cluster) -> None:
    scenario = play(
        cluster,
        """
scheduler = lambda: CLUSTER(max_workers=1)
said = facts_of(lambda: gridengine.map(hold, [0], scheduler=scheduler))
logs = list(Path(said["log"]).parent.glob("worker.*.log"))
tell(kept=Path(said["log"]).read_text(), workers=len(logs), **said)
""",
        # An address for documentation, which nobody has (RFC 5737).
        environment={**QUICK, "GRIDENGINE_HOST": "192.0.2.1", "GRIDENGINE_START_SECONDS": "24"},
    )
    told = scenario.result(150)
    assert told["kind"] == "WorkerNotStarted"
    assert re.search(r"never connected within 24 s to tcp://192.0.2.1:\d+ \(.+\)", told["text"])
    assert re.search(r"its worker gets no answer at tcp://192.0.2.1:\d+ \(.+\)", scenario.errors)
    assert told["workers"] == 1
    assert "GRIDENGINE_HOST" in told["hint"]
    assert "firewall" in told["hint"]
    assert "gets no answer of its dispatcher: tcp://192.0.2.1:" in told["log_tail"]
    assert told["log_tail"] in told["kept"]


WHERE = """
import os, sys
import gridengine

def place(number):
    return "JOB_ID" in os.environ or "SLURM_JOB_ID" in os.environ, os.getpid()

if "terminal" in sys.argv:
    import pty
    reader, writer = pty.openpty()
    sys.stderr = os.fdopen(writer, "w", buffering=1)
places = gridengine.map(place, range(3))
places += gridengine.map(place, range(3))
assert len(set(places)) <= 3  # the second map found the workers of the first
print(*sorted({elsewhere for elsewhere, pid in places}))
if "terminal" in sys.argv:
    print(os.read(reader, 10_000).decode())
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root is refused by the batch systems")
def test_root_whose_jobs_are_refused_has_calls_run_on_this_machine(
    cluster: Cluster, tmp_path: Path
) -> None:
    # The folder of watches is of the plain user, or would be root's.
    own = {"GRIDENGINE_WATCH_DIRECTORY": str(tmp_path / "watch")}
    done = completed(
        [sys.executable, "-c", WHERE], env={**os.environ, **cluster.environment, **own}, check=True
    )
    assert (done.stdout, done.stderr) == ("False\n", "")


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
