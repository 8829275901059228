"""loky, the executor below joblib."""

from __future__ import annotations

from concurrent.futures import Executor

from loky import get_reusable_executor

from benchmarks.peers.futures import Futures


class Loky(Futures):
    module = "loky"

    def make(self) -> Executor:
        executor: Executor = get_reusable_executor(max_workers=self.workers)
        return executor
