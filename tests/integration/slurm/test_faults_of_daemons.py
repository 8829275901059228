"""What else goes wrong on a Slurm, and what must come of it: on one of each test's own, which it
may break.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.own_slurm import OwnSlurm, own_slurm
from tests.support.scenario import IMPATIENT, Began, Scenario, nothing_is_left, play
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.clusters import Slurm

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(
        os.getuid() != 0, reason="only root may start a Slurm that takes jobs of others"
    ),
]
LEASE_SECONDS = float(IMPATIENT["GRIDENGINE_LEASE_SECONDS"])


@pytest.fixture
def own(slurm: Slurm) -> Iterator[OwnSlurm]:
    with own_slurm(slurm) as found:
        yield found


def hold_alone(own: OwnSlurm, given: str = "max_workers=1", *, retries: int = 0) -> Scenario:
    """Play a script with one call that nobody may make twice at a time; with no retries, what is
    charged fails.
    """
    script = (
        f"tell(results=gridengine.map(alone, [0], scheduler=lambda: CLUSTER({given}), "
        f"retries={retries}))"
    )
    return play(own.slurm, script, environment=IMPATIENT)


def ran_again(scenario: Scenario) -> None:
    """Wait until the call runs in another job, and have it end: it never ran twice at a time."""
    first, second = scenario.began(2)
    assert not (scenario.folder / "not alone").exists()
    assert second.job != first.job
    scenario.go()
    assert scenario.result()["results"] == [0]
    assert scenario.ended() == [0]
    wait_until(lambda: not first.lives)


def wait_longer_than_a_lease() -> None:
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began > 2 * LEASE_SECONDS)


# ------------------------------------------------------------------ jobs whose place is taken,
# whose node or time is gone


def test_calls_of_a_task_requeued_as_soon_as_it_runs_are_not_charged(own: OwnSlurm) -> None:
    scenario = hold_alone(own, "max_workers=1, requeue=True", retries=1)
    (one,) = scenario.began(1)
    # At once: it may not have been seen running.
    assert own.slurm.command("scontrol", "requeue", one.id) == ""
    ran_again(scenario)
    nothing_is_left(own.slurm, scenario.begun())


def test_a_worker_that_outlives_its_node_in_slurm_s_eyes_ends_its_call_and_leaves(
    own: OwnSlurm,
) -> None:
    scenario = hold_alone(own)
    (one,) = scenario.began(1)
    node = own.slurm.node_of(one)
    own.end(node, signal.SIGKILL)
    own.slurm.administer("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    wait_until(
        lambda: (
            "NODE_FAIL" in own.slurm.command("squeue", "--noheader", "--states=all", "--format=%T")
        )
    )
    wait_longer_than_a_lease()
    scenario.go()
    assert scenario.result()["results"] == [0]
    assert len(scenario.begun()) == 1
    wait_until(lambda: not one.lives)


def test_a_call_that_fails_with_its_node_repeatedly_says_so(own: OwnSlurm) -> None:
    scenario = play(
        own.slurm,
        "tell(**facts_of(lambda: gridengine.map(hold, [0], scheduler=lambda: CLUSTER(), "
        "retries=0)))",
    )
    (one,) = scenario.began(1)
    own.slurm.administer(
        "scontrol", "update", f"NodeName={own.slurm.node_of(one)}", "State=DOWN", "Reason=test"
    )
    told = scenario.result()
    assert told["kind"] == "WorkerLost"
    assert "its node failed (NODE_FAIL)" in told["text"]
    assert told["job"] == one.id


# ------------------------------------------------------------------ jobs that do not start


def test_calls_that_wait_for_a_held_job_are_logged_and_run_when_it_is_released(
    own: OwnSlurm,
) -> None:
    scenario = play(
        own.slurm, "tell(results=gridengine.map(abs, [-1], scheduler=lambda: CLUSTER(hold=True)))"
    )
    wait_until(lambda: "JobHeldUser: it is held" in scenario.errors)
    for job in set(own.slurm.command("squeue", "--noheader", "--format=%F").split()):
        own.slurm.command("scontrol", "release", job)
    assert scenario.result()["results"] == [1]


def test_workers_that_hang_before_they_connect_are_given_up_and_leave_nothing(
    own: OwnSlurm,
) -> None:
    scenario = play(
        own.slurm,
        """
