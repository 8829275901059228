"""The standard library's `ProcessPoolExecutor`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor

from benchmarks.peers.base import Call, Peer


class Futures(Peer):
    module = "concurrent.futures.process"

    chunksize = 1

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.executor = self.make()

    def make(self) -> Executor:
        return ProcessPoolExecutor(self.workers)

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        return list(self.executor.map(f, xs, chunksize=self.chunksize))

    def submit(self, f: Call, x: object) -> object:
        return self.executor.submit(f, x)

    def awaitable(self, f: Call, x: object) -> Awaitable[object]:
        return asyncio.get_running_loop().run_in_executor(self.executor, f, x)

    def close(self) -> None:
        self.executor.shutdown()


class Chunked(Futures):
    """With the chunks that a user who knows what the calls take would choose."""

    chunksize = 500
