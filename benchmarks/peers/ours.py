"""This package."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import gridengine
from benchmarks.peers.base import Absent, Call, Graph, Peer


class Ours(Peer):
    """`gridengine.map` and `gridengine.Executor`, which share the scheduler's workers."""

    module = "gridengine"

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.scheduler = self.make_scheduler()

    def make_scheduler(self) -> gridengine.schedulers.Scheduler:
        return gridengine.ProcessScheduler(max_workers=self.workers)

    @functools.cached_property
    def executor(self) -> gridengine.Executor:
        return gridengine.Executor(scheduler=self.scheduler)

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        return gridengine.map(f, xs, scheduler=self.scheduler, progress=False)

    def submit(self, f: Call, x: object) -> object:
        return self.executor.submit(f, x)

    def awaitable(self, f: Call, x: object) -> Awaitable[object]:
        return self.executor.submit(f, x)

    def map_shared(self, f: Call, big: object, xs: Sequence[object]) -> list[object]:
        if not hasattr(gridengine, "share"):
            raise Absent("not yet: no gridengine.share")
        return self.map(functools.partial(f, gridengine.share(big)), xs)

    def compute(self, graph: Graph, key: str) -> object:
        [future] = self.executor.submit_graph(graph, [key])
        return future.result()

    def compute_collection(self, collection: Any) -> object:
        return collection.compute(
            scheduler=functools.partial(gridengine.dask_get, scheduler=self.scheduler),
            resources=gridengine.Cores(1),  # one thread for each, as the others have
        )

    def close(self) -> None:
        if "executor" in vars(self):
            self.executor.shutdown()
        self.scheduler.close()


class OurGraphOfCalls(Ours):
    """Graphs each of whose calls is made by itself."""

    def compute(self, graph: Graph, key: str) -> object:
        [future] = self.executor.submit_graph(graph, [key], fuse=False)
        return future.result()


class OurExecutor(Ours):
    """`gridengine.Executor.map`."""

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        return list(self.executor.map(f, xs))


class OurNamedRun(Ours):
    """`gridengine.map` with a name, whose results are kept in `file`."""

    file = Path("run.sqlite")

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        place, file = self.scheduler, self.file
        return gridengine.map(f, xs, scheduler=place, progress=False, name="run", journal=file)


class OurPool(Peer):
    """`gridengine.Pool`."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.scheduler = gridengine.ProcessScheduler(max_workers=workers)
        self.pool = gridengine.Pool(scheduler=self.scheduler)

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        return self.pool.map(f, xs)

    def submit(self, f: Call, x: object) -> object:
        return self.pool.apply_async(f, (x,))

    def gather(self, handles: Sequence[object]) -> list[object]:
        return [handle.get() for handle in handles]  # type: ignore[attr-defined]

    def close(self) -> None:
        self.pool.terminate()
        self.scheduler.close()


class OnGridEngine(Ours):
    """`gridengine.map` on a Grid Engine."""

    def make_scheduler(self) -> gridengine.schedulers.Scheduler:
        return gridengine.GridEngineScheduler(max_workers=self.workers)


class OnHTCondor(Ours):
    """`gridengine.map` on an HTCondor."""

    def make_scheduler(self) -> gridengine.schedulers.Scheduler:
        return gridengine.HTCondorScheduler(max_workers=self.workers)


class OnOAR(Ours):
    """`gridengine.map` on an OAR."""

    def make_scheduler(self) -> gridengine.schedulers.Scheduler:
        return gridengine.OARScheduler(max_workers=self.workers)


class OnSlurm(Ours):
    """`gridengine.map` on a Slurm, where a job that does not say how much memory it needs has all
    of a node's.
    """

    def make_scheduler(self) -> gridengine.schedulers.Scheduler:
        return gridengine.SlurmScheduler(max_workers=self.workers, mem="500M")
