"""The scheduler of a stand-alone dispatcher whose workers are all started by hand
(`gridengine dispatcher start NAME --scheduler none`, `gridengine worker NAME`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gridengine.errors import ConfigurationError
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.base import MOST_BY_HAND, Scheduler
from gridengine.schedulers.launcher import Handle, LaunchContext, Launcher, LaunchPlan, Report


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
