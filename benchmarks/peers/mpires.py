"""mpire."""

from __future__ import annotations

from collections.abc import Sequence

from mpire import WorkerPool

from benchmarks.peers.base import Call, Peer


class Mpire(Peer):
    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.pool = WorkerPool(n_jobs=workers, keep_alive=True)

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        return list(self.pool.map(f, xs, concatenate_numpy_output=False))

    def submit(self, f: Call, x: object) -> object:
        return self.pool.apply_async(f, (x,))

    def gather(self, handles: Sequence[object]) -> list[object]:
        return [handle.get() for handle in handles]  # type: ignore[attr-defined]

    def map_shared(self, f: Call, big: object, xs: Sequence[object]) -> list[object]:
        with WorkerPool(n_jobs=self.workers, shared_objects=big) as pool:
            return list(pool.map(f, xs))

    def close(self) -> None:
        self.pool.terminate()
