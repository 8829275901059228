"""Where workers run: this process, this machine, or a cluster.

In: how many workers are wanted, and what calls ask for. Out: workers that connect to their
dispatcher, and reports on those that wait, run or have ended; nothing here knows of tasks. Read
`launcher` first, which is what a dispatcher sees, then `base`, which is what a user holds. A new
batch system is a folder beside `slurm`, with a class derived from each of the two in `batch`, and
an entry in `registry`.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gridengine.errors import SchedulerUnavailable
from gridengine.resources.base import ZERO, Resource
from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.registry import BATCH_SYSTEMS, BY_CLASS, PROCESSES, UNBOUNDED_PROCESSES
from gridengine.worker.call_context import GVAR

if TYPE_CHECKING:
    from gridengine.schedulers.grid_engine.scheduler import GridEngineScheduler
    from gridengine.schedulers.inline import InlineScheduler
    from gridengine.schedulers.local import ProcessScheduler
    from gridengine.schedulers.slurm.scheduler import SlurmScheduler

__all__ = [
    "GridEngineScheduler",
    "InlineScheduler",
    "ProcessScheduler",
    "Scheduler",
    "SlurmScheduler",
    "best_available",
    "default_scheduler",
    "scheduler_of_jobs",
]

logger = logging.getLogger("gridengine")


def __getattr__(name: str) -> Any:
    """Import a scheduler when it is first asked for: a worker needs none of them."""
    if name not in BY_CLASS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return BY_CLASS[name].scheduler_class()


def best_available() -> Scheduler:
    """Return a `GridEngineScheduler` when Grid Engine is here and takes this user's jobs, else a
    `SlurmScheduler` when Slurm does, else a `ProcessScheduler`.

    Another system that has a DRMAA library counts as Grid Engine, but for a Slurm whose commands
    are here. What was chosen, and why not the others, is logged at INFO.
    """
    chosen, reasons = PROCESSES, []
    for entry in BATCH_SYSTEMS:
        try:
            reasons.append(f"{entry.system_here(os.environ)} takes jobs of this user")
        except SchedulerUnavailable as error:
            reasons.append(f"not {entry.system}, because {error}")
        else:
            chosen = entry
            break
    scheduler = chosen.make()
    logger.info("using %r: %s", scheduler, "; ".join(reasons))
    return scheduler


def default_scheduler() -> Scheduler:
    """Return this process's own scheduler, the best available, made at the first call and closed at
    exit.

    Inside a call it is the call's own process: a scheduler for each process that runs calls would
    start workers without bound.
    """
    if GVAR.inside:
        from gridengine.schedulers.inline import nested_scheduler

        return nested_scheduler()
    return _once(os.getpid(), best_available)


def scheduler_of_jobs(resources: Resource) -> Scheduler:
    """Return where a `Job` that asks for these resources runs when it is started without a
    scheduler: this process's own scheduler.

    But jobs on this machine that ask for nothing start at once, as processes do, and take nobody's
    place: they may wait for one another. Those that are started inside a call are always processes
    of the same machine: what started them may wait for them.
    """
    scheduler = _once(os.getpid(), PROCESSES.make) if GVAR.inside else default_scheduler()
    if scheduler.local and resources == ZERO:
        return _once(os.getpid(), UNBOUNDED_PROCESSES.make)
    return scheduler


@functools.cache
def _once(pid: int, make: Callable[[], Scheduler]) -> Scheduler:
    """Return what `make` makes, once for each process: a fork has its own."""
    return make()
