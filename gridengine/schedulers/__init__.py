"""Where workers run: this process, this machine, or a cluster."""

from __future__ import annotations

import functools
import importlib
import logging
import os
from typing import TYPE_CHECKING, Any

from gridengine.resources.base import ZERO, Resource
from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.detect import without_grid_engine, without_slurm
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

_HOMES = {
    "GridEngineScheduler": "grid_engine.scheduler",
    "InlineScheduler": "inline",
    "ProcessScheduler": "local",
    "SlurmScheduler": "slurm.scheduler",
}

logger = logging.getLogger("gridengine")


def __getattr__(name: str) -> Any:
    """Import a scheduler when it is first asked for: a worker needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def best_available() -> Scheduler:
    """Return a `GridEngineScheduler` when Grid Engine is here and takes this user's jobs, else a
    `SlurmScheduler` when Slurm does, else a `ProcessScheduler`.

    Another system that has a DRMAA library counts as Grid Engine, but for a Slurm whose commands
    are here. What was chosen, and why not the others, is logged at INFO.
    """
    against = []
    for name, system, without in (
        ("GridEngineScheduler", "Grid Engine", without_grid_engine),
        ("SlurmScheduler", "Slurm", without_slurm),
    ):
        reason = (
            without(os.environ)
            or importlib.import_module(f"{__name__}.{_HOMES[name]}").why_unavailable()
        )
        if not reason:
            scheduler: Scheduler = __getattr__(name)()
            if name == "GridEngineScheduler":
                from gridengine.schedulers.grid_engine.scheduler import system_here

                system = system_here()
            against.append(f"{system} takes jobs of this user")
            break
        against.append(f"not {system}, because {reason}")
    else:
        from gridengine.schedulers.local import ProcessScheduler

        scheduler = ProcessScheduler()
    logger.info("using %r: %s", scheduler, "; ".join(against))
    return scheduler


def default_scheduler() -> Scheduler:
    """Return this process's own scheduler, the best available, made at the first call and closed at
    exit.

    Inside a call it is the call's own process: a scheduler for each process that runs calls would
    start workers without bound.
    """
    if GVAR.inside:
        from gridengine.schedulers.nested import nested_scheduler

        return nested_scheduler()
    return _default_of(os.getpid())


def scheduler_of_jobs(resources: Resource) -> Scheduler:
    """Return where a `Job` that asks for these resources runs when it is started without a
    scheduler: this process's own scheduler.

    But jobs on this machine that ask for nothing start at once, as processes do, and take nobody's
    place: they may wait for one another. Those that are started inside a call are always processes
    of the same machine: what started them may wait for them.
    """
    scheduler = _processes_of(os.getpid()) if GVAR.inside else default_scheduler()
    return scheduler if not scheduler.local or resources != ZERO else _unbounded_of(os.getpid())


@functools.cache
def _default_of(pid: int) -> Scheduler:
    return best_available()


@functools.cache
def _unbounded_of(pid: int) -> Scheduler:
    from gridengine.schedulers.local import UnboundedProcessScheduler

    return UnboundedProcessScheduler()


@functools.cache
def _processes_of(pid: int) -> Scheduler:
    from gridengine.schedulers.local import ProcessScheduler

    return ProcessScheduler()
