"""Demands: what makes two of them equal, and what a factor does to them."""

from __future__ import annotations

import pytest

from gridengine.resources import ZERO, Capacity, Cores, Memory, Resource, WTime
from gridengine.resources.demand import ANY, MOST_REMEMBERED, Demand, RememberedDemands
from gridengine.resources.units import GIGABYTE


def test_demands_are_equal_when_their_resources_say_the_same() -> None:
    assert Demand(Cores(2) & Memory(1)) == Demand(Memory(1) & Cores(2))
    assert hash(Demand(Cores(2))) == hash(Demand(Cores(2)))
    assert Demand(Cores(2)) != Demand(Cores(3))
    assert Demand(ZERO) == ANY


class Odd(Capacity):
    """A kind of a user's, whose comparison fails later."""

    failing = False

    def _repr(self) -> str:
        if self.failing:
            raise RuntimeError("no")
        return super()._repr()


def test_to_compare_demands_is_no_users_code() -> None:
    one, other = Demand(Odd(1)), Demand(Odd(1))
    Odd.failing = True
    assert one == other


@pytest.mark.parametrize(
    ("resources", "scaled", "limit"),
    [
        (Cores(2) & Memory(8) & WTime(60), Cores(2) & Memory(12) & WTime(60), 12 * GIGABYTE),
        (Memory(1), Memory(1.5), 3 * GIGABYTE // 2),
        (Cores(2), Cores(2), 0),
        (ZERO, ZERO, 0),
    ],
    ids=repr,
)
def test_a_factor_multiplies_the_memory_alone(
    resources: Resource, scaled: Resource, limit: int
) -> None:
    demand = Demand(resources).with_factor(1.5)
    assert (demand.request, demand.memory_limit) == (scaled, limit)
    assert demand != Demand(resources)


def test_no_more_demands_are_remembered_than_are_told_to_be() -> None:
    known = RememberedDemands()
    for count in range(1, MOST_REMEMBERED + 2):
        known.add(Demand(Cores(count)))
        assert Demand(Cores(count)) in known
        assert len(known) <= MOST_REMEMBERED
