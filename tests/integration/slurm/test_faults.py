"""What goes wrong on a real Slurm every day, and what must come of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.scenario import IMPATIENT, bring_up, nothing_is_left, play
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.clusters import Slurm

pytestmark = pytest.mark.slurm
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may do that to a Slurm")


# ------------------------------------------------------------------ calls


@as_root
def test_a_job_over_its_time_is_a_timeout_that_is_not_tried_again(slurm: Slurm) -> None:
    scenario = play(
        slurm,
        "tell(**facts_of(lambda: gridengine.map(hold, [0], scheduler=lambda: CLUSTER(), "
        "retries=2)))",
    )
    scenario.began(1)
    # The shortest that Slurm has, and one that the script knows nothing of: squeue tells it.
    slurm.administer("scontrol", "update", f"JobId={scenario.begun()[-1].id}", "TimeLimit=1")
    told = scenario.result(200)
    assert told["kind"] == "TimeoutError"
    assert "took longer than its worker could stay" in told["text"]
    assert "the script sets no limit, so this is a default of the site's" in told["text"]
    assert told["job"] in told["text"]
    assert len(scenario.begun()) == 1
    nothing_is_left(slurm, scenario.begun())


# ------------------------------------------------------------------ cancelled, put back, displaced


def test_work_that_is_put_back_into_the_queue_runs_again_at_no_charge(slurm: Slurm) -> None:
    scenario = play(
        slurm,
        "tell(results=gridengine.map(hold, [0], scheduler=lambda: CLUSTER(max_workers=1, "
        "requeue=True), retries=1))",
    )
    for count in (1, 2):
        scenario.began(count)
        slurm.administer("scontrol", "requeue", scenario.begun()[-1].id)
    scenario.began(3)
    scenario.go()
    assert scenario.result()["results"] == [0]
    assert len({one.job for one in scenario.begun()}) == 3
    nothing_is_left(slurm, scenario.begun())


# ------------------------------------------------------------------ workers that do not come


# ------------------------------------------------------------------ stopped, gone, restarted


@as_root
def test_the_call_of_a_node_that_dies_runs_on_another(slurm: Slurm) -> None:
    scenario = play(
        slurm,
        "tell(results=gridengine.map(hold, [0], scheduler=lambda: CLUSTER(max_workers=1), "
        "retries=1))",
        environment=IMPATIENT,
    )
    (first,) = scenario.began(1)
    node = slurm.node_of(scenario.begun()[-1])
    try:
        kill_node(node, first.pid)
        slurm.administer("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
        scenario.began(2, seconds=100)
        again = slurm.node_of(scenario.begun()[-1])
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


@contextlib.contextmanager
def changed_partition(slurm: Slurm, name: str, state: str, undo: str) -> Iterator[None]:
    slurm.administer("scontrol", "update", f"PartitionName={name}", f"State={state}")
    try:
        yield
    finally:
        slurm.administer("scontrol", "update", f"PartitionName={name}", f"State={undo}")


@as_root
def test_calls_that_wait_for_a_partition_that_is_down_are_logged_and_run_when_it_is_up(
    slurm: Slurm,
) -> None:
    with changed_partition(slurm, "side", "DOWN", "UP"):
        scenario = play(
            slurm,
            "tell(results=gridengine.map(abs, [-1], scheduler=lambda: CLUSTER(partition='side')))",
        )
        wait_until(lambda: "PartitionDown: its partition is down" in scenario.errors)
    assert scenario.result(100)["results"] == [1]