scheduler = lambda: CLUSTER(prologue=["echo asking for a licence", "sleep 6007"], max_workers=1)
tell(**facts_of(lambda: gridengine.map(abs, [1], scheduler=scheduler)))
""",
        environment={**IMPATIENT, "GRIDENGINE_START_SECONDS": "2"},
    )
    told = scenario.result(80)
    assert told["kind"] == "WorkerNotStarted"
    assert "ran, but its worker never connected" in told["text"]
    wait_until(lambda: not is_anything_queued(own))
    wait_until(
        lambda: (
            not [
                one
                for one in psutil.process_iter(["cmdline"])
                if one.info["cmdline"] == ["sleep", "6007"]
            ]
        )
    )


@pytest.fixture
def crowded(slurm: Slurm) -> Iterator[OwnSlurm]:
    with own_slurm(slurm, MaxJobCount=6) as found:
        yield found


def test_a_site_that_takes_few_jobs_at_a_time_gets_few_at_a_time(crowded: OwnSlurm) -> None:
    scenario = play(
        crowded.slurm,
        "tell(results=gridengine.map(hold, range(20), scheduler=lambda: CLUSTER(max_workers=20), "
        "chunksize=1))",
    )
    scenario.began(2, seconds=100)
    scenario.go()
    assert scenario.result(120)["results"] == list(range(20))


# ------------------------------------------------------------------ Slurm itself is away


def test_without_slurmctld_a_submission_is_an_error_and_the_next_runs_when_it_is_back(
    own: OwnSlurm,
) -> None:
    own.end("slurmctld")
    scenario = play(
        own.slurm,
        """
tell(**facts_of(lambda: gridengine.map(abs, [-1], scheduler=lambda: CLUSTER())))
while not Path("back").exists():
    time.sleep(0.02)
tell(results=gridengine.map(abs, [-1], scheduler=lambda: CLUSTER()))
""",
    )
    told = wait_until(scenario.told)
    assert told["kind"] == "SchedulerUnavailable"
    assert "Unable to contact slurm controller" in told["text"]
    assert "scontrol ping" in told["hint"]
    own.begin("slurmctld")
    (scenario.folder / "back").touch()
    assert scenario.result()["results"] == [1]


def test_a_run_outlives_a_crash_of_slurmctld_and_lost_calls_run_again(
    own: OwnSlurm,
) -> None:
    script = (
        "tell(results=gridengine.map(hold, range(2), scheduler=lambda: "
        "CLUSTER(max_workers=2), chunksize=1))"
    )
    scenario = play(own.slurm, script, environment=IMPATIENT)
    first = scenario.began(2)
    own.end("slurmctld", signal.SIGKILL)
    wait_longer_than_a_lease()
    assert len(scenario.begun()) == 2
    assert all(one.lives for one in first)
    lost, left = first
    agent(lost).kill()
    wait_until(lambda: "cannot be reached" in scenario.errors)
    own.begin("slurmctld")
    scenario.began(2, index=lost.index)
    own.slurm.command("scancel", left.id)
    scenario.began(2, index=left.index)
    scenario.go()
    assert scenario.result()["results"] == [0, 1]
    assert scenario.ended() == [0, 1]


def test_a_slurmctld_that_hangs_holds_up_no_result(own: OwnSlurm) -> None:
    scenario = hold_alone(own)
    (one,) = scenario.began(1)
    own.send("slurmctld", signal.SIGSTOP)
    scenario.go()
    assert scenario.result(120)["results"] == [0]
    own.send("slurmctld", signal.SIGCONT)
    nothing_is_left(own.slurm, [one])


def test_when_the_dispatcher_is_killed_while_slurmctld_is_away_nothing_is_left_when_it_is_back(
    own: OwnSlurm,
) -> None:
    script = (
        "gridengine.map(hold, range(12), scheduler=lambda: CLUSTER(max_workers=12), chunksize=1)"
    )
    scenario = play(own.slurm, script, environment=IMPATIENT)
    begun = scenario.began(8)
    own.end("slurmctld")
    scenario.process.kill()
    wait_until(lambda: not any(one.lives for one in begun))
    own.begin("slurmctld")
    wait_until(lambda: not is_anything_queued(own))
    assert len(scenario.begun()) == 8


def is_anything_queued(own: OwnSlurm) -> bool:
    return bool(own.slurm.command("squeue", "--noheader").strip())


def agent(one: Began) -> psutil.Process:
    """Return the worker's own process: the one of its job that has this module on its command
    line.
    """
    for process in psutil.Process(one.pid).parents():
        if "gridengine.worker" in process.cmdline():
            return process
    raise AssertionError("its worker is gone")


# ------------------------------------------------------------------ the end of a job, of the user's
# process


STRAY = """
def leave(index, folder=str(FOLDER)):
    import subprocess
    stray = subprocess.Popen(["sleep", "600"], start_new_session=True)
    Path(folder, f"stray {stray.pid}").touch()
    return hold(index, folder)

gridengine.map(leave, [0], scheduler=lambda: CLUSTER(), retries=0)
"""


@pytest.mark.parametrize(
    "act", ["the job is cancelled", "the dispatcher is killed", "its agent is killed"]
)
def test_processes_unknown_to_slurm_end_with_their_calls(own: OwnSlurm, act: str) -> None:
    scenario = play(own.slurm, STRAY, environment=IMPATIENT)
    (one,) = scenario.began(1)
    (stray,) = scenario.folder.glob("stray *")
    if act == "the job is cancelled":
        own.slurm.command("scancel", one.job)
    elif act == "the dispatcher is killed":
        scenario.process.kill()
    else:
        agent(one).kill()
    nothing_is_left(own.slurm, [one])
    wait_until(lambda: not psutil.pid_exists(int(stray.name.split()[1])))
