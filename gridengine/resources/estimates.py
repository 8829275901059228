"""Estimate limits from the times of similar tasks. Pure."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable

from gridengine.resources.base import ZERO, R, Resource
from gridengine.resources.kinds import WTime
from gridengine.resources.units import MOST

GROUP_RUNS = 8
GROUP_SECONDS = 10.0


def replaced(request: Resource, kind: type[R], new: Callable[[R], Resource]) -> Resource:
    """Return the request with its part of this kind replaced; the same object when it has no such
    part.
    """
    old = request.get(kind)
    if old is None:
        return request
    return functools.reduce(
        operator.and_, (new(old) if part is old else part for part in request), ZERO
    )


class GroupTimes:
    """The limits of groups of similar tasks (`WTime(group="fold")`), estimated from their first 8
    runs of over 10 s.

    T is the mean plus 5 sample standard deviations, softT the mean plus 2. Until then only the
    request's own limits hold.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = {}

    def record(self, group: str, seconds: float) -> None:
        """Record how long a completed run of the group took."""
        known = self._seconds.setdefault(group, [])
        if seconds > GROUP_SECONDS and len(known) < GROUP_RUNS:
            known.append(seconds)

    def limits(self, group: str) -> tuple[float, float] | None:
        """Return T and softT in seconds; None while they are unknown."""
        known = self._seconds.get(group, [])
        if len(known) < GROUP_RUNS:
            return None
        mean = math.fsum(known) / GROUP_RUNS
        deviation = math.sqrt(math.fsum((one - mean) ** 2 for one in known) / (GROUP_RUNS - 1))
        return mean + 5 * deviation, mean + 2 * deviation

    def limited(self, request: Resource) -> Resource:
        """Return the request with its group's limits, where its own are not shorter; the same
        object while they are unknown.
        """
        return replaced(request, WTime, self._limited)

    def _limited(self, time: WTime) -> WTime:
        limits = None if time.group is None else self.limits(time.group)
        if limits is None:
            return time
        hard, soft = (
            min(limit, MOST if own is None else own)
            for limit, own in zip(limits, (time.T, time.softT), strict=True)
        )
        return WTime(hard, softT=min(soft, hard), group=time.group)
