"""Demands: what makes two of them equal, and what a factor does to them."""

from __future__ import annotations

from gridengine.resources import ZERO, Capacity, Cores, Memory, WTime
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


def test_a_factor_multiplies_the_memory_alone() -> None:
    demand = Demand(Cores(2) & Memory(1)).with_factor(1.5)
    assert demand.request == Cores(2) & Memory(1.5)
    assert demand.memory_limit == 3 * GIGABYTE // 2
    assert demand != Demand(Cores(2) & Memory(1))


def test_scaling_the_memory_leaves_the_rest() -> None:
    demand = Demand(Cores(2) & Memory(8) & WTime(60)).with_factor(1.5)
    assert demand.request == Cores(2) & Memory(12) & WTime(60)
    assert Demand(Memory(8)).with_factor(2).request == Memory(16)


def test_without_memory_there_is_nothing_to_scale() -> None:
    assert Demand(Cores(2)).with_factor(2).request == Cores(2)
    assert Demand(ZERO).with_factor(2).request == ZERO


def test_without_memory_there_is_no_limit() -> None:
    assert Demand(Cores(2)).with_factor(2).memory_limit == 0


def test_no_more_demands_are_remembered_than_are_told_to_be() -> None:
    known = RememberedDemands()
    for count in range(1, MOST_REMEMBERED + 2):
        known.add(Demand(Cores(count)))
        assert Demand(Cores(count)) in known
        assert len(known) <= MOST_REMEMBERED
