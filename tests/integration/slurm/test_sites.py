"""Slurms that are configured as some sites have theirs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.launching import run
from tests.support.own_slurm import own_slurm
from tests.support.scenario import play
from tests.support.waiting import wait_until

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
def test_calls_run_on_sites_that_hide_or_round_up_the_resources_of_jobs(
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


HIDDEN = """main Nodes=n1,n2 Default=YES State=UP Hidden=YES
PartitionName=closed Nodes=n1,n2 State=DOWN Hidden=YES"""
RENAMES = """
function slurm_job_submit(job, partitions, user)
    job.name = "job"
    return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, user)
    return slurm.SUCCESS
end
return slurm.SUCCESS
"""


@pytest.mark.parametrize(
    "site",
    [
        {"PartitionName": HIDDEN},
        {"JobSubmitPlugins": "lua", "files": {"job_submit.lua": RENAMES}},
    ],
    ids=["hidden", "renamed"],
)
def test_jobs_in_hidden_partitions_and_renamed_jobs_are_watched_and_cancelled(
    slurm: Slurm, site: Mapping[str, Any]
) -> None:
    with own_slurm(slurm, **site) as own:
        told = run(
            own.slurm,
            """
launcher = make_launcher(partition="closed")
waiting = launcher.launch(2)
wait_for(launcher, waiting, {WorkerStatus.QUEUED})
reason = launcher.explain(waiting)
launcher.close()
launcher = make_launcher("sleep 3; exit 3")
first = launcher.launch(2)
runs = wait_for(launcher, first, {WorkerStatus.RUNNING})
ends = [report.reason for report in wait_for(launcher, first).values()]
launcher.close()
tell(reason=reason, ends=ends)
""",
        )
        assert told["reason"].startswith("PartitionDown: its partition is down")
        assert told["ends"] == ["it failed (FAILED): exit status 3"] * 2
        wait_until(lambda: not own.slurm.jobs())


GRACE = """main Nodes=n1,n2 Default=YES State=UP
PartitionName=low Nodes=n1,n2 State=UP PriorityTier=1 PreemptMode=CANCEL GraceTime=5
PartitionName=high Nodes=n1,n2 State=UP PriorityTier=9 PreemptMode=OFF"""


def test_a_job_that_leaves_in_the_grace_time_of_a_preemption_costs_no_attempt(
    slurm: Slurm,
) -> None:
    with own_slurm(slurm, PartitionName=GRACE, PreemptMode="CANCEL") as own:
        scenario = play(
            own.slurm,
            """
tell(results=gridengine.map(hold, [0], retries=1, scheduler=CLUSTER(
    max_workers=1, partition="low", mem="6000M")))
""",
        )
        for count in (1, 2):
            with own.slurm.preempting(scenario.began(count)[-1]):
                wait_until(lambda: not scenario.begun()[-1].lives)
        scenario.began(3)
        scenario.go()
        assert scenario.result()["results"] == [0]


NO_ENTRY = """main Nodes=n1,n2 Default=YES State=UP
PartitionName=others Nodes=n1,n2 State=UP DenyAccounts=tests"""
MAP = """
tell(results=gridengine.map(hold, range(2), chunksize=1, scheduler=CLUSTER(max_workers=2)))
"""
REFUSED = """
tell(**facts_of(lambda: gridengine.map(abs, [1], scheduler=CLUSTER({}))))
"""


def test_a_limit_that_passes_is_waited_for_and_one_that_never_does_is_a_refusal(
    slurm: Slurm,
) -> None:
    limits = {"qos": "MaxJobsPerUser=1"}
    with own_slurm(slurm, limits=limits, PartitionName=NO_ENTRY) as own:
        scenario = play(own.slurm, MAP)
        scenario.began(1)
        scenario.go()
        assert scenario.result()["results"] == [0, 1]
        assert scenario.errors.count("QOSMaxJobsPerUserLimit") <= 1

        told = play(own.slurm, REFUSED.format("partition='others'")).result()
        assert told["kind"] == "SubmissionRefused"
        words = "can never start it: (Job's account not permitted|PartitionConfig: )"
        assert re.search(words, told["text"])

        denies = ("set", "Flags=DenyOnLimit", "MaxWall=5")
        own.slurm.administer("sacctmgr", "--immediate", "modify", "qos", "normal", *denies)
        limit = "MaxWallPJ=5"
        wait_until(lambda: limit in own.slurm.administer("scontrol", "show", "assoc_mgr"))
        told = play(own.slurm, REFUSED.format("time='1:00:00'")).result()
        assert told["kind"] == "SubmissionRefused"
        assert "Slurm refuses the job: QOSMaxWallDurationPerJobLimit" in told["text"]
