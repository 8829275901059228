"""Resources: how they combine, compare and are given, and the account of a holder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gridengine.resources import ZERO, Capacity, Cores, GPUs, Memory, Node, Resource, Token, WTime
from gridengine.resources.base import FreeResources
from gridengine.serialize.pickling import dump, load


class Seats(Resource):
    """A kind of a user's own, from nothing: seats of a licence."""

    def __init__(self, product: str, seats: int = 1) -> None:
        self.product, self.seats = product, seats
        self._free = seats

    def can_allocate(self, res: Any) -> bool:
        return bool(res.product == self.product and res.seats <= self._free)

    def allocate(self, res: Any) -> Seats:
        self._free -= res.seats
        return Seats(res.product, res.seats)

    def deallocate(self, res: Any) -> None:
        self._free += res.seats

    def expression(self) -> str:
        return f"Seats({self.product!r}, {self.seats})"

    def usage(self) -> tuple[int, int]:
        return self.seats - self._free, self.seats


class Disk(Capacity):
    """A kind of a user's own in two lines: so many tasks at a time on a slow disk."""


class Moody(Capacity):
    """Says yes, and fails when it comes to giving."""

    def allocate(self, res: Any) -> Resource:
        raise RuntimeError("not today")


class Forgetful(Capacity):
    """Its `allocate` returns nothing."""

    def allocate(self, res: Any) -> Resource:
        super().allocate(res)
        return None  # type: ignore[return-value]


def test_the_attributes_of_all_parts_are_on_the_combined_request() -> None:
    request: Any = Cores(4) & Memory(8) & GPUs(2) & WTime("2:00:00", group="fold") & Token("fast")
    said = request.N, request.M, len(request.g), request.T, request.softT
    assert said == (4, 8, 2, 7200, 7200)
    assert (request.group, request.countdown, request.name) == ("fold", False, "fast")


def test_equal_requests_are_equal_and_hash_alike_in_whatever_order_they_were_combined() -> None:
    one, other = Cores(4) & Memory(8) & WTime("2:00:00"), WTime(7200.0) & (Memory(8.0) & Cores(4))
    assert one == other
    assert hash(one) == hash(other)
    assert {one: "pool"}[other] == "pool"


@pytest.mark.parametrize(
    "request_",
    [
        Cores(2, [5, 7]),
        GPUs(2, ["GPU-1f", "GPU-2a"]),
        Node(4, 8.5),
        WTime("1-02:03:04", softT=60, group="fold", countdown=True),
        Token("a 'b'"),
        Cores(1) & Disk(3) & Seats("matlab", 2),
    ],
    ids=repr,
)
def test_the_repr_of_a_resource_is_the_call_that_makes_it(request_: Resource) -> None:
    assert eval(repr(request_)) == request_


def test_a_kind_that_cannot_be_imported_travels_too() -> None:
    class Local(Capacity):
        pass

    request = Cores(2) & Local(3)
    arrived = load(dump(request))
    assert arrived == request
    assert arrived.get(Local).count == 3


@pytest.mark.parametrize(
    "combine", [lambda: Cores(1) & Cores(2), lambda: Node(1, 2) & (Token("a") & Memory(2))]
)
def test_one_kind_twice_is_an_error_that_names_it(combine: Callable[[], Resource]) -> None:
    with pytest.raises(ValueError, match=r"(Cores|Memory) twice"):
        combine()


@pytest.mark.parametrize(
    ("request_", "name"),
    [(Cores(4), "N"), (Memory(8), "M"), (WTime(60), "T"), (Node(4, 8), "M"), (Node(4, 8), "new")],
)
def test_a_request_cannot_be_changed(request_: Resource, name: str) -> None:
    with pytest.raises(AttributeError, match="does not change"):
        setattr(request_, name, 1)


def test_an_attribute_that_two_parts_have_must_be_asked_of_one() -> None:
    both: Any = Capacity(1) & Disk(2)
    with pytest.raises(AttributeError, match="Capacity and Disk have"):
        _ = both.count
    assert both.get(Disk).count == 2


def test_an_attribute_that_no_part_has_is_an_attribute_error() -> None:
    assert not hasattr(Cores(1) & Memory(1), "g")


def test_a_part_is_found_by_its_kind() -> None:
    assert Node(4, 8).get(Memory) == Memory(8)
    assert Node(4, 8).get(GPUs) is None
    assert Cores(4).get(Cores) == Cores(4)


def test_a_holder_refuses_more_than_is_free() -> None:
    holder = Node(4, 8).holder()
    holder.allocate(Node(3, 2))
    assert holder.can_allocate(Node(1, 6))
    assert not holder.can_allocate(Cores(2))
    assert not holder.can_allocate(Memory(6.1))


def test_nothing_fits_everywhere() -> None:
    assert ZERO.holder().allocate(ZERO) == ZERO


def test_giving_more_than_is_free_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"Cores\(4\) has not Cores\(5\) free"):
        Cores(4).holder().allocate(Cores(5))


