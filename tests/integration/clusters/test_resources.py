"""Calls that ask for resources, on a batch system."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

MIXED = """
import os, time
import gridengine
from gridengine import Cores, Memory, Token, WTime

def look():
    given = gridengine.GVAR.res
    names = sorted(type(part).__name__ for part in given)
    return names, len(given.c) if given.get(Cores) else 0, os.getppid()

if __name__ == "__main__":
    kinds = [Cores(1), Cores(2), Token("licence"), WTime(60), Memory(0.25), None]
    held = Cores(2) & Memory(1) & Token("licence")
    with gridengine.SCHEDULER(max_workers=1, worker_resources=held) as scheduler:
        jobs = [gridengine.Job(target=look, resources=kinds[i % len(kinds)]) for i in range(24)]
        with gridengine.JobDispatcher(scheduler) as dispatcher:
            dispatcher.dispatch(jobs)
            results = dispatcher.join()
    given = {"+".join(names) + str(cores) for names, cores, _ in results}
    print(len({worker for _, _, worker in results}), *sorted(given))
"""
SITE = '[grid_engine.tokens]\nlicence = "-q all.q"\n\n[slurm.tokens]\nlicence = ""\n'
OF_ONE_S_OWN = """
import gridengine
from gridengine import Capacity

class Worded(Capacity):
    def _native(self, system):
        raise KeyboardInterrupt("of the words")

class Given(Capacity):
    def _alloc(self, res):
        raise SystemExit("of what is given")

if __name__ == "__main__":
    with (
        gridengine.SCHEDULER(max_workers=2) as scheduler,
        gridengine.Executor(scheduler=scheduler) as executor,
    ):
        for kind in (Worded, Given, Given):
            asking = executor.with_options(resources=kind(1))
            error = asking.submit(abs, -1).exception(120)
            words = [said in str(error) for said in ("of the words", "of what is given")]
            print(type(error).__name__, *words)
            print(executor.submit(abs, -1).result(120))
"""


def on(cluster: Cluster, script: str) -> str:
    return script.replace("SCHEDULER", cluster.scheduler)


def test_a_mixed_dispatch_is_packed(cluster: Cluster) -> None:
    done = cluster.run(on(cluster, MIXED), files={"gridengine.toml": SITE}, seconds=120)
    workers, *kinds = done.stdout.split()
    assert workers == "1"
    assert kinds == ["0", "Cores1", "Cores2", "Memory0", "Token0", "WTime0"]


def test_a_kind_of_the_users_own_that_fails_fails_its_own_calls_alone(cluster: Cluster) -> None:
    """Each method of a kind that is called here for workers of their own may raise anything: only
    calls that ask for it fail.
    """
    told = cluster.run(on(cluster, OF_ONE_S_OWN), check=False, seconds=120)
    lines = told.stdout.splitlines()
    assert lines == ["ClusterError True False", "1", *["ConfigurationError False True", "1"] * 2], (
        told.stderr
    )
