"""What goes wrong on a real Grid Engine every day, and what must come of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.support.scenario import changed_queue, play
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.clusters import GridEngine

pytestmark = pytest.mark.grid_engine
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may do that to a Grid Engine")


# ------------------------------------------------------------------ calls


def test_a_call_that_gets_no_more_memory_is_out_of_memory_and_says_the_limit(
    grid_engine: GridEngine,
) -> None:
    told = play(
        grid_engine,
        """
scheduler = GridEngineScheduler(h_vmem="1500M")
tell(**facts_of(
    lambda: gridengine.map(bytearray, [4_000_000_000], scheduler=scheduler, retries=0)
))
""",
    ).result()
    assert told["kind"] == "OutOfMemory"
    assert "its limit was 1.46 GB" in told["text"]
    assert told["job"] in told["text"]


def test_a_job_over_its_memory_is_out_of_memory_and_says_the_limit(grid_engine: GridEngine) -> None:
    told = play(
        grid_engine,
        """
def fill(x, folder=str(FOLDER)):
    kept = []
    # Each process may have that much; Grid Engine ends a job whose processes have it together.
    try:
        while True:
            kept.append(bytearray(20_000_000))
    except MemoryError:
        hold(x, folder)

scheduler = GridEngineScheduler(h_vmem="1500M")
tell(**facts_of(lambda: gridengine.map(fill, [1], scheduler=scheduler, retries=1)))
""",
    ).result()
    assert told["kind"] == "OutOfMemory"
    assert "h_vmem=1500M" in told["text"]
    assert len(told["attempts"]) == 2
    assert told["job"] in told["text"]


def test_a_job_over_its_time_is_a_timeout_that_is_not_tried_again(grid_engine: GridEngine) -> None:
    scenario = play(
        grid_engine,
        """
scheduler = GridEngineScheduler(h_rt=15)
tell(**facts_of(lambda: gridengine.map(hold, [0], scheduler=scheduler, retries=2)))
""",
    )
    told = scenario.result()
    assert told["kind"] == "TimeoutError"
    assert "took longer than its worker could stay" in told["text"]
    assert told["job"] in told["text"]
    assert len(scenario.begun()) == 1


# ------------------------------------------------------------------ workers that do not come


@as_root
def test_calls_that_wait_for_a_disabled_queue_are_logged_and_run_when_it_is_enabled(
    grid_engine: GridEngine,
) -> None:
    scenario = play(
        grid_engine,
        "tell(results=gridengine.map(abs, [-1], scheduler=lambda: "
        "GridEngineScheduler(queue='closed.q')))",
    )
    wait_until(lambda: 'queue instance "closed.q@' in scenario.errors)
    assert "disabled" in scenario.errors
    with changed_queue(grid_engine, "-e", "-d", "closed.q"):
        assert scenario.result()["results"] == [1]
