"""Calls run in this very process, one after the other: an `InlineScheduler`, which is the default
inside a call of another one, and in processes that calls have forked.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import socket

from gridengine.arguments import whole
from gridengine.schedulers.base import Scheduler
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
