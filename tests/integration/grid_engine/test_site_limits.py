"""Time limits that a Grid Engine's site sets and the script does not know of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.clusters import GridEngine

pytestmark = pytest.mark.grid_engine
LIMIT = "00:00:40"


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
