"""A dispatcher that runs what it is handed when a test says so, and executors on it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import gridengine
from tests.support.fake_dispatcher import Entry, FakeDispatcher

SECONDS = 100


def square(x: int) -> int:
    return x * x


def fail(x: int) -> int:
    raise ValueError(f"no {x}")


def give(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


class HeldDispatcher(FakeDispatcher):
    """It has two slots, and runs nothing by itself."""

    def __init__(self) -> None:
        super().__init__(on_submit=lambda _: self.submissions.release())
        self.submissions = threading.Semaphore(0)

    def run_all(self, *, until: Callable[[], bool]) -> None:
        """Run what has been handed over, and what is handed over in its stead, until it is
        enough.
        """
        while not until():
            left = [entry for entry in self.entries if entry.task.id not in self.settled]
            if left:
                self.run(left[0])
            else:
                assert self.submissions.acquire(timeout=SECONDS)

    def run_what_is_there(self) -> None:
        """Run what has been handed over."""
        for entry in list(self.entries):
            if entry.task.id not in self.settled:
                self.run(entry)


def run_all(executor: gridengine.Executor) -> None:
    """Run all that was submitted."""
    batcher = executor._submitter.batcher
    dispatcher: Any = batcher.dispatcher
    dispatcher.run_all(until=lambda: not batcher._open)


def calls_of(entries: list[Entry]) -> int:
    return sum(entry.task.count for entry in entries)
