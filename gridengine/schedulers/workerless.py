"""Schedulers that start no workers: calls run in this process, in the dispatcher that runs the
current call, in a dispatcher elsewhere, or on workers that people start by hand.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from gridengine.arguments import number, whole
from gridengine.call_context.current_call import GVAR
from gridengine.errors import ConfigurationError
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.base import MOST_BY_HAND, Scheduler, Transport, chosen_transport
from gridengine.schedulers.launcher import Handle, LaunchContext, Launcher, LaunchPlan, Report
from gridengine.system.machine import claim
from gridengine.threads import LiveObjects

logger = logging.getLogger("gridengine")

WARNING = (
    "calls inside a call of an InlineScheduler, or in a process that a call has forked, run in "
    "that process, one after the other, when they name no scheduler; "
    "scheduler=gridengine.ProcessScheduler(n) has them run in n processes on this machine"
)


class InlineScheduler(Scheduler):
    """Runs each call in this very process and thread, one after the other, so that `pdb`, prints
    and profilers work.

    Limits (`timeout=`, `WTime`, `Memory`) have no effect, and a warning says so at the first of
    each kind: nothing can end a call in this very process, and a call in a debugger is not late.
    `ProcessScheduler(1)` enforces them.

    Args:
        max_workers: has no effect; it is accepted because every other scheduler accepts it.
    """

    starts_workers = False

    def __init__(self, max_workers: int | None = None) -> None:
        super().__init__(max_workers=1)
        if max_workers is not None:
            whole("max_workers", max_workers)

    def __repr__(self) -> str:
        return "InlineScheduler()"


def inner_scheduler() -> InlineScheduler:
    """Return the scheduler of calls inside a call that runs in its caller's own process, or in a
    process that a call has forked. At the first use in each worker a warning is logged.
    """
    return _inner_of(os.getpid())[0]


@functools.cache
def _inner_of(pid: int) -> tuple[InlineScheduler, object]:
    """Return the scheduler, and a name that marks the warning as given while this process
    lives. Warn, unless another runner of this worker has warned.

    """
    taken = claim(f"gridengine-nested-{os.getppid() if GVAR.in_runner else pid}")
    if taken:
        logger.warning(WARNING)
    return InlineScheduler(), taken


class NestedScheduler(Scheduler):
    """The scheduler inside a call: nested calls use the same workers, and end with the call."""

    def __init__(self) -> None:
        super().__init__(max_workers=1)

    def __repr__(self) -> str:
        return "<the scheduler of the call that runs here>"

    def close(self) -> None:
        """Cancel this process's nested calls that have not ended. The scheduler remains usable."""
        if self._shared is not None:
            self._shared.close()


class GathersCalls(Protocol):
    """Holds calls back, to hand them over later together."""

    def hand_over_all(self) -> None: ...


class RemoteScheduler(Scheduler):
    """The workers of a stand-alone dispatcher, which has a scheduler of its own.

    Args:
        path: its connection file for clients.
        weight: this client's weight when clients take turns.
        max_calls, max_bytes: the most that this client may have open there; None is any number.
        origin: the name of the named run whose next client inherits the calls that this client
            leaves; empty if nobody does.

    Raises:
        TypeError, ConfigurationError: an argument has a wrong type or value.
    """

    def __init__(
        self,
        path: Path,
        *,
        weight: float = 1.0,
        max_calls: int | None = None,
        max_bytes: int | None = None,
        origin: str = "",
    ) -> None:
        super().__init__(max_workers=1)
        self.path = path
        self.weight = number("weight", weight)
        self.max_calls = None if max_calls is None else whole("max_calls", max_calls)
        self.max_bytes = None if max_bytes is None else whole("max_bytes", max_bytes)
        self.origin = origin
        self.of_runs = LiveObjects[RemoteScheduler]()
        """The schedulers of named runs that were made from this one."""
        self.submitters = LiveObjects[GathersCalls]()
        """The objects that hold calls back."""

    def leaving_as(self, name: str) -> RemoteScheduler:
        """Return a scheduler whose calls outlive this process, for the next client of that name."""
        made = RemoteScheduler(
            self.path,
            weight=self.weight,
            max_calls=self.max_calls,
            max_bytes=self.max_bytes,
            origin=name,
        )
        self.of_runs.add(made)
        return made


class HandStartedScheduler(Scheduler):
    """Starts no workers: calls of a stand-alone dispatcher wait for workers that people start
    (`gridengine dispatcher start NAME --scheduler none`, `gridengine worker NAME`).

    Args:
        worker_resources: the resources of a worker that does not name its own (default: one core).
        transport: see `BatchScheduler`.
    """

    local = False
    starts_workers = False

    def __init__(
        self, *, worker_resources: Resource = ZERO, transport: Transport | None = None
    ) -> None:
        super().__init__(max_workers=MOST_BY_HAND)
        self.transport = chosen_transport(transport)
        self._hold(worker_resources)

    def __repr__(self) -> str:
        return f"HandStartedScheduler(worker_resources={self.worker_resources!r})"

    def launcher(self, run: LaunchContext) -> Launcher:
        return _NoLauncher()


class _NoLauncher(Launcher):
    """The launcher of a scheduler that starts no workers."""

    def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
        raise _refusal()

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Report]:
        return {}

    def cancel(self, handles: Sequence[Handle]) -> None:
        """Do nothing: there are no workers to stop."""

    def close(self) -> None:
        """Do nothing: there are no workers to stop."""

    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        raise _refusal()


def _refusal() -> ConfigurationError:
    return ConfigurationError(
        "this dispatcher starts no workers", hint="start some by hand: gridengine worker NAME"
    )
