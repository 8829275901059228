"""What goes wrong on a real Slurm every day, and what must come of it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.scenario import (
    ENDS,
    HOLD_FOUR,
    IMPATIENT,
    QUICK,
    Scenario,
    bring_up,
    call_home_never,
    interrupt,
    nothing_is_left,
    play,
    play_to_the_end,
    stop_daemon,
    until,
)

if TYPE_CHECKING:
    from tests.conftest import Slurm

pytestmark = pytest.mark.slurm
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may do that to a Slurm")


def id_of(scenario: Scenario, index: int | None = None) -> str:
    one = scenario.begun(index)[-1]
    return one.id


def jobs(slurm: Slurm) -> set[str]:
    """Return the numbers of the jobs that wait or run."""
    return set(
        slurm.command("squeue", "--noheader", "--user", slurm.user.pw_name, "--format=%F").split()
    )


# ------------------------------------------------------------------ calls


def test_a_call_that_crashes_is_tried_again_and_then_names_how(slurm: Slurm) -> None:
    told = play(
        slurm,
        """
def die(how):
    if how == 9:
        os.kill(os.getpid(), 9)
        time.sleep(60)
    return how

results = gridengine.map(die, [1, 9, 2], scheduler=lambda: CLUSTER(max_workers=2), retries=1, reraise=False)
tell(good=[results[0], results[2]], **facts(results[1]))
""",
    ).result()
    assert told["good"] == [1, 2]
    assert told["kind"] == "WorkerCrashed"
    assert "SIGKILL" in told["text"]
    assert len(told["attempts"]) == 2
    assert told["job"] in told["text"]
    assert told["log"] in told["text"]


@as_root
@pytest.mark.timeout(300)
def test_a_job_over_its_time_is_a_timeout_that_is_not_tried_again(slurm: Slurm) -> None:
    scenario = play(
        slurm,
        "tell(**facts_of(lambda: gridengine.map(hold, [0], scheduler=lambda: CLUSTER(), "
        "retries=2)))",
    )
    scenario.began(1)
    # The shortest that Slurm has, and one that the scheduler knows nothing of: its workers would
    # leave in time.
    slurm.administer("scontrol", "update", f"JobId={id_of(scenario)}", "TimeLimit=1")
    told = scenario.result(200)
    assert told["kind"] == "TimeoutError"
    assert "it reached its time limit (TIMEOUT)" in told["text"]
    assert told["job"] in told["text"]
    assert len(scenario.begun()) == 1
    assert not scenario.begun()[0].lives


# ------------------------------------------------------------------ cancelled, put back, displaced


def test_calls_of_cancelled_tasks_and_arrays_run_again_in_new_ones_whoever_cancelled_them(
    slurm: Slurm,
) -> None:
    scenario = play(slurm, HOLD_FOUR, environment={**QUICK, "GRIDENGINE_SLURM_SRUN": "no"})
    one = scenario.began(4)[0]
    slurm.command("scancel", one.id)
    scenario.began(2, index=one.index)
    assert len(scenario.begun()) == 5
    slurm.administer("scancel", one.job)
    for index in range(4):
        scenario.began(2, index=index)
    scenario.go()
    assert scenario.result()["results"] == [0, 1, 2, 3]
    assert one.job not in {scenario.begun(index)[-1].job for index in range(4)}
    assert len(scenario.begun()) == 8
    assert scenario.ended() == [0, 1, 2, 3]


def test_who_cancels_a_job_again_and_again_is_obeyed_after_as_many_retries(slurm: Slurm) -> None:
    scenario = play(
        slurm,
        "tell(**facts_of(lambda: gridengine.map(hold, [0], scheduler=lambda: "
        "CLUSTER(max_workers=4), retries=2)))",
    )
    for count in (1, 2, 3):
        slurm.command("scancel", scenario.began(count)[-1].job)
    told = scenario.result()
    assert told["kind"] == "JobDeleted"
    assert len(told["attempts"]) == len(scenario.begun()) == 3
    assert "it was cancelled (CANCELLED)" in told["text"]
    assert told["job"] == id_of(scenario)


def test_who_cancels_waiting_jobs_again_and_again_is_obeyed_after_as_many_retries(
    slurm: Slurm,
) -> None:
    scenario = play(
        slurm,
        "tell(**facts_of(lambda: gridengine.map(hold, range(8), scheduler=lambda: "
        "CLUSTER(partition='closed'))))",
    )
    seen = set[str]()
    while scenario.process.poll() is None:
        listing = slurm.command("squeue", "--noheader", "--format=%F %j %P").splitlines()
        new = {line.split()[0] for line in listing if f"-{scenario.process.pid}-" in line} - seen
        if new:
            seen |= new
            slurm.command("scancel", *new)
        time.sleep(0.1)
    told = scenario.result()
    assert told["kind"] == "JobDeleted"
    assert len(seen) == 3


def test_work_that_is_put_back_into_the_queue_runs_again_at_no_charge(slurm: Slurm) -> None:
    scenario = play(
        slurm,
        "tell(results=gridengine.map(hold, [0], scheduler=lambda: CLUSTER(max_workers=1, "
        "requeue=True), retries=0))",
    )
    for count in (1, 2):
        scenario.began(count)
        slurm.administer("scontrol", "requeue", id_of(scenario))
    scenario.began(3)
    scenario.go()
    assert scenario.result()["results"] == [0]
    assert len({one.job for one in scenario.begun()}) == 3
    nothing_is_left(slurm, scenario.begun())


def test_work_whose_place_is_taken_by_another_job_runs_again_at_no_charge(slurm: Slurm) -> None:
    scenario = play(
        slurm,
        "tell(results=gridengine.map(hold, [0], scheduler=lambda: CLUSTER(partition='low', "
        "mem='6000M', max_workers=1), retries=0))",
    )
    (first,) = scenario.began(1)
    node = slurm.command("squeue", "--noheader", f"--jobs={id_of(scenario)}", "--format=%N").strip()
    options = [
        "--parsable",
        "--partition=high",
        "--mem=6000M",
        f"--nodelist={node}",
        "--output=/dev/null",
        "--chdir=/",
    ]
    other = slurm.command("sbatch", *options, "--wrap=sleep 60").strip()
    scenario.began(2)
    slurm.command("scancel", other)
    scenario.go()
    assert scenario.result()["results"] == [0]
    assert not first.lives


# ------------------------------------------------------------------ workers that do not come


@pytest.mark.timeout(200)
def test_workers_that_never_call_home_are_an_error_with_the_reason(slurm: Slurm) -> None:
    told = call_home_never(slurm, "log folder")
    assert {case: error["kind"] for case, error in told.items()} == dict.fromkeys(
        told, "WorkerNotStarted"
    )
    words = {
        "interpreter": "/nosuch/python: No such file or directory",
        "prologue": "modules are gone",
        "log folder": "its log file could not be opened",
    }
    assert told.keys() == words.keys()
    for case, error in told.items():
        assert words[case] in error["text"]
        assert error["job"] in error["text"]
        assert error["log"] in error["text"]


@contextlib.contextmanager
def changed_partition(slurm: Slurm, name: str, state: str, undo: str) -> Iterator[None]:
    slurm.administer("scontrol", "update", f"PartitionName={name}", f"State={state}")
    try:
        yield
    finally:
        slurm.administer("scontrol", "update", f"PartitionName={name}", f"State={undo}")


@as_root
def test_who_waits_for_a_partition_that_is_down_is_told_so_and_gets_there_when_it_is_up(
    slurm: Slurm,
) -> None:
    with changed_partition(slurm, "side", "DOWN", "UP"):
        scenario = play(
            slurm,
            "tell(results=gridengine.map(abs, [-1], scheduler=lambda: CLUSTER(partition='side')))",
        )
        until(lambda: "waiting for" in scenario.errors)
        assert "PartitionDown: its partition is down" in scenario.errors
    assert scenario.result(100)["results"] == [1]


# ------------------------------------------------------------------ stopped, gone, restarted


@as_root
def test_a_suspended_job_is_waited_for_longer_than_a_lease_and_goes_on(slurm: Slurm) -> None:
    scenario = play(
        slurm,
        "tell(results=gridengine.map(hold, [0], scheduler=CLUSTER(max_workers=2)))",
        environment=IMPATIENT,
    )
    scenario.began(1)
    slurm.administer("scontrol", "suspend", id_of(scenario))
    until(
        lambda: (
            " S "
            in slurm.command(
                "squeue", "--noheader", f"--jobs={id_of(scenario)}", "--format=%i %t %j"
            )
        )
    )
    stopped = time.monotonic()
    until(lambda: time.monotonic() - stopped > 2 * float(IMPATIENT["GRIDENGINE_LEASE_SECONDS"]))
    scenario.go()
    slurm.administer("scontrol", "resume", id_of(scenario))
    assert scenario.result()["results"] == [0]
    assert len(scenario.begun()) == 1


@as_root
@pytest.mark.timeout(300)
def test_the_call_of_a_node_that_dies_runs_on_another(slurm: Slurm) -> None:
    scenario = play(
        slurm,
        "tell(results=gridengine.map(hold, [0], scheduler=lambda: CLUSTER(max_workers=1), "
        "retries=1))",
        environment=IMPATIENT,
    )
    (first,) = scenario.began(1)
    node = slurm.command("squeue", "--noheader", f"--jobs={id_of(scenario)}", "--format=%N").strip()
    try:
        kill_node(node, first.pid)
        slurm.administer("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
        scenario.began(2, seconds=100)
        again = slurm.command(
            "squeue", "--noheader", f"--jobs={id_of(scenario)}", "--format=%N"
        ).strip()
        scenario.go()
        assert scenario.result()["results"] == [0]
    finally:
        bring_up("slurm")
    assert {node, again} == {"n1", "n2"}


def kill_node(name: str, call: int) -> None:
    """Have all die at once that runs on a node, as far as this call is concerned: the daemon, the
    step, the worker and its runners.
    """
    daemon = psutil.Process(int(Path(f"/run/slurm/slurmd-{name}.pid").read_text()))
    above = psutil.Process(call).parents()
    step = next(number for number, one in enumerate(above) if one.name().startswith("slurmstepd"))
    for one in [daemon, *reversed(above[: step + 1]), psutil.Process(call)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()


@as_root
@pytest.mark.timeout(300)
@pytest.mark.parametrize("daemon", ["slurmctld", "slurmd-n1"])
def test_a_run_outlives_a_restart_of_a_daemon_and_later_cancellations_are_seen(
    slurm: Slurm, daemon: str
) -> None:
    scenario = play(
        slurm,
        "tell(results=gridengine.map(hold, range(2), scheduler=lambda: CLUSTER(max_workers=2, "
        "nodelist='n1'), chunksize=1))",
        environment=IMPATIENT,
    )
    first = scenario.began(2)
    try:
        stop_daemon(daemon)
        stopped = time.monotonic()
        until(lambda: time.monotonic() - stopped > float(IMPATIENT["GRIDENGINE_LEASE_SECONDS"]))
    finally:
        bring_up("slurm")
    assert len(scenario.begun()) == 2
    assert all(one.lives for one in first)
    slurm.command("scancel", first[0].id)
    scenario.began(2, index=first[0].index, seconds=100)
    scenario.go()
    assert scenario.result()["results"] == [0, 1]
    assert scenario.ended() == [0, 1]


# ------------------------------------------------------------------ the end of the user's process


def test_when_the_dispatcher_is_killed_its_jobs_are_cancelled_and_its_workers_leave(
    slurm: Slurm,
) -> None:
    scenario = play(slurm, HOLD_FOUR)
    begun = scenario.began(4)
    scenario.process.kill()
    nothing_is_left(slurm, begun)


def test_when_all_of_the_user_s_processes_are_killed_the_workers_leave_with_their_lease(
    slurm: Slurm,
) -> None:
    scenario = play(slurm, HOLD_FOUR, environment=IMPATIENT)
    begun = scenario.began(4)
    mine = psutil.Process(scenario.process.pid)
    for process in [*mine.children(recursive=True), mine]:
        process.send_signal(signal.SIGKILL)
    nothing_is_left(slurm, begun)


@pytest.mark.parametrize("end", ENDS)
def test_nothing_is_left_in_the_cluster_at_the_end_by(slurm: Slurm, end: str) -> None:
    begun, ended = play_to_the_end(slurm, end)
    nothing_is_left(slurm, begun, seconds=15)
    assert ended == []


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_at_the_terminal_ends_the_cluster_s_tasks_and_reaches_the_user(
    slurm: Slurm, presses: int
) -> None:
    begun, ended = interrupt(slurm, presses)
    nothing_is_left(slurm, begun, seconds=15)
    assert ended == []
