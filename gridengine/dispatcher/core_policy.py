"""The core's policy, as it follows from the settings and the scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridengine._version import __version__
from gridengine.errors import ConfigurationError
from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.launcher import MARGIN_SECONDS, LaunchContext
from gridengine.serialize.byte_code import PYTHON
from gridengine.settings.values import Settings

if TYPE_CHECKING:
    from gridengine.dispatcher.core.policy import Policy

GATHER_SECONDS = 0.05
MOST_BEATS_PER_SECOND = 500
"""The signs of life that a dispatcher reads in a second, some 3 % of a processor; more only where
the lease is too short.
"""
MOST_FILE_BEAT_SECONDS, LEAST_FILE_LEASE_SECONDS = 5.0, 10.0
FILE_SECONDS = 0.1
"""How long a message takes that travels as a file, while messages come and go."""


def policy_of(scheduler: Scheduler, settings: Settings, run: LaunchContext) -> Policy:
    """Return the policy for the core of a scheduler's dispatcher."""
    from gridengine.dispatcher.core.policy import Policy  # `started_ahead` does without

    return Policy(
        max_workers=scheduler.max_workers if scheduler.starts_workers else 0,
        min_workers=scheduler.min_workers,
        first_workers=scheduler._first_workers,
        slots=scheduler.slots,
        idle_seconds=scheduler.idle_seconds,
        pooled=scheduler.starts_workers and not scheduler.local,
        resources=scheduler.worker_resources,
        walltime=scheduler.walltime,
        margin_seconds=0.0 if scheduler.local else MARGIN_SECONDS,
        gather_seconds=0.0 if scheduler.local else GATHER_SECONDS,
        start_at_once=scheduler._start_at_once,
        jobs_per_worker=scheduler.jobs_per_worker,
        beat_seconds=beat_seconds(scheduler, settings),
        lease_seconds=settings.lease_seconds,
        start_seconds=settings.start_seconds,
        message_seconds=0.0 if scheduler.transport == "tcp" else FILE_SECONDS,
        start_timeout=settings.start_timeout
        if scheduler.start_timeout is None
        else scheduler.start_timeout,
        max_nesting=settings.max_nesting,
        version=__version__,
        python=PYTHON,
        run_id=run.id,
        addresses=run.addresses,
        epoch=run.epoch,
        jobs_per_minute=0 if scheduler.local else settings.jobs_per_minute,
    )


def beat_seconds(scheduler: Scheduler, settings: Settings) -> float:
    """Return how many seconds pass between two signs of life of a worker: as the setting says, or
    more, up to a twelfth of the lease. More pass where each sign is a file, and where there may be
    more than a thousand workers, because the dispatcher reads all signs.
    """
    if scheduler.transport == "tcp":
        least = scheduler.max_workers / MOST_BEATS_PER_SECOND
    else:
        least = MOST_FILE_BEAT_SECONDS
    return max(settings.beat_seconds, min(least, settings.lease_seconds / 12))


def check_lease(settings: Settings) -> None:
    """Check that a lease is long enough for messages that travel as files.

    Raises:
        ConfigurationError: it is not.
    """
    if settings.lease_seconds < LEAST_FILE_LEASE_SECONDS:
        raise ConfigurationError(
            f"lease_seconds={settings.lease_seconds:g} is too short for transport='files'",
            hint=f"make it {LEAST_FILE_LEASE_SECONDS:g} at least (GRIDENGINE_LEASE_SECONDS), or "
            "leave it out",
        )
