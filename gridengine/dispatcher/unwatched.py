"""`Unwatched`: what a dispatcher says of itself where there is next to nothing to tell: its state
is in another process, or it has none between calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gridengine.dispatcher.core.snapshot import Snapshot
from gridengine.dispatcher.core.status import Status


class Unwatched:
    """For the methods see `Dispatcher`."""

    slots = 1

    def is_durable(self, task: int) -> bool:
        """Return False: nothing is on disk."""
        return False

    def snapshot(self) -> Snapshot:
        """Return what is known of the state here: next to nothing."""
        return Snapshot(workers=1)

    def status(self, most: int = 100) -> Status:
        """Likewise."""
        return Status(slots=self.slots, worker_count=1)

    def follow(self, tell: Callable[[Status | None], object], interval: float) -> object:
        """Tell this once: here there is nothing new to tell."""
        tell(self.status())
        tell(None)
        return None

    def unfollow(self, followed: Any) -> None:
        """Do nothing: nobody follows."""
