"""joblib."""

from __future__ import annotations

from collections.abc import Sequence

from joblib import Parallel, delayed

from benchmarks.peers.base import Call, Peer


class Joblib(Peer):
    module = "joblib"

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.parallel = Parallel(n_jobs=workers).__enter__()

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        call = delayed(f)
        return list(self.parallel(call(x) for x in xs))

    def close(self) -> None:
        self.parallel.__exit__(None, None, None)
