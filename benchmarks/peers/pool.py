"""The standard library's `multiprocessing.Pool`."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence

from benchmarks.peers.base import Call, Peer


class Pool(Peer):
    module = "multiprocessing.pool"

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.pool = multiprocessing.Pool(workers)

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        return self.pool.map(f, xs)

    def submit(self, f: Call, x: object) -> object:
        return self.pool.apply_async(f, (x,))

    def gather(self, handles: Sequence[object]) -> list[object]:
        return [handle.get() for handle in handles]  # type: ignore[attr-defined]

    def close(self) -> None:
        self.pool.terminate()
        self.pool.join()
