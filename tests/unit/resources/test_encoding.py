"""Demands as plain data, and back."""

from __future__ import annotations

import msgspec
import pytest

from gridengine.errors import ConfigurationError
from gridengine.resources import ZERO, Capacity, Cores, GPUs, Memory, Resource, Token, WTime
from gridengine.resources.demand import Demand, decode_demand, encode_demand
from gridengine.wire.messages import EncodedDemand


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
        WTime(),
        WTime("1:00:00", softT=60, group="g"),
        Cores(1) & Memory(2) & WTime(5) & Token("t"),
    ],
    ids=repr,
)
def test_what_was_made_of_a_demand_makes_an_equal_one(resources: Resource) -> None:
    demand = Demand(resources, 1.5)
    wire = msgspec.msgpack.encode(encode_demand(demand))
    assert decode_demand(*msgspec.msgpack.decode(wire, type=EncodedDemand)) == demand


class Licence(Capacity):
    pass


def test_a_kind_of_a_user_s_own_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="Licence is a kind of your own"):
        encode_demand(Demand(Cores(1) & Licence(2)))


@pytest.mark.parametrize(
    "parts", [[("Nonesuch", [])], [("Cores", ["x"])], [("WTime", [1])], [("Cores", [1])] * 2]
)
def test_what_no_demand_was_made_into_is_refused(parts: list[tuple[str, list[object]]]) -> None:
    with pytest.raises((TypeError, ValueError, LookupError)):
        decode_demand(parts, 1.0)
