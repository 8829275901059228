"""ray."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import ray

from benchmarks.peers.base import Call, Graph, Peer


class Ray(Peer):
    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
        self.remote = functools.cache(ray.remote)

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        # It takes functions alone, so that a partial's arguments are handed over beside each call's
        # own.
        function, bound = (f.func, f.args) if isinstance(f, functools.partial) else (f, ())
        remote = self.remote(function).remote
        return self.gather([remote(*bound, x) for x in xs])

    def submit(self, f: Call, x: object) -> object:
        return self.remote(f).remote(x)

    def gather(self, handles: Sequence[object]) -> list[object]:
        return list(ray.get(handles))

    def map_shared(self, f: Call, big: object, xs: Sequence[object]) -> list[object]:
        return self.map(functools.partial(f, ray.put(big)), xs)

    def compute(self, graph: Graph, key: str) -> object:
        refs: Graph = {}
        for name, value in graph.items():
            refs[name] = value
            if isinstance(value, tuple):
                function, *needs = value
                refs[name] = self.remote(function).remote(*(refs[one] for one in needs))
        wanted = refs[key]
        del refs
        return ray.get(wanted)

    def close(self) -> None:
        ray.shutdown()
