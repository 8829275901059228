"""What keeps calls from running on a real cluster, brought about; what `gridengine explain` and
`top` say of it to the user: the cause, the place, the next step.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.clusters import Slurm
from tests.support.command_line import command
from tests.support.own_slurm import own_slurm
from tests.support.reports import explanations_in
from tests.support.scenario import QUICK, Began, Scenario, play
from tests.support.small_disk import small_disk, without_more_files
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

HOLD = "gridengine.map(hold, range({count}), scheduler=CLUSTER({arguments}), chunksize=1{more})"
QUEUED: dict[str, dict[str, tuple[str, str, str]]] = {
    "a disabled queue": {
        "grid_engine": ("queue='closed.q'", "disabled", "qmod -e"),
        "slurm": ("partition='closed'", "PartitionDown", "sinfo"),
    },
    "a held job": {
        "grid_engine": ("native='-h'", "hold", "qrls"),
        "slurm": ("native='--hold'", "JobHeldUser", "scontrol release"),
    },
    "a limit for the user": {
        "grid_engine": ("", "exceeds limit", "wait for your other jobs to end"),
        "slurm": ("", "AssocMaxJobsLimit", "wait for your other jobs to end"),
    },
    "a limit for the account": {
        "slurm": ("", "AssocGrpCpuLimit", "wait for your other jobs to end"),
    },
    "a limit for the QOS": {
        "slurm": ("", "QOSMaxJobsPerUserLimit", "wait for your other jobs to end"),
    },
    "more time than the partition gives": {
        "slurm": ("partition='side', time='5:00:00', strict=False", "Partition", "ask for less"),
    },
}
"""By its name: the scheduler's arguments on each cluster, what the batch system says, and a word of
the next step.
"""


@contextlib.contextmanager
def configured(cluster: Cluster, add: str, remove: tuple[str, ...], text: str) -> Iterator[Cluster]:
    """Have Grid Engine configured so, by a file, while the block runs."""
    file = cluster.folder / "configuration"
    file.write_text(text)
    cluster.administer("qconf", add, str(file))
    try:
        yield cluster
    finally:
        cluster.administer("qconf", *remove)


@contextlib.contextmanager
def short_times(cluster: Cluster) -> Iterator[Cluster]:
    """Have a partition of Slurm's take jobs of a minute alone."""
    cluster.administer("scontrol", "update", "PartitionName=side", "MaxTime=1")
    try:
        yield cluster
    finally:
        cluster.administer("scontrol", "update", "PartitionName=side", "MaxTime=UNLIMITED")


@contextlib.contextmanager
def limited(cluster: Cluster, **limits: str) -> Iterator[Cluster]:
    """Have a Slurm that keeps accounts, with these limits."""
    assert isinstance(cluster, Slurm)
    with own_slurm(cluster, limits=limits) as own:
        yield own.slurm


LONELY = """pe_name lonely
slots 999
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule $pe_slots
control_slaves FALSE
job_is_first_task TRUE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
"""
QUOTA = """{{
   name gridengine_tests
   description NONE
   enabled TRUE
   limit users {user} to slots=1
}}
"""
SITES: dict[tuple[str, str], Callable[[Cluster], AbstractContextManager[Cluster]]] = {
    ("what no queue or node offers", "grid_engine"): lambda cluster: configured(
        cluster, "-Ap", ("-dp", "lonely"), LONELY
    ),
    ("a limit for the user", "grid_engine"): lambda cluster: configured(
        cluster,
        "-Arqs",
        ("-drqs", "gridengine_tests"),
        QUOTA.format(user=cluster.user.pw_name),
    ),
    ("a limit for the user", "slurm"): lambda cluster: limited(cluster, user="MaxJobs=1"),
    ("a limit for the account", "slurm"): lambda cluster: limited(cluster, account="GrpTRES=cpu=1"),
    ("a limit for the QOS", "slurm"): lambda cluster: limited(cluster, qos="MaxJobsPerUser=1"),
    ("more time than the partition gives", "slurm"): short_times,
}
"""How the batch system is configured meanwhile."""


