"""Slurms that are configured as some sites have theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.own_slurm import own_slurm
from tests.support.scenario import play

if TYPE_CHECKING:
    from tests.support.clusters import Slurm

pytestmark = pytest.mark.slurm
WHOLE = "gives each job a whole node, of 4 cores or more"
HIDDEN = "does not show how much that is"
EXCLUSIVE = "main Nodes=n1,n2 Default=YES State=UP OverSubscribe=EXCLUSIVE"

FOUR = """
def cores(index):
    hold(index)
    return os.environ["SLURM_CPUS_ON_NODE"]

with CLUSTER(max_workers=4) as scheduler:
    tell(cores=gridengine.map(cores, range({count}), scheduler=scheduler, chunksize=1))
"""


@pytest.mark.parametrize(
    ("changes", "count", "cores", "words"),
    [
        ({"PrivateData": "jobs,nodes,partitions,reservations,usage"}, 2, "1", HIDDEN),
        ({"PrivateData": "nodes"}, 2, "1", HIDDEN),
        ({"MaxMemPerCPU": 1000}, 4, "1", ""),
        ({"SelectType": "select/linear", "SelectTypeParameters": "CR_Memory"}, 2, "4", WHOLE),
        ({"PartitionName": EXCLUSIVE}, 2, "4", WHOLE),
    ],
    ids=["no partitions", "no nodes", "memory of a core", "linear", "exclusive"],
)
def test_calls_run_on_sites_that_hide_or_round_up_what_jobs_get(
    slurm: Slurm, changes: Mapping[str, Any], count: int, cores: str, words: str
) -> None:
    with own_slurm(slurm, **changes) as own:
        scenario = play(own.slurm, FOUR.format(count=count))
        scenario.began(count)
        scenario.go()
        assert scenario.result()["cores"] == [cores] * count
        assert words in scenario.errors
        assert bool(words) == bool(scenario.errors)


def test_a_user_who_may_submit_no_job_is_told_so_at_once(slurm: Slurm) -> None:
    with own_slurm(slurm, limits={"user": "MaxSubmitJobs=0"}) as own:
        scenario = play(
            own.slurm,
            """
with CLUSTER(max_workers=4) as scheduler:
    try:
        gridengine.map(abs, range(4), scheduler=scheduler)
    except gridengine.SubmissionRefused as error:
        tell(error=str(error))
""",
        )
        error = scenario.result()["error"]
        assert "Slurm takes no job of this user, who has none: " in error
        assert "MaxSubmitJobs=0" in error
