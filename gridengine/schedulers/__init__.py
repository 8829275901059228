"""Where workers run: this process, this machine, or a cluster."""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

from gridengine.schedulers.base import Scheduler

if TYPE_CHECKING:
    from gridengine.schedulers.gridengine import GridEngineScheduler
    from gridengine.schedulers.inline import InlineScheduler
    from gridengine.schedulers.process import ProcessScheduler

__all__ = ["GridEngineScheduler", "InlineScheduler", "ProcessScheduler", "Scheduler", "best_available"]

_HOMES = {"GridEngineScheduler": "gridengine", "InlineScheduler": "inline", "ProcessScheduler": "process"}

logger = logging.getLogger("gridengine")


def __getattr__(name: str) -> Any:
    """Import a scheduler when it is first asked for: a worker needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def best_available() -> Scheduler:
    """Return a `GridEngineScheduler` when Grid Engine is here and takes this user's jobs, else a `ProcessScheduler`.

    What was chosen, and why not the other, is logged at INFO.
    """
    from gridengine.schedulers.gridengine import GridEngineScheduler, why_unavailable
    from gridengine.schedulers.process import ProcessScheduler

    reason = why_unavailable()
    scheduler: Scheduler = ProcessScheduler() if reason else GridEngineScheduler()
    logger.info("using %r: %s", scheduler, f"not Grid Engine, because {reason}" if reason else "Grid Engine takes jobs of this user")
    return scheduler
