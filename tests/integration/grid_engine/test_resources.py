"""Walltime on a real Grid Engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.clusters import GridEngine

pytestmark = pytest.mark.grid_engine

LOOK = """
import os, time
import gridengine
from gridengine import Cores, GridEngineScheduler, Memory, WTime

def look(seconds=0.0):
    time.sleep(seconds)
    given = repr(gridengine.GVAR.res)
    cpus = sorted(os.sched_getaffinity(0))
    return given, cpus, os.environ.get("OMP_NUM_THREADS"), os.getppid()
"""


def test_a_worker_leaves_before_grid_engine_ends_it_and_no_call_is_charged(
    grid_engine: GridEngine,
) -> None:
    told = grid_engine.run(
        LOOK
        + """
if __name__ == "__main__":
    with GridEngineScheduler(max_workers=1, h_rt="00:00:20") as scheduler:
        seen = gridengine.map(look, [4.0] * 6, scheduler=scheduler, retries=0)
        print(len(seen), len({row[3] for row in seen}) > 1)
"""
    )
    assert told.stdout.split() == ["6", "True"]