def ask(cluster: Cluster, scenario: Scenario, *words: str) -> Any:
    """Return what a command says of a script's run, as JSON."""
    name, *others = words
    status, told = command(cluster, name, str(scenario.process.pid), *others, "--json")
    assert status == 0, told
    return json.loads(told)


def explained(cluster: Cluster, scenario: Scenario, cause: str, words: str = "") -> dict[str, str]:
    """Wait until `explain` tells of this cause in these words; return what it says."""
    told = ""
    # Process ids come again: no earlier run is meant.
    alone = {"XDG_STATE_HOME": str(cluster.folder / "state")}

    def look() -> dict[str, str] | None:
        nonlocal told
        pid = str(scenario.process.pid)
        status, told = command(cluster, "explain", pid, "--json", environment=alone)
        found = json.loads(told) if status == 0 else []
        return next((one for one in found if one["cause"] == cause and words in one["text"]), None)

    try:
        return dict(wait_until(look))
    except AssertionError as error:
        raise AssertionError(f"{told}\n{scenario.errors}") from error


def told_everywhere(cluster: Cluster, scenario: Scenario, told: dict[str, str]) -> None:
    """Wait until `top` and `report` tell of a cause too, with the next step: its figures change."""
    path = scenario.folder / "report.html"

    def are_told() -> bool:
        shown = ask(cluster, scenario, "top", "--once")["explanations"]
        steps = [one["next_step"] for one in shown if one["cause"] == told["cause"]]
        status, words = command(cluster, "report", str(scenario.process.pid), "-o", str(path))
        assert status == 0, words
        found = explanations_in(path.read_text())
        return bool(steps) and all(step in found for step in steps)

    wait_until(are_told)


def end(scenario: Scenario) -> None:
    scenario.go()
    scenario.process.terminate()
    scenario.end()


@pytest.mark.parametrize(
    ("cluster", "situation"),
    [
        pytest.param(name, situation, marks=getattr(pytest.mark, name))
        for situation, clusters in QUEUED.items()
        for name in clusters
    ],
    indirect=["cluster"],
)
def test_the_reason_why_a_job_is_queued_is_told(cluster: Cluster, situation: str) -> None:
    arguments, words, step = QUEUED[situation][cluster.name]
    with SITES.get((situation, cluster.name), contextlib.nullcontext)(cluster) as site:
        scenario = play(site, HOLD.format(count=3, arguments=arguments, more=""))
        try:
            told = explained(site, scenario, "queued", words)
            assert re.match(r"[23] calls wait: ", told["text"])
            assert told["place"].split(".")[0].split("_")[0] in site.jobs()
            assert step in told["next_step"]
            told_everywhere(site, scenario, told)
            launches = ask(site, scenario, "top", "--once")["status"]["launches"]
            assert sum(one["queued"] for one in launches) > 0
        finally:
            end(scenario)


REFUSED: dict[str, dict[str, tuple[str, str, str, str]]] = {
    "what no queue or node offers": {
        "grid_engine": ("parallel_environment='lonely 2'", "", "-pe lonely 2", "ask for less"),
        "slurm": ("constraint='lonely'", "", "feature specification", "sinfo --format='%N %f'"),
    },
    "more memory than any machine has": {
        "grid_engine": ("native='-l mem_total=9000G'", "", "mem_total=9000G", "ask for less"),
        "slurm": ("", ", resources=gridengine.Memory(9000)", "node configuration", "ask for less"),
    },
}
"""By its name: the scheduler's arguments on each cluster, the calls', and words of what is told and
of the next step.
"""


