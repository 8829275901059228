"""What every peer is: some workers, and two ways to have calls run by them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

Call = Callable[..., object]
Graph = dict[str, Any]
"""Keys with data, or with tuples of a function and the keys that it is given."""


class Absent(Exception):
    """This peer cannot be measured here; the text says why."""


class Peer:
    """A peer with so many workers, ready once it is made. What it does not offer raises
    NotImplementedError.
    """

    module = ""
    """What its users import."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        """Return `[f(x) for x in xs]`."""
        raise NotImplementedError("no map")

    def submit(self, f: Call, x: object) -> object:
        """Hand in one call; `gather` takes what this returns."""
        raise NotImplementedError("no single calls")

    def gather(self, handles: Sequence[object]) -> list[object]:
        """Return the results of calls that were handed in."""
        return [handle.result() for handle in handles]  # type: ignore[attr-defined]

    def awaitable(self, f: Call, x: object) -> Awaitable[object]:
        """Hand in one call, and return what a task of asyncio may await."""
        raise NotImplementedError("nothing to await")

    def map_shared(self, f: Call, big: object, xs: Sequence[object]) -> list[object]:
        """Return `[f(big, x) for x in xs]`, told in the peer's own words that `big` is to be
        shared.
        """
        raise NotImplementedError("no way to share")

    def compute(self, graph: Graph, key: str) -> object:
        """Return what a key of a graph stands for."""
        raise NotImplementedError("no graphs")

    def compute_collection(self, collection: Any) -> object:
        """Return what a collection of dask's comes to."""
        raise NotImplementedError("no scheduler for dask")

    def close(self) -> None:
        """End the workers."""