@pytest.mark.parametrize(
    ("held", "asked"),
    [(Cores(4), Cores(2)), (Memory(4), Memory(2)), (Capacity(4), Capacity(2))],
    ids=repr,
)
def test_giving_back_twice_is_an_error(held: Resource, asked: Resource) -> None:
    holder = held.holder()
    given = holder.allocate(asked)
    holder.deallocate(given)
    with pytest.raises(ValueError, match="has it back already"):
        holder.deallocate(given)


def test_giving_back_resources_that_were_never_held_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"Cores\(4\) never gave GPUs\(1\)"):
        Cores(4).holder().deallocate(GPUs(1))


def test_the_parts_that_can_be_given_back_are_when_one_cannot() -> None:
    holder = Node(4, 8).holder()
    holder.allocate(Memory(8))
    with pytest.raises(ValueError, match="never gave"):
        holder.deallocate(Cores(1, [0]) & Memory(8))
    assert holder.can_allocate(Memory(8))


def test_a_combined_allocation_that_fails_in_one_part_gives_back_the_others() -> None:
    holder = (Cores(4) & Memory(8) & Seats("matlab") & Moody(1)).holder()
    with pytest.raises(RuntimeError, match="not today"):
        holder.allocate(Cores(4) & Seats("matlab") & Moody(1) & Memory(8))
    assert holder.can_allocate(Cores(4) & Memory(8) & Seats("matlab"))


def test_an_alloc_that_returns_something_else_is_an_error_that_names_it() -> None:
    holder = (Cores(4) & Forgetful(1)).holder()
    with pytest.raises(TypeError, match="must return a Forgetful, not None"):
        holder.allocate(Cores(4) & Forgetful(1))
    assert holder.can_allocate(Cores(4))


def test_a_holder_keeps_account_of_its_own() -> None:
    resources = Node(4, 8) & Seats("matlab")
    resources.holder().allocate(resources)
    assert resources.holder().can_allocate(resources)


def test_a_holder_stays_equal_to_the_resource_that_it_was_made_of() -> None:
    resources = Node(4, 8)
    holder = resources.holder()
    holder.allocate(Cores(3))
    assert holder == resources
    assert hash(holder) == hash(resources)


def test_the_share_in_use_is_that_of_the_most_used_part() -> None:
    holder = (Cores(4) & Memory(8) & Token("fast")).holder()
    assert holder.usage() == (0, 4)
    holder.allocate(Cores(1) & Memory(6.5))
    assert holder.usage() == (6.5, 8)
    assert ZERO.usage() == (0, 0)


class Licence(Capacity):
    """A kind of a user's, none of whose code may run unless it is asked for."""

    def _held(self) -> Any:
        raise AssertionError("nobody has asked for licences")


def test_a_granted_request_is_missing_to_the_next() -> None:
    free = FreeResources(Cores(4) & Memory(8))
    given = Cores(3)
    assert free.of(given).can_allocate(given)
    free.of(given).allocate(given)
    assert not free.of(Cores(2)).can_allocate(Cores(2))
    assert free.of(Memory(8)).can_allocate(Memory(8))


def test_a_kind_that_nobody_asks_for_runs_none_of_its_code() -> None:
    free = FreeResources(Cores(4) & Licence(1))
    assert free.of(Cores(1)).can_allocate(Cores(1))


def test_no_books_are_kept_of_resources_not_held() -> None:
    assert list(FreeResources(Cores(4)).of(Memory(1))) == []
    assert list(FreeResources(ZERO).of(ZERO)) == []


def test_time_runs_out_since_then_and_not_since_the_first_request() -> None:
    free = FreeResources(WTime(100), since=1000.0)
    assert free.of(WTime(30), 1060.0).can_allocate(WTime(30))
    assert not free.of(WTime(30), 1080.0).can_allocate(WTime(30))


def test_a_kind_with_the_former_names_still_works() -> None:
    with pytest.warns(DeprecationWarning, match="call it allocate") as warned:

        class Licences(Capacity):
            def _alloc(self, res: Any) -> Resource:
                assert self._request(res)
                return super()._alloc(res)  # type: ignore[misc, no-any-return]

            def _native(self, system: str) -> list[str]:
                return ["-l", f"licences={self.count}"]

    assert [one.filename for one in warned] == 2 * [__file__]
    holder = (Cores(2) & Licences(2)).holder()
    assert holder.allocate(Licences(2)) == Licences(2)
    assert not holder.can_allocate(Licences(1))
    assert Licences(3).native_options("slurm") == ["-l", "licences=3"]


def test_the_former_names_of_a_mixin_still_work() -> None:
    class Refusing:
        def _request(self, res: Any) -> bool:
            return False

    with pytest.warns(DeprecationWarning, match="call it can_allocate"):

        class Licences(Refusing, Capacity):
            pass

    holder: Any = Licences(3).holder()
    assert not holder.can_allocate(Licences(1))
    assert not holder._request(Licences(1))


def test_a_kind_of_both_names_gets_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    class Licences(Capacity):
        def usage(self) -> tuple[float, float]:
            return 1, 2

        _stat = usage

    assert not recwarn.list
    assert Licences(1).usage() == (1, 2)
