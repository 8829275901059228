"""The default scheduler of calls that are made inside a call: inline, in the same process."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import socket

from gridengine.schedulers.inline import InlineScheduler
from gridengine.worker.call_context import GVAR

logger = logging.getLogger("gridengine")

WARNING = (
    "calls inside a call run in its own process, one after the other, when they name no scheduler; "
    "scheduler=gridengine.ProcessScheduler(n) has them run in n processes on that call's machine"
)


def nested_scheduler() -> InlineScheduler:
    """Return the scheduler of calls inside a call. The first of all the runners of a worker to ask
    says so, as a warning.
    """
    _warned(os.getpid())
    return _nested_of(os.getpid())


@functools.cache
def _nested_of(pid: int) -> InlineScheduler:
    return InlineScheduler()


@functools.cache
def _warned(pid: int) -> socket.socket:
    """Warn, unless another runner of this worker has; return the socket whose name says so, for as
    long as this process lives.

    A name in the abstract namespace is held by one process at a time, and needs no tidying up
    (unix(7)).
    """
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with contextlib.suppress(OSError):
        claim.bind(f"\0gridengine-nested-{os.getppid() if GVAR.in_runner else pid}")
        logger.warning(WARNING)
    return claim
