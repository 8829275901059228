"""`Policy`: the limits and intervals that the core uses, from the scheduler and the settings."""

from __future__ import annotations

import math

from msgspec import Struct

from gridengine.resources.base import Resource
from gridengine.resources.kinds import WTime


class Policy(Struct, frozen=True):
    """The numbers by which the core decides; times in seconds.

    max_workers, min_workers, slots, idle_seconds, jobs_per_worker: as the scheduler's; max_workers
    is 0 where people start all workers by hand. lease_seconds, start_seconds, beat_seconds: as the
    settings'. start_timeout: for how long calls may wait for their first worker. pooled: calls of
    different demands get workers of their own. resources: what each worker holds, if all calls are
    to share the workers and be packed; None has each worker hold what one call asks for. walltime:
    for how long a worker may be there, None where nobody says; margin_seconds: by how much more
    than the walltime in `resources`, or in what a call asks for, it is asked for. overtake_seconds:
    how long calls that want much may be overtaken by those that want less. gather_seconds: how long
    demand is gathered before workers are asked for, so that one array job serves it; for the first
    of all it is not where these `start_at_once`. keeps_others: whether workers that the scheduler
    did not start may connect at any time, and stay though they have nothing to do: calls wait for
    one that holds what they ask for. failed_starts: how many cluster tasks in a row may end before
    their workers connect, until that is an error. addresses: where they connect to. epoch: the
    number of this process among those that are one dispatcher, started again; 0 where there are no
    others.
    """

    max_workers: int = 1
    min_workers: int = 0
    slots: int = 1
    idle_seconds: float = 5.0
    gather_seconds: float = 0.0
    start_at_once: bool = False
    pooled: bool = False
    resources: Resource | None = None
    walltime: float | None = None
    margin_seconds: float = 0.0
    overtake_seconds: float = 60.0
    jobs_per_worker: int | None = None
    beat_seconds: float = 2.0
    lease_seconds: float = 60.0
    start_seconds: float = 30.0
    start_timeout: float = math.inf
    keeps_others: bool = False
    failed_starts: int = 3
    max_nesting: int = 100
    version: str = ""
    python: str = ""
    run_id: str = ""
    addresses: tuple[str, ...] = ()
    epoch: int = 0

    def stay(self, held: Resource) -> float:
        """Return how long a worker that holds this may work, infinite when nobody limits it: then
        it leaves, in order.
        """
        own = held.get(WTime)
        walltime = (
            own.T + self.margin_seconds
            if self.walltime is None and own is not None and own.T is not None
            else self.walltime
        )
        return math.inf if walltime is None else walltime - spare_of(walltime)


SPARE_SECONDS = 15.0
"""How long before its walltime is over a worker leaves."""


def spare_of(walltime: float) -> float:
    """Return how much of a walltime is kept for leaving in order, in seconds: of a short one a
    tenth.
    """
    return min(SPARE_SECONDS, 0.1 * walltime)
