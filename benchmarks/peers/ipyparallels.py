"""ipyparallel."""

from __future__ import annotations

from collections.abc import Sequence

import ipyparallel

from benchmarks.peers.base import Call, Peer


class Ipyparallel(Peer):
    """A cluster of engines on this machine, with calls balanced among them."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.cluster = ipyparallel.Cluster(n=workers, log_level=40)
        self.client = self.cluster.start_and_connect_sync()
        self.view = self.client.load_balanced_view()

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        return list(self.view.map_sync(f, xs))

    def submit(self, f: Call, x: object) -> object:
        return self.view.apply_async(f, x)

    def gather(self, handles: Sequence[object]) -> list[object]:
        return [handle.get() for handle in handles]  # type: ignore[attr-defined]

    def close(self) -> None:
        self.client.close()
        self.cluster.stop_cluster_sync()