@pytest.mark.parametrize("situation", REFUSED)
def test_a_request_that_the_batch_system_refuses_is_told(cluster: Cluster, situation: str) -> None:
    arguments, more, words, step = REFUSED[situation][cluster.name]
    script = f"""
SCHEDULER = CLUSTER({arguments})
gridengine.map(hold, range(2), scheduler=SCHEDULER, chunksize=1, reraise=False{more})
hold(0)
"""
    with SITES.get((situation, cluster.name), contextlib.nullcontext)(cluster):
        scenario = play(cluster, script)
        try:
            told = explained(cluster, scenario, "failures", words)
            assert "refuses the job" in told["text"]
            assert step in told["next_step"]
            told_everywhere(cluster, scenario, told)
        finally:
            end(scenario)


SLOW = """#!/bin/sh
while [ ! -e "{go}" ]; do sleep 0.1; done
exec "{python}" "$@"
"""


def test_a_worker_that_takes_long_to_start_is_told(cluster: Cluster) -> None:
    """Its Python comes late, as from a home that is slow."""
    path, quick = (cluster.folder / f"{cluster.name}-{name}" for name in ("python", "quick"))
    path.write_text(SLOW.format(go=quick, python=cluster.python))
    path.chmod(0o755)
    arguments = f"max_workers=1, python={str(path)!r}"
    scenario = play(cluster, HOLD.format(count=1, arguments=arguments, more=""))
    try:
        told = explained(cluster, scenario, "starting")
        assert "has begun, and its worker has not connected yet" in told["text"]
        assert "slow file system" in told["text"]
        assert told["place"].split(".")[0].split("_")[0] in cluster.jobs()
        assert "its log is /" in told["next_step"]
        told_everywhere(cluster, scenario, told)
        quick.touch()
        scenario.began(1)
    finally:
        quick.touch()
        end(scenario)


@contextlib.contextmanager
def one_call_held(cluster: Cluster) -> Iterator[tuple[Scenario, Began]]:
    """Have one worker run one call while the block runs."""
    scenario = play(
        cluster,
        HOLD.format(count=1, arguments="max_workers=1", more=""),
        environment={**QUICK, "GRIDENGINE_BEAT_SECONDS": "0.5"},
    )
    try:
        [call] = scenario.began(1)
        explained(cluster, scenario, "running")  # it can be watched by now
        yield scenario, call
    finally:
        end(scenario)


def test_workers_whose_job_is_suspended_are_told(cluster: Cluster) -> None:
    with one_call_held(cluster) as (scenario, call):
        cluster.suspend(call)
        told = explained(cluster, scenario, "silent", "suspended, the first on ")
        assert f"(cluster job {cluster.worker_id(call)})" in told["text"]
        assert {"grid_engine": "qmod -usj", "slurm": "scontrol resume"}[cluster.name] in told[
            "next_step"
        ]
        told_everywhere(cluster, scenario, told)
        cluster.resume(call)


NO_LOGS = """
def call(index):
    Path(FOLDER, "there").touch()
    while not Path(FOLDER, "full").exists():
        time.sleep(0.02)

SCHEDULER = CLUSTER(max_workers=2)
gridengine.map(call, range(1), scheduler=SCHEDULER)
others = gridengine.Memory(0.3)
gridengine.map(abs, range(1), scheduler=SCHEDULER, resources=others, reraise=False)
hold(0)
"""


def test_workers_whose_logs_cannot_be_made_are_told(cluster: Cluster) -> None:
    with small_disk(cluster.folder / "small", owner=cluster.user.pw_uid) as small:
        scenario = play(
            cluster, NO_LOGS, environment={**QUICK, "GRIDENGINE_RUN_DIRECTORY": str(small)}
        )
        try:
            wait_until((scenario.folder / "there").exists)
            with without_more_files(small):
                (scenario.folder / "full").touch()
                told = explained(cluster, scenario, "failures", "WorkerNotStarted")
                assert "`quota`" in told["next_step"]
                explained(cluster, scenario, "disk", "no more files can be made")
                told_everywhere(cluster, scenario, told)
        finally:
            end(scenario)
