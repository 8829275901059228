"""Requests changed by what was learnt."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gridengine.resources import ZERO, Cores, Resource, WTime
from gridengine.resources.estimates import GroupTimes
from gridengine.resources.units import MOST


def limits(resource: Any) -> tuple[Any, Any]:
    return resource.T, resource.softT


def known_group() -> GroupTimes:
    times = GroupTimes()
    for seconds in (20, 40, 20, 40, 20, 40, 20, 40):
        times.record("fold", seconds)
    return times


DEVIATION = math.sqrt(8 * 10**2 / 7)


def test_a_group_is_unlimited_until_eight_runs_of_over_ten_seconds_are_known() -> None:
    times = GroupTimes()
    for seconds in (*range(11, 18), 10, 1):
        times.record("fold", seconds)
    assert times.limits("fold") is None
    times.record("fold", 18)
    assert times.limits("fold") is not None


def test_later_runs_do_not_move_the_limits() -> None:
    times = known_group()
    before = times.limits("fold")
    times.record("fold", 10_000)
    assert times.limits("fold") == before


def test_a_request_gets_the_limits_of_its_group() -> None:
    limited = known_group().limited(Cores(2) & WTime(group="fold"))
    assert limits(limited) == pytest.approx((30 + 5 * DEVIATION, 30 + 2 * DEVIATION))
    assert limited.get(Cores) == Cores(2)


def test_limits_beyond_what_a_request_may_have_are_cut() -> None:
    times = GroupTimes()
    for seconds in (*[11] * 7, 1e12):
        times.record("fold", seconds)
    assert limits(times.limited(WTime(group="fold"))) == (MOST, MOST)


def test_a_shorter_limit_that_was_asked_for_stands() -> None:
    assert limits(known_group().limited(WTime(45, group="fold"))) == (45, 45)


@pytest.mark.parametrize("request_", [ZERO, Cores(2), WTime(60), WTime(group="other")], ids=repr)
def test_a_request_of_no_known_group_stays_as_it_is(request_: Resource) -> None:
    assert known_group().limited(request_) is request_
