"""What is free of what somebody holds."""

from __future__ import annotations

from typing import Any

from gridengine.resources.base import ZERO
from gridengine.resources.free_resources import FreeResources
from gridengine.resources.kinds import Capacity, Cores, Memory, WTime


class Licence(Capacity):
    """A kind of a user's, none of whose code may run unless it is asked for."""

    def _held(self) -> Any:
        raise AssertionError("nobody has asked for licences")


def test_what_one_request_takes_is_missing_to_the_next() -> None:
    free = FreeResources(Cores(4) & Memory(8))
    given = Cores(3)
    assert free.of(given)._request(given)
    free.of(given)._alloc(given)
    assert not free.of(Cores(2))._request(Cores(2))
    assert free.of(Memory(8))._request(Memory(8))


def test_a_kind_that_nobody_asks_for_runs_none_of_its_code() -> None:
    free = FreeResources(Cores(4) & Licence(1))
    assert free.of(Cores(1))._request(Cores(1))


def test_of_what_is_not_held_there_are_no_books() -> None:
    assert list(FreeResources(Cores(4)).of(Memory(1))) == []
    assert list(FreeResources(ZERO).of(ZERO)) == []


def test_time_runs_out_since_then_and_not_since_the_first_request() -> None:
    free = FreeResources(WTime(100), since=1000.0)
    assert free.of(WTime(30), 1060.0)._request(WTime(30))
    assert not free.of(WTime(30), 1080.0)._request(WTime(30))
