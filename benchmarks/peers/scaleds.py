"""scaled."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from scaled.client import Client
from scaled.cluster.combo import SchedulerClusterCombo

from benchmarks.peers.base import Call, Graph, Peer


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Scaled(Peer):
    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        address = f"tcp://127.0.0.1:{free_port()}"
        self.combo = SchedulerClusterCombo(address, workers)
        self.client = Client(address)

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        return self.gather([self.client.submit(f, x) for x in xs])

    def submit(self, f: Call, x: object) -> object:
        return self.client.submit(f, x)

    def compute(self, graph: Graph, key: str) -> object:
        got = self.client.get(graph, [key])
        return got[key] if isinstance(got, dict) else got[0]

    def close(self) -> None:
        self.client.disconnect()
        self.combo.shutdown()


class ScaledOfTen(Scaled):
    """The same with ten workers."""

    def __init__(self, workers: int) -> None:
        super().__init__(10)
