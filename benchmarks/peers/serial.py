"""No workers at all: what the calls themselves take."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.peers.base import Call, Peer


class Serial(Peer):
    """The builtin `map`."""

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        return list(map(f, xs))


class FutureAlone(Peer):
    """A `concurrent.futures.Future` and an argument, and nobody who would do anything about
    them.
    """

    def submit(self, f: Call, x: object) -> object:
        from concurrent.futures import Future

        future: Future[object] = Future()
        future.argument = x  # type: ignore[attr-defined]
        return future

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        return []

    def gather(self, handles: Sequence[object]) -> list[object]:
        return [handle.argument for handle in handles]  # type: ignore[attr-defined]
