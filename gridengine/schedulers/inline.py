"""Calls run in this very process, one after the other."""

from __future__ import annotations

from typing import NoReturn

from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.launcher import LaunchContext


class InlineScheduler(Scheduler):
    """Runs each call in this very process and thread, one after the other, so that `pdb`, prints
    and profilers work.

    A `timeout` is not enforced here: nothing can end a call in this very process, and a call that
    is looked at in a debugger is not late.
    """

    def __init__(self) -> None:
        super().__init__(max_workers=1)

    def __repr__(self) -> str:
        return "InlineScheduler()"

    def launcher(self, run: LaunchContext) -> NoReturn:
        """Raise: nothing is launched for inline calls."""
        raise NotImplementedError("an InlineScheduler has no workers to launch")
