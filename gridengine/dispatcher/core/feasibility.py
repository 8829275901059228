"""Whether and how often a worker can hold a request. Pure functions."""

from __future__ import annotations

import functools
import math
import operator

from gridengine.dispatcher.core.policy import Policy
from gridengine.errors import ConfigurationError, safe_repr
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.demand import Demand
from gridengine.resources.estimates import GroupTimes, replaced
from gridengine.resources.free_resources import FreeResources
from gridengine.resources.kinds import Cores, WTime
from gridengine.resources.packing import Packer

MOST_FITTING = 1024


def can_hold(policy: Policy, request: Resource) -> None:
    """Check that workers can ever hold a request: those that are shared, or one of its own for as
    long as the scheduler lets it work. Where people may start workers, these may hold anything.

    Raises:
        ConfigurationError: they cannot; the text says what they hold.
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
    if policy.keeps_others:
        return
    packer = Packer[int, int]([offered(policy, policy.resources)])
    packer.add(0, booked(request), 0.0, asked=request)


def fitting(policy: Policy, request: Resource) -> int:
    """Return how many such requests one worker holds at a time, 0 if it can never hold one; a
    worker that is launched for a request has as many slots as all.
    """
    if policy.resources is None:
        return policy.slots
    request = booked(request)
    try:
        free = FreeResources(offered(policy, policy.resources)).of(request)
        for count in range(MOST_FITTING):
            if not free._request(request):
                return count
            free._alloc(request)
    except BaseException:  # what it raised comes out when it is asked for
        return 0
    return MOST_FITTING


def holds(held: Resource, request: Resource) -> bool:
    """Return whether a worker that holds this, and has nothing to do, can be given a request."""
    request = booked(request)
    return FreeResources(held).of(request)._request(request)


def limited(policy: Policy, times: GroupTimes, demand: Demand) -> Resource:
    """Return what a call of this demand asks for by now. What is only estimated is no reason never
    to begin it.
    """
    request = times.limited(demand.request)
    time, own = request.get(WTime), demand.resources.get(WTime)
    if time is None or own is None or time.T is None or time == own:
        return request
    held = demand.resources if policy.resources is None else policy.resources
    soft = min(time.softT or 0.0, max(0.8 * policy.stay(held), own.softT or 0.0))
    return replaced(request, WTime, lambda part: WTime(part.T, softT=soft, group=part.group))


def booked(request: Resource) -> Resource:
    """Return what is booked for a call that asks for this: one core, if it does not say how
    many.
    """
    return request if request.get(Cores) is not None else request & Cores(1)


def lasting(held: Resource, seconds: float) -> Resource:
    """Return the same, held for so long; at least a millisecond."""
    if math.isinf(seconds):
        return held
    return without_time(held) & WTime(max(seconds, 1e-3))


def without_time(resources: Resource) -> Resource:
    """Return the same for any time."""
    return functools.reduce(
        operator.and_, (part for part in resources if type(part) is not WTime), ZERO
    )


def asked_only(given: Resource, asked: Resource) -> Resource:
    """Return of what was given the kinds that were asked for."""
    return functools.reduce(
        operator.and_, (part for part in given if asked.get(type(part)) is not None), ZERO
    )


def offered(policy: Policy, held: Resource) -> Resource:
    """Return what a worker that holds this offers when it has connected."""
    return lasting(held, policy.stay(held))
