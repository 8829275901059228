"""Time limits that a Grid Engine's site sets and the script does not know of."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.scenario import nothing_is_left, play

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.clusters import GridEngine

pytestmark = pytest.mark.grid_engine
LIMIT = "00:00:40"
SHORT_LIVED = "short_lived short_lived BOOL == FORCED NO 0 0"


@contextlib.contextmanager
def short_queue(grid_engine: GridEngine, folder: Path) -> Iterator[str]:
    """Have a queue with a time limit, which only jobs get that ask for it; yield the words."""
    complexes, queue = folder / "complexes", folder / "queue"
    before = grid_engine.administer("qconf", "-sc")
    complexes.write_text(f"{before}\n{SHORT_LIVED}\n")
    text = grid_engine.administer("qconf", "-sq", "all.q")
    changes = {"qname": "short.q", "h_rt": LIMIT, "complex_values": "short_lived=TRUE"}
    for name, value in changes.items():
        text = re.sub(rf"^({name} +).*", rf"\g<1>{value}", text, flags=re.MULTILINE)
    queue.write_text(text)
    grid_engine.administer("qconf", "-Mc", str(complexes))
    told = grid_engine.administer("qconf", "-Aq", str(queue))
    assert "added" in told, told
    try:
        yield "-l short_lived"
    finally:
        grid_engine.administer("qconf", "-dq", "short.q")
        complexes.write_text(before)
        grid_engine.administer("qconf", "-Mc", str(complexes))


def test_a_call_longer_than_the_queue_lets_jobs_run_names_its_limit(
    grid_engine: GridEngine, tmp_path: Path
) -> None:
    with short_queue(grid_engine, tmp_path) as words:
        scenario = play(
            grid_engine,
            "tell(**facts_of(lambda: gridengine.map(hold, [0], retries=2, "
            f"scheduler=lambda: CLUSTER(native={words!r}, max_workers=1))))",
        )
        told = scenario.result()
        assert told["kind"] == "TimeoutError"
        assert "took longer than its worker could stay" in told["text"]
        words = f"this is a default of the site's (h_rt={LIMIT} of queue short.q@"
        assert words in told["text"]
        assert len(scenario.begun()) == 1
        nothing_is_left(grid_engine, scenario.begun())


def test_calls_go_on_in_new_jobs_where_the_site_s_default_ends_their_workers(
    grid_engine: GridEngine,
) -> None:
    """By a file of the folder that the script is started in, as well as by the site's own."""
    script = """
import os, time, gridengine

def job(index):
    time.sleep(9)
    return os.environ["JOB_ID"]

if __name__ == "__main__":
    with gridengine.GridEngineScheduler(max_workers=1) as scheduler:
        jobs = gridengine.map(job, range(6), scheduler=scheduler, retries=1, chunksize=1)
        status = scheduler.status()
    print(len(set(jobs)) > 1, status.failed, status.retried, status.lost_workers)
"""
    files = {".sge_request": f"-l h_rt={LIMIT}\n"}
    assert grid_engine.run(script, files=files, seconds=300).stdout == "True 0 0 0\n"
