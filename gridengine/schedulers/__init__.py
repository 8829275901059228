"""Where workers run: this process, this machine, or a cluster."""

from __future__ import annotations

import logging

from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.gridengine import GridEngineScheduler, why_unavailable
from gridengine.schedulers.inline import InlineScheduler
from gridengine.schedulers.process import ProcessScheduler

__all__ = ["GridEngineScheduler", "InlineScheduler", "ProcessScheduler", "Scheduler", "best_available"]

logger = logging.getLogger("gridengine")


def best_available() -> Scheduler:
    """Return a `GridEngineScheduler` when Grid Engine is here and takes this user's jobs, else a `ProcessScheduler`.

    What was chosen, and why not the other, is logged at INFO.
    """
    reason = why_unavailable()
    scheduler: Scheduler = ProcessScheduler() if reason else GridEngineScheduler()
    logger.info("using %r: %s", scheduler, f"not Grid Engine, because {reason}" if reason else "Grid Engine takes jobs of this user")
    return scheduler
