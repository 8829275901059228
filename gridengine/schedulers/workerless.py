"""Schedulers that start no workers: calls run in this process, in the dispatcher that runs the
current call, in a dispatcher elsewhere, or on workers that people start by hand.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import socket
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from gridengine.errors import ConfigurationError
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.demand import ANY, Demand
from gridengine.resources.units import number, whole
from gridengine.schedulers.base import MOST_BY_HAND, Scheduler
from gridengine.schedulers.launcher import Handle, LaunchContext, Launcher, LaunchPlan, Report
from gridengine.worker.call_context import GVAR

logger = logging.getLogger("gridengine")

WARNING = (
    "calls inside a call of an InlineScheduler, or in a process that a call has forked, run in "
    "that process, one after the other, when they name no scheduler; "
    "scheduler=gridengine.ProcessScheduler(n) has them run in n processes on this machine"
)


class InlineScheduler(Scheduler):
    """Runs each call in this very process and thread, one after the other, so that `pdb`, prints
    and profilers work.

    Limits (`timeout=`, `WTime`, `Memory`) do not hold here, and the first of each is warned of:
    nothing can end a call in this very process, and one that is looked at in a debugger is not
    late. `ProcessScheduler(1)` keeps to them.

    Args:
        max_workers: has no effect, and is taken since every other scheduler takes it.
    """

    def __init__(self, max_workers: int | None = None) -> None:
        super().__init__(max_workers=1)
        if max_workers is not None:
            whole("max_workers", max_workers)

    def __repr__(self) -> str:
        return "InlineScheduler()"


def inner_scheduler() -> InlineScheduler:
    """Return the scheduler of calls inside a call that is made in its caller's own process, or in a
    process that a call has forked. The first of all those of a worker to ask says so, as a warning.
    """
    return _nested_of(os.getpid())[0]


@functools.cache
def _nested_of(pid: int) -> tuple[InlineScheduler, socket.socket]:
    """Warn, unless another runner of this worker has; return the scheduler and the socket whose
    name says that it did, for as long as this process lives.

    A name in the abstract namespace is held by one process at a time, and needs no tidying up
    (unix(7)).
    """
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with contextlib.suppress(OSError):
        claim.bind(f"\0gridengine-nested-{os.getppid() if GVAR.in_runner else pid}")
        logger.warning(WARNING)
    return InlineScheduler(), claim


class NestedScheduler(Scheduler):
    """The scheduler that runs this process's calls, as these have it: what they make goes to its
    workers, and ends with them.
    """

    def __init__(self) -> None:
        super().__init__(max_workers=1)

    def __repr__(self) -> str:
        return "<the scheduler of the call that runs here>"

    def close(self) -> None:
        """End what this process's calls have made and what has not ended. It can be used as
        before.
        """
        if self._shared is not None:
            self._shared.close()


class HandStartedScheduler(Scheduler):
    """Starts no workers: calls wait for those that people start.

    Args:
        worker_resources: what a worker holds that does not say what it holds (default: one core).
    """

    local = False
    starts_workers = False

    def __init__(self, *, worker_resources: Resource = ZERO) -> None:
        super().__init__(max_workers=MOST_BY_HAND)
        self._hold(worker_resources)

    def __repr__(self) -> str:
        return f"HandStartedScheduler(worker_resources={self.worker_resources!r})"

    def launcher(self, run: LaunchContext) -> Launcher:
        return _NoLauncher()


class _NoLauncher(Launcher):
    """Has no workers."""

    def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
        raise _refusal()

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Report]:
        return {}

    def cancel(self, handles: Sequence[Handle]) -> None:
        """There are none to stop."""

    def close(self) -> None:
        """There are none to stop."""

    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        raise _refusal()


def _refusal() -> ConfigurationError:
    return ConfigurationError(
        "this dispatcher starts no workers", hint="start some by hand: gridengine worker NAME"
    )


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
