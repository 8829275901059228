"""dask.distributed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distributed import Client, LocalCluster, Security

from benchmarks.peers.base import Call, Graph, Peer


class Dask(Peer):
    """A cluster of processes with one thread each, and no dashboard."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.cluster = self.make()
        self.client = Client(self.cluster)

    def make(self, **options: Any) -> LocalCluster:
        return LocalCluster(
            n_workers=self.workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            **options,
        )

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        return list(self.client.gather(self.client.map(f, xs, pure=False)))

    def submit(self, f: Call, x: object) -> object:
        return self.client.submit(f, x, pure=False)

    def gather(self, handles: Sequence[object]) -> list[object]:
        return list(self.client.gather(handles))

    def map_shared(self, f: Call, big: object, xs: Sequence[object]) -> list[object]:
        there = self.client.scatter(big, broadcast=True)
        return self.gather([self.client.submit(f, there, x, pure=False) for x in xs])

    def compute(self, graph: Graph, key: str) -> object:
        return self.client.get(graph, key)

    def compute_collection(self, collection: Any) -> object:
        return collection.compute(scheduler=self.client)

    def close(self) -> None:
        self.client.close()
        self.cluster.close()


class DaskOfTen(Dask):
    """The same with ten workers."""

    def __init__(self, workers: int) -> None:
        super().__init__(10)


class DaskEncrypted(Dask):
    """The same over TLS, with keys of its own."""

    def make(self, **options: Any) -> LocalCluster:
        return super().make(protocol="tls", security=Security.temporary(), **options)


class DaskOfThreads(Dask):
    """Five hundred workers that are threads of one process: as many processes would not fit."""

    def make(self, **options: Any) -> LocalCluster:
        return LocalCluster(
            n_workers=500, threads_per_worker=1, processes=False, dashboard_address=None, **options
        )
