"""The command line on a machine with a real Slurm, with both clusters, and with one that is broken,
as a plain user.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.support.command_line import doctor
from tests.support.launching import run

if TYPE_CHECKING:
    from tests.support.clusters import GridEngine, Slurm

pytestmark = pytest.mark.slurm


def test_a_machine_with_slurm_is_described_and_a_job_connects(slurm: Slurm) -> None:
    status, found = doctor(slurm, "--scheduler", "slurm")
    assert status == 0, found
    assert found.pop("here encryption")["state"] in ("ok", "slow")
    assert {one["state"] for one in found.values()} == {"ok"}
    assert re.search(r"/sbatch, slurm-wlm \d+", found["slurm commands"]["text"])
    assert "is UP" in found["slurm controller"]["text"]
    assert "main* (up, 2 nodes)" in found["slurm partitions"]["text"]
    assert re.search(r"returned from \S+ in \d+\.\d s", found["slurm job"]["text"])


@pytest.mark.grid_engine
def test_a_machine_with_both_is_described_with_both(slurm: Slurm, grid_engine: GridEngine) -> None:
    status, found = doctor(grid_engine)
    assert status == 0, found
    assert {found[f"{name} job"]["state"] for name in ("processes", "grid_engine", "slurm")} == {
        "ok"
    }
    status, found = doctor(slurm)
    assert status == 0, found
    assert (found["grid_engine environment"]["state"], found["slurm job"]["state"]) == (
        "absent",
        "ok",
    )


@pytest.mark.parametrize(
    ("environment", "check", "words", "remedy"),
    [
        (
            {"SLURM_CONF": "/nosuch/slurm.conf"},
            "controller",
            "SLURM_CONF=/nosuch/slurm.conf",
            "SLURM_CONF may say where it is",
        ),
        ({"PATH": "/nosuch"}, "commands", "no sbatch in PATH", "module"),
        (
            {"GRIDENGINE_SLURM_PARTITION": "nosuch"},
            "partitions",
            "there is no partition nosuch, which GRIDENGINE_SLURM_PARTITION names",
            "correct GRIDENGINE_SLURM_PARTITION",
        ),
        ({"GRIDENGINE_SLURM_NATIVE": "--nosuch=1"}, "job", "nosuch", ""),
    ],
)
def test_a_broken_part_is_named_with_a_remedy(
    slurm: Slurm, environment: dict[str, str], check: str, words: str, remedy: str
) -> None:
    status, found = doctor(slurm, "--scheduler", "slurm", environment=environment)
    assert status == 1
    wrong = found[f"slurm {check}"]
    assert wrong["state"] != "ok"
    assert words in wrong["text"]
    assert remedy in wrong["remedy"]


def test_a_demand_reaches_the_cluster_task(slurm: Slurm) -> None:
    told = run(
        slurm,
        """
from gridengine.resources import Cores, GPUs, Memory, Token, WTime
from gridengine.resources.demand import Demand
launcher = make_launcher('scontrol show job $SLURM_JOB_ID')
demand = Demand(Cores(2) & Memory(1) & WTime(600) & GPUs(2) & Token("feature-n2"))
plan = launcher.plan(1, demand)
handles = launcher.launch(1, demand)
wait_for(launcher, handles)
launcher.close()
tell(argv=plan.request["argv"], srun=plan.request["srun"], log=Path(handles[0].log).read_text())
""",
    )
    fields = dict(re.findall(r"(\S+?)=(\S+)", told["log"]))
    assert (fields["CPUs/Task"], fields["MinMemoryNode"], fields["TimeLimit"]) == (
        "2",
        "1G",
        "00:12:00",
    )
    assert (fields["Features"], fields["TresPerNode"], fields["NodeList"]) == (
        "feature-n2",
        "gres:gpu:2",
        "n2",
    )
    assert fields["Command"] == "/bin/bash" == told["srun"][-2]
    assert told["srun"][-1] == told["argv"][-1]
