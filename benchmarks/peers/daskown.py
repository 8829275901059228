"""dask's own schedulers for one machine."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
from typing import Any

import dask

from benchmarks.peers.base import Peer


class DaskProcesses(Peer):
    """The one of processes, with a pool that stays, as dask makes it by default for each graph."""

    name = "processes"

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.pool = self.make()

    def make(self) -> concurrent.futures.Executor:
        spawn = multiprocessing.get_context("spawn")
        return concurrent.futures.ProcessPoolExecutor(self.workers, spawn)

    def compute_collection(self, collection: Any) -> object:
        with dask.config.set(pool=self.pool, num_workers=self.workers):
            return collection.compute(scheduler=self.name)

    def close(self) -> None:
        self.pool.shutdown()


class DaskThreads(DaskProcesses):
    """The one of threads."""

    name = "threads"

    def make(self) -> concurrent.futures.Executor:
        return concurrent.futures.ThreadPoolExecutor(self.workers)
