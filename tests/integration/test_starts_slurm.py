"""How workers come to run on a real Slurm: at once, later, or never."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.integration.own_slurm import own_slurm
from tests.integration.scenario import play, until

if TYPE_CHECKING:
    from tests.conftest import Slurm

pytestmark = pytest.mark.slurm
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may do that to a Slurm")


# ------------------------------------------------------------------ never, or not in time


@pytest.mark.parametrize(
    ("given", "asked", "words"),
    [
        ("", "Cores(500)", [": it asks for more than its partition gives", "--cpus-per-task=500", "try: ask for less"]),
        ("nodes=5", "None", [": it asks for more than its partition gives", "--nodes=5"]),
        ("worker_resources=Cores(500)", "None", [": it asks for more than its partition gives", "--cpus-per-task=500"]),
    ],
)
def test_what_no_worker_can_ever_hold_is_an_error_with_slurm_s_reason(slurm: Slurm, given: str, asked: str, words: list[str]) -> None:
    told = play(
        slurm,
        f"""
from gridengine.resources import Cores
with CLUSTER({given}) as scheduler:
    said = facts_of(lambda: gridengine.map(abs, [1], scheduler=scheduler, resources={asked}))
    good = gridengine.map(abs, [-1], scheduler=scheduler) if {asked} else None
tell(good=good, **said)
""",
    ).result()
    assert told["kind"] == "SubmissionRefused"
    assert [word for word in words if word not in told["text"]] == []
    assert "strict=False" in told["hint"]
    assert told["good"] in ([1], None)


@as_root
def test_a_time_that_the_partition_does_not_give_is_an_error_and_with_strict_false_waits(slurm: Slurm) -> None:
    with own_slurm(slurm) as own:
        own.slurm.administer("scontrol", "update", "PartitionName=side", "MaxTime=10")
        given = "partition='side', time='1:00:00'"
        told = play(own.slurm, f"tell(**facts_of(lambda: gridengine.map(abs, [1], scheduler=lambda: CLUSTER({given}))))").result()
        assert told["kind"] == "SubmissionRefused"
        assert ": it asks for more than its partition gives" in told["text"]

        script = f"tell(results=gridengine.map(abs, [-1], scheduler=lambda: CLUSTER({given}, strict=False)))"
        scenario = play(own.slurm, script)
        until(lambda: "waiting for" in scenario.errors)
        assert ": it asks for more than its partition gives" in scenario.errors
        own.slurm.administer("scontrol", "update", "PartitionName=side", "MaxTime=INFINITE")
        assert scenario.result(100)["results"] == [1]


def test_calls_that_wait_longer_than_start_timeout_fail_with_slurm_s_reason_and_nothing_is_left(slurm: Slurm) -> None:
    scenario = play(
        slurm, "tell(**facts_of(lambda: gridengine.map(abs, [1], scheduler=lambda: CLUSTER(partition='closed', start_timeout=4))))"
    )
    told = scenario.result()
    assert told["kind"] == "WorkerNotStarted"
    assert "no worker has started within 4 s (start_timeout): PartitionDown: its partition is down" in told["text"]
    assert not slurm.knows(told["job"].partition("_")[0])


def test_a_start_timeout_in_the_settings_holds_too_and_calls_that_have_a_worker_have_all_their_time(slurm: Slurm) -> None:
    script = """
import time
def slow(seconds):
    time.sleep(seconds)
    return seconds
with CLUSTER(max_workers=1) as scheduler:
    good = gridengine.map(slow, [6, 6], scheduler=scheduler, chunksize=1)
    tell(good=good, **facts_of(lambda: gridengine.map(abs, [1], scheduler=lambda: CLUSTER(partition='closed'))))
"""
    told = play(slurm, script, environment={"GRIDENGINE_START_TIMEOUT": "5"}).result()
    assert told["good"] == [6, 6]
    assert told["kind"] == "WorkerNotStarted"
