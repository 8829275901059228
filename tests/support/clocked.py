"""Schedulers whose dispatcher, in this process, has the test's clock."""

from __future__ import annotations

from typing import TypeVar

from gridengine.calls.posting import PostingDispatcher
from gridengine.calls.remote import RemoteDispatcher
from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.workerless import RemoteScheduler
from gridengine.settings.values import settings
from gridengine.wire.clock import Clock

S = TypeVar("S", bound=Scheduler)


def clocked(scheduler: S, clock: Clock) -> S:
    """Return this scheduler, which nobody has used yet, with such a dispatcher; of a client of a
    stand-alone one, its own end of the connection has the clock.
    """
    assert scheduler._shared is None
    if isinstance(scheduler, RemoteScheduler):
        remote = RemoteDispatcher(scheduler.path, clock=clock)
        scheduler._share(lambda: remote)
        scheduler.max_workers = remote.slots
    else:
        scheduler._share(lambda: PostingDispatcher(scheduler, settings(), clock=clock))
    return scheduler
