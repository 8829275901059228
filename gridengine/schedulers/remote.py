"""`RemoteScheduler`: where the workers of a dispatcher in another process are."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Protocol

from gridengine.arguments import number, whole
from gridengine.schedulers.base import Scheduler


class GathersCalls(Protocol):
    """Has calls that it hands over later, when others have ended."""

    def hand_over_all(self) -> None: ...


class RemoteScheduler(Scheduler):
    """The workers of a stand-alone dispatcher, which has a scheduler of its own.

    Args:
        path: of its connection file for clients.
        weight: this client's part of the turns of all clients.
        max_calls, max_bytes: how much it may have open there; None is any number.
        keep: by which name the next one finds the calls that this has left.

    Raises:
        TypeError, ConfigurationError: an argument is not what it must be.
    """

    def __init__(
        self,
        path: Path,
        *,
        weight: float = 1.0,
        max_calls: int | None = None,
        max_bytes: int | None = None,
        keep: str = "",
    ) -> None:
        super().__init__(max_workers=1)
        self.path = path
        self.weight = number("weight", weight)
        self.max_calls = None if max_calls is None else whole("max_calls", max_calls)
        self.max_bytes = None if max_bytes is None else whole("max_bytes", max_bytes)
        self.keep = keep
        self.kept: weakref.WeakSet[RemoteScheduler] = weakref.WeakSet()
        """Those of runs with a name that were made of this."""
        self.submitters: weakref.WeakSet[GathersCalls] = weakref.WeakSet()
        """What gathers calls before they are handed over."""

    def keeping(self, name: str) -> RemoteScheduler:
        """Return one whose calls go on without this process, until the next of that name."""
        made = RemoteScheduler(
            self.path,
            weight=self.weight,
            max_calls=self.max_calls,
            max_bytes=self.max_bytes,
            keep=name,
        )
        self.kept.add(made)
        return made
