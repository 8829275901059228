"""Demands: which are equal, the effect of a factor, estimated limits, and plain data."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from gridengine.arguments import GIGABYTE, MOST
from gridengine.errors import ConfigurationError
from gridengine.resources import (
    ZERO,
    Capacity,
    Cores,
    GPUs,
    Memory,
    Nodes,
    Ranks,
    Resource,
    Token,
    WTime,
)
from gridengine.resources.demand import (
    ANY,
    MOST_REMEMBERED,
    Demand,
    GroupTimes,
    RememberedDemands,
    cores_of_rank,
    decode_demand,
    encode_demand,
    on_one_node,
    worker_command,
)
from gridengine.wire.messages import EncodedDemand


def test_demands_are_equal_when_their_resources_say_the_same() -> None:
    assert Demand(Cores(2) & Memory(1)) == Demand(Memory(1) & Cores(2))
    assert hash(Demand(Cores(2))) == hash(Demand(Cores(2)))
    assert Demand(Cores(2)) != Demand(Cores(3))
    assert Demand(ZERO) == ANY


class Odd(Capacity):
    """A kind of a user's, whose comparison fails later."""

    failing = False

    def expression(self) -> str:
        if self.failing:
            raise RuntimeError("no")
        return super().expression()


def test_comparing_demands_runs_no_users_code() -> None:
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


def test_limits_above_the_maximum_of_a_request_are_cut() -> None:
    times = GroupTimes()
    for seconds in (*[11] * 7, 1e12):
        times.record("fold", seconds)
    assert limits(times.limited(WTime(group="fold"))) == (MOST, MOST)


def test_a_shorter_limit_that_was_asked_for_stands() -> None:
    assert limits(known_group().limited(WTime(45, group="fold"))) == (45, 45)


@pytest.mark.parametrize("request_", [ZERO, Cores(2), WTime(60), WTime(group="other")], ids=repr)
def test_a_request_of_no_known_group_stays_as_it_is(request_: Resource) -> None:
    assert known_group().limited(request_) is request_


@pytest.mark.parametrize(
    "resources",
    [
        ZERO,
        Cores(3),
        Cores(2, [4, 6]),
        GPUs(1),
        GPUs(2, ["a", 1]),
        Memory(0.1),
        Memory("512M"),
        Capacity(4),
        Token("licence"),
        Ranks(8),
        Nodes(4) & Cores(16),
        WTime(),
        WTime("1:00:00", softT=60, group="g"),
        Cores(1) & Memory(2) & WTime(5) & Token("t"),
    ],
    ids=repr,
)
def test_a_demand_s_data_makes_an_equal_demand(resources: Resource) -> None:
    demand = Demand(resources, 1.5)
    wire = msgspec.msgpack.encode(encode_demand(demand))
    assert decode_demand(*msgspec.msgpack.decode(wire, type=EncodedDemand)) == demand


@pytest.mark.parametrize(
    ("asked", "of_one_node"),
    [
        (Cores(2) & Memory(1), Cores(2) & Memory(1)),
        (Ranks(4), Ranks(4) & Cores(4)),
        (Ranks(4, nodes=1) & Token("t"), Ranks(4, nodes=1) & Token("t") & Cores(4)),
        (Ranks(4) & Cores(2) & Memory(1.5), Ranks(4) & Cores(8) & Memory(6)),
    ],
    ids=repr,
)
def test_a_single_node_has_the_cores_and_memory_of_all_ranks(
    asked: Resource, of_one_node: Resource
) -> None:
    assert on_one_node(asked) == of_one_node


def test_a_demand_for_one_node_differs_from_one_for_several() -> None:
    words = r"Ranks\(4, nodes=2\) asks for 2 nodes, and a worker by hand is on one"
    with pytest.raises(ConfigurationError, match=words):
        on_one_node(Ranks(4, nodes=2), "a worker by hand")


@pytest.mark.parametrize(
    ("given", "cores"),
    [
        (Cores(4), 0),
        (Ranks(4), 1),
        (Ranks(4) & Cores(2), 2),
        (Ranks(4) & Cores(8, list(range(8))), 2),
    ],
    ids=repr,
)
def test_a_rank_has_its_own_cores_or_its_part_of_numbered_ones(given: Resource, cores: int) -> None:
    assert cores_of_rank(given) == cores


def test_a_worker_by_hand_for_ranks_has_the_cores_of_all() -> None:
    assert worker_command(Ranks(4) & Cores(2)) == "gridengine worker NAME --cores 8"


class Licence(Capacity):
    pass


def test_a_kind_of_a_user_s_own_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="Licence is a kind of your own"):
        encode_demand(Demand(Cores(1) & Licence(2)))


@pytest.mark.parametrize(
    "parts", [[("Nonesuch", [])], [("Cores", ["x"])], [("WTime", [1])], [("Cores", [1])] * 2]
)
def test_data_of_no_demand_is_refused(parts: list[tuple[str, list[object]]]) -> None:
    with pytest.raises((TypeError, ValueError, LookupError)):
        decode_demand(parts, 1.0)
