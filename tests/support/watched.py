"""A dispatcher that is watched, without a socket: its answers are what a test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gridengine.dispatcher.watch_messages import STATUS, Identity, WatchAnswer
from gridengine.errors import ClusterError
from gridengine.status.rows import Status

WHO = Identity(
    *("sweep.py", "20261123-093000-node7-4242-0a1b2c", 4242, "login1", "/sweep.py", "/", 0.0),
    *("SlurmScheduler", "1.2", "3.11"),
)


class FakeWatched:
    """Answers, and notes what it was asked with which words."""

    run = ""

    def __init__(self, answer: Callable[[str], WatchAnswer] | None = None) -> None:
        self.answer = answer or (lambda ask: WatchAnswer(WHO, Status()))
        self.asked: list[tuple[str, Sequence[str]]] = []
        self.closed = False

    def ask(
        self, ask: str = STATUS, *, most: int = 100, words: Sequence[str] = (), first: int = 0
    ) -> WatchAnswer:
        self.asked.append((ask, words))
        return self.answer(ask)

    def __enter__(self) -> FakeWatched:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.closed = True


def silent(ask: str) -> WatchAnswer:
    """Give no answer."""
    raise ClusterError("it does not answer")
