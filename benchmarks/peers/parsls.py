"""parsl, with the executor that it recommends: HighThroughputExecutor."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Sequence

import parsl
from parsl.executors import HighThroughputExecutor
from parsl.providers import GridEngineProvider, LocalProvider, SlurmProvider

from benchmarks.peers.base import Call, Graph, Peer


class Parsl(Peer):
    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.app = functools.cache(parsl.python_app)
        self.kernel = parsl.load(
            parsl.Config(
                executors=[self.make()], run_dir=tempfile.mkdtemp(dir=os.environ.get("TMPDIR"))
            )
        )

    def make(self) -> HighThroughputExecutor:
        provider = LocalProvider(init_blocks=1, max_blocks=1)
        return HighThroughputExecutor(
            provider=provider, max_workers_per_node=self.workers, address="127.0.0.1"
        )

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        # A partial has no name, and an app wants one.
        app = (
            self.app(f) if hasattr(f, "__name__") else functools.partial(self.app(f.func), *f.args)
        )  # type: ignore[attr-defined]
        return self.gather([app(x) for x in xs])

    def submit(self, f: Call, x: object) -> object:
        return self.app(f)(x)

    def compute(self, graph: Graph, key: str) -> object:
        futures: Graph = {}
        for name, value in graph.items():
            futures[name] = value
            if isinstance(value, tuple):
                function, *needs = value
                futures[name] = self.app(function)(*(futures[one] for one in needs))
        return futures[key].result()

    def close(self) -> None:
        self.kernel.cleanup()


class ParslOnGridEngine(Parsl):
    """As many cluster tasks as workers, asked for at once, with one worker each."""

    def make(self) -> HighThroughputExecutor:
        provider = GridEngineProvider(
            init_blocks=self.workers, max_blocks=self.workers, worker_init=prologue()
        )
        return HighThroughputExecutor(provider=provider, max_workers_per_node=1)


class ParslOnSlurm(Parsl):
    """As `ParslOnGridEngine`."""

    def make(self) -> HighThroughputExecutor:
        blocks = {
            "init_blocks": self.workers,
            "max_blocks": self.workers,
            "cores_per_node": 1,
            "mem_per_node": 1,
            "exclusive": False,
        }
        return HighThroughputExecutor(
            provider=SlurmProvider(worker_init=prologue(), **blocks), max_workers_per_node=1
        )


def prologue() -> str:
    """Return the shell line that gives a cluster task this process's paths."""
    return f"export PYTHONPATH={os.environ['PYTHONPATH']} PATH={os.environ['PATH']}"
