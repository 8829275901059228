"""Calls that ask for resources, on a real Grid Engine: workers of their own, shared workers, and
walltime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Cluster, GridEngine

pytestmark = pytest.mark.grid_engine

LOOK = """
import os, time
import gridengine
from gridengine import Cores, GridEngineScheduler, Memory, WTime

def look(seconds=0.0):
    time.sleep(seconds)
    given = gridengine.GVAR.res
    return repr(given), sorted(os.sched_getaffinity(0)), os.environ.get("OMP_NUM_THREADS"), os.getppid()
"""


def test_a_worker_of_its_own_gives_a_call_what_it_asked_for(grid_engine: GridEngine) -> None:
    told = grid_engine.run(
        LOOK
        + """
if __name__ == "__main__":
    with GridEngineScheduler() as scheduler:
        [(given, cpus, threads, _)] = gridengine.map(look, [0.0], scheduler=scheduler, resources=Memory(0.5) & WTime(600) & Cores(1))
        print("Memory(0.5)" in given, "Cores(1, [" in given, len(cpus), threads)
"""
    )
    assert told.stdout.split() == ["True", "True", "1", "1"]


def test_requests_share_a_worker_that_holds_more(grid_engine: GridEngine) -> None:
    told = grid_engine.run(
        LOOK
        + """
if __name__ == "__main__":
    with GridEngineScheduler(max_workers=1, worker_resources=Cores(2) & Memory(1)) as scheduler:
        first = gridengine.map(look, [0.0] * 4, scheduler=scheduler, resources=Memory(0.5))
        then = gridengine.map(look, [0.0] * 4, scheduler=scheduler, resources=Cores(2))
        plain = gridengine.map(look, [0.0] * 4, scheduler=scheduler)
        try:
            gridengine.map(look, [0.0], scheduler=scheduler, resources=Cores(3))
        except gridengine.ConfigurationError as error:
            print("no worker can ever hold" in str(error))
        print(len({row[3] for row in first + then + plain}))
"""
    )
    assert told.stdout.split() == ["True", "1"]


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


MIXED = """
import os, time
import gridengine
from gridengine import Cores, Memory, Token, WTime

def look():
    given = gridengine.GVAR.res
    return sorted(type(part).__name__ for part in given), len(given.c) if given.get(Cores) else 0, os.getppid()

if __name__ == "__main__":
    kinds = [Cores(1), Cores(2), Token("licence"), WTime(60), Memory(0.25), None]
    with gridengine.SCHEDULER(max_workers=1, worker_resources=Cores(2) & Memory(1) & Token("licence")) as scheduler:
        jobs = [gridengine.Job(target=look, resources=kinds[number % len(kinds)]) for number in range(24)]
        with gridengine.JobDispatcher(scheduler) as dispatcher:
            dispatcher.dispatch(jobs)
            results = dispatcher.join()
    print(len({row[2] for row in results}), *sorted({'+'.join(row[0]) + str(row[1]) for row in results}))
"""
SITE = '[grid_engine.tokens]\nlicence = "-q all.q"\n\n[slurm.tokens]\nlicence = ""\n'


def check_mixed(cluster: Cluster) -> None:
    script = MIXED.replace("SCHEDULER", f"{type(cluster).__name__}Scheduler")
    workers, _, kinds = (
        cluster.run(script, files={"gridengine.toml": SITE}, seconds=120)
        .stdout.strip()
        .partition(" ")
    )
    assert workers == "1"
    assert kinds.split() == ["0", "Cores1", "Cores2", "Memory0", "Token0", "WTime0"]


def test_a_mixed_dispatch_is_packed_on_grid_engine(grid_engine: GridEngine) -> None:
    check_mixed(grid_engine)


def check_own_kinds_that_fail(cluster: Cluster, scheduler: str) -> None:
    """Each method of a kind that is called here for workers of their own may raise anything: only
    calls that ask for it fail.
    """
    told = cluster.run(
        """
import gridengine
from gridengine import Capacity

class Worded(Capacity):
    def _native(self, system):
        raise KeyboardInterrupt("of the words")

class Given(Capacity):
    def _alloc(self, res):
        raise SystemExit("of what is given")

if __name__ == "__main__":
    with gridengine.{scheduler}(max_workers=2) as scheduler, gridengine.Executor(scheduler) as executor:
        for kind in (Worded, Given, Given):
            error = executor.with_options(resources=kind(1)).submit(abs, -1).exception(50)
            print(type(error).__name__, "of the words" in str(error), "of what is given" in str(error))
            print(executor.submit(abs, -1).result(50))
""".replace("{scheduler}", scheduler),
        check=False,
        seconds=120,
    )
    lines = told.stdout.splitlines()
    assert lines == ["ClusterError True False", "1", *["ConfigurationError False True", "1"] * 2], (
        told.stderr
    )


def test_a_kind_of_the_users_own_that_fails_fails_its_own_calls_alone(
    grid_engine: GridEngine,
) -> None:
    check_own_kinds_that_fail(grid_engine, "GridEngineScheduler")
