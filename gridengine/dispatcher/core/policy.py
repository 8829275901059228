"""The limits that the core keeps to, and whether a worker can hold a request."""

from __future__ import annotations

import functools
import math
import operator

from msgspec import Struct

from gridengine.errors import ConfigurationError, safe_repr
from gridengine.resources.base import ZERO, FreeResources, Resource
from gridengine.resources.demand import Demand, GroupTimes, on_one_node, replaced
from gridengine.resources.kinds import Cores, WTime
from gridengine.resources.packing import Packer


class Policy(Struct, frozen=True):
    """The limits and intervals to which the core keeps; times in seconds.

    max_workers, min_workers, slots, idle_seconds, jobs_per_worker: as the scheduler's. max_workers
        is 0 where people start all workers by hand.
    first_workers: if not 0, so many are requested while nobody knows how long calls take, and then
        as many as that time is worth, see `scaling`.
    lease_seconds, start_seconds, beat_seconds: as the settings'.
    message_seconds: how long a message takes to a worker. The longer, the more work of quick calls
        a worker is given at a time, and the later a result counts as late.
    start_timeout: for how long calls may wait for their first worker.
    pooled: calls of different demands get workers of their own.
    resources: the resources of each worker, if all calls share the workers and are packed. None:
        each worker has the resources that one call asks for.
    walltime: for how long a worker may stay; None if unlimited. margin_seconds: how much more is
        requested than the walltime in `resources`, or in a call's demand.
    overtake_seconds: for how long small requests may overtake a large one.
    gather_seconds: for how long demand is gathered before workers are requested, so that one array
        job serves it. With start_at_once the first request does not wait.
    keeps_others: workers that the scheduler did not start may connect at any time, and stay without
        calls. Calls wait for a worker that holds the resources that they request.
    failed_starts: how many cluster tasks in a row may end before their workers connect, until that
        is an error.
    max_nesting: how many calls of a worker may wait for their children at a time.
    version, python, run_id: what workers must have in common with the dispatcher. addresses: where
        workers connect to.
    epoch: see the glossary.
    jobs_per_minute: the most workers that are requested within a minute; 0 is no limit.
    """

    max_workers: int = 1
    min_workers: int = 0
    first_workers: int = 0
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
    message_seconds: float = 0.0
    start_timeout: float = math.inf
    keeps_others: bool = False
    failed_starts: int = 3
    max_nesting: int = 100
    version: str = ""
    python: str = ""
    run_id: str = ""
    addresses: tuple[str, ...] = ()
    epoch: int = 0
    jobs_per_minute: int = 0

    def stay(self, held: Resource) -> float:
        """Return how long a worker that holds this may work before it leaves in order; infinite
        without a limit.
        """
        own = held.get(WTime)
        walltime = (
            own.T + self.margin_seconds
            if self.walltime is None and own is not None and own.T is not None
            else self.walltime
        )
        return math.inf if walltime is None else walltime - spare_of(walltime)


SPARE_SECONDS = 15.0
"""A worker leaves this long before its walltime is over."""


def spare_of(walltime: float) -> float:
    """Return how many seconds of a walltime are kept for leaving in order."""
    return min(SPARE_SECONDS, 0.1 * walltime)


MOST_FITTING = 1024


def can_hold(policy: Policy, request: Resource) -> None:
    """Check that workers can ever hold a request: shared workers, or a worker of its own within the
    time that the scheduler gives it. Workers that people start may hold anything.

    Raises:
        ConfigurationError: they cannot; the text says what they hold, or that each is on one node.
    """
    if policy.resources is None:
        time, stay = request.get(WTime), policy.stay(request)
        if time is not None and (time.softT or 0.0) > stay:
            raise ConfigurationError(
                f"{safe_repr(request)} wants {time.softT:g} s, and the scheduler lets a worker "
                f"work for {stay:g} s",
                hint="ask for less, or give the scheduler's jobs more time",
            )
        return
    wanted = booked(request)
    if policy.keeps_others:
        return
    packer = Packer[int, int]([offered(policy, policy.resources)])
    packer.add(0, wanted, 0.0, asked=request)


def fitting(policy: Policy, request: Resource) -> int:
    """Return how many such requests one worker holds at a time, or 0. A worker launched for one
    request has as many slots as all have.
    """
    if policy.resources is None:
        return policy.slots
    request = booked(request)
    try:
        free = FreeResources(offered(policy, policy.resources)).of(request)
        for count in range(MOST_FITTING):
            if not free.can_allocate(request):
                return count
            free.allocate(request)
    except BaseException:  # the same exception comes again when the request is made
        return 0
    return MOST_FITTING


def holds(held: Resource, request: Resource) -> bool:
    """Return whether an idle worker with these resources can be given a request."""
    request = booked(request)
    return FreeResources(held).of(request).can_allocate(request)


def limited(policy: Policy, times: GroupTimes, demand: Demand) -> Resource:
    """Return the present request of a demand. An estimated time never makes it impossible."""
    request = times.limited(demand.request)
    time, own = request.get(WTime), demand.resources.get(WTime)
    if time is None or own is None or time.T is None or time == own:
        return request
    held = demand.resources if policy.resources is None else policy.resources
    soft = min(time.softT or 0.0, max(0.8 * policy.stay(held), own.softT or 0.0))
    return replaced(request, WTime, lambda part: WTime(part.T, softT=soft, group=part.group))


def booked(request: Resource) -> Resource:
    """Return the resources that are booked for a request on a worker that calls share: those of the
    request, with one core if it names none, and with the cores and memory of all its ranks.

    Raises:
        ConfigurationError: the request is for several nodes.
    """
    request = on_one_node(request)
    return request if request.get(Cores) is not None else request & Cores(1)


def lasting(held: Resource, seconds: float) -> Resource:
    """Return the resources with a walltime of this many seconds, at least a millisecond."""
    if math.isinf(seconds):
        return held
    return without_time(held) & WTime(max(seconds, 1e-3))


def without_time(resources: Resource) -> Resource:
    """Return the resources without their time."""
    return functools.reduce(
        operator.and_, (part for part in resources if type(part) is not WTime), ZERO
    )


def asked_only(given: Resource, asked: Resource) -> Resource:
    """Return the given resources of those kinds that were asked for."""
    return functools.reduce(
        operator.and_, (part for part in given if asked.get(type(part)) is not None), ZERO
    )


def offered(policy: Policy, held: Resource) -> Resource:
    """Return the resources that a worker offers when it has connected, of the resources that it
    holds.
    """
    return lasting(held, policy.stay(held))
