"""Where workers run: this process, this machine, or a cluster."""

from __future__ import annotations

from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.inline import InlineScheduler
from gridengine.schedulers.process import ProcessScheduler

__all__ = ["InlineScheduler", "ProcessScheduler", "Scheduler"]
