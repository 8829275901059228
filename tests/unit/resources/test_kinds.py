"""What tasks ask for and workers hold: how it is said, combined, given, and given back."""

from __future__ import annotations

import doctest
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gridengine
from gridengine.errors import ConfigurationError
from gridengine.resources import ZERO, Capacity, Cores, GPUs, Memory, Node, Resource, Token, WTime
from gridengine.resources.estimates import GroupTimes, scaled
from gridengine.resources.units import format_seconds, parse_seconds, to_bytes, to_gigabytes
from gridengine.serialize.pickling import dump, load


class Seats(Resource):
    """A kind of a user's own, from nothing: seats of a licence."""

    def __init__(self, product: str, seats: int = 1) -> None:
        self.product, self.seats = product, seats
        self._free = seats

    def _request(self, res: Any) -> bool:
        return bool(res.product == self.product and res.seats <= self._free)

    def _alloc(self, res: Any) -> Seats:
        self._free -= res.seats
        return Seats(res.product, res.seats)

    def _dealloc(self, res: Any) -> None:
        self._free += res.seats

    def _repr(self) -> str:
        return f"Seats({self.product!r}, {self.seats})"

    def _stat(self) -> tuple[int, int]:
        return self.seats - self._free, self.seats

    def _native(self, system: str) -> list[str]:
        return (
            ["-l", f"{self.product}={self.seats}"]
            if system == "gridengine"
            else [f"--licenses={self.product}:{self.seats}"]
        )


class Disk(Capacity):
    """A kind of a user's own in two lines: so many tasks at a time on a slow disk."""


class Moody(Capacity):
    """Says yes, and fails when it comes to giving."""

    def _alloc(self, res: Any) -> Resource:
        raise RuntimeError("not today")


class Forgetful(Capacity):
    """Its `_alloc` returns nothing."""

    def _alloc(self, res: Any) -> Resource:
        super()._alloc(res)
        return None  # type: ignore[return-value]


def limits(resource: Any) -> tuple[Any, Any]:
    return resource.T, resource.softT


# -------------------------------------------------------------------- what is asked


def test_the_attributes_of_all_parts_are_on_the_combined_request() -> None:
    request: Any = Cores(4) & Memory(8) & GPUs(2) & WTime("2:00:00", group="fold") & Token("fast")
    assert (request.N, request.M, len(request.g), request.T, request.softT, request.group, request.countdown, request.name) == (
        4, 8, 2, 7200, 7200, "fold", False, "fast",
    )  # fmt: skip


def test_equal_requests_are_equal_and_hash_alike_in_whatever_order_they_were_combined() -> None:
    one, other = Cores(4) & Memory(8) & WTime("2:00:00"), WTime(7200.0) & (Memory(8.0) & Cores(4))
    assert one == other
    assert hash(one) == hash(other)
    assert {one: "pool"}[other] == "pool"


@pytest.mark.parametrize(
    "other",
    [
        Cores(5),
        Cores(4, [0, 1, 2, 3]),
        GPUs(4),
        Capacity(4),
        Disk(4),
        Memory(4),
        Cores(4) & Memory(1),
        ZERO,
        WTime(4),
        Token("4"),
        4,
    ],
    ids=repr,
)
def test_what_asks_for_something_else_is_not_equal(other: object) -> None:
    assert Cores(4) != other


@pytest.mark.parametrize(
    "request_",
    [
        ZERO,
        Cores(4),
        Cores(2, [5, 7]),
        GPUs(2, ["GPU-1f", "GPU-2a"]),
        Memory(8),
        Memory(0.1),
        Node(4, 8.5),
        WTime(),
        WTime(30.5),
        WTime("1-02:03:04", softT=60, group="fold", countdown=True),
        WTime(group="fold"),
        Token("a 'b'"),
        Capacity(),
        Cores(1) & Disk(3) & Seats("matlab", 2),
    ],
    ids=repr,
)
def test_its_repr_is_the_call_that_makes_it(request_: Resource) -> None:
    assert eval(repr(request_)) == request_


@pytest.mark.parametrize(
    "request_",
    [ZERO, Cores(2, [5, 7]) & Memory(0.1) & WTime(60, group="a") & Seats("matlab")],
    ids=repr,
)
def test_it_travels(request_: Resource) -> None:
    assert pickle.loads(pickle.dumps(request_)) == request_
    assert load(dump(request_)) == request_


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


def test_nothing_changes_nothing() -> None:
    assert Cores(4) & ZERO == ZERO & Cores(4) == Cores(4)
    assert ZERO & ZERO == ZERO


@pytest.mark.parametrize(
    ("request_", "name"),
    [(Cores(4), "N"), (Memory(8), "M"), (WTime(60), "T"), (Node(4, 8), "M"), (Node(4, 8), "new")],
)
def test_a_request_cannot_be_changed(request_: Resource, name: str) -> None:
    with pytest.raises(AttributeError, match="does not change"):
        setattr(request_, name, 1)


def test_changing_the_list_of_cores_changes_no_request() -> None:
    request = Cores(2, [5, 7])
    request.c.append(9)
    assert request.c == [5, 7]


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


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Cores(0), ConfigurationError, "N must be at least 1, not 0"),
        (
            lambda: Cores(10**30),
            ConfigurationError,
            "N must be at most 2,147,483,647, not 1000000000000000000000000000000",
        ),
        (lambda: Cores(10**5000), ConfigurationError, "not a number of 16610 bits"),
        (
            lambda: Memory(1e308),
            ConfigurationError,
            r"M must be at most 2,147,483,647, not 1e\+308",
        ),
        (lambda: Memory(10**400), ConfigurationError, "M must be above zero, and finite"),
        (lambda: WTime(1e308), ConfigurationError, r"T must be at most 2,147,483,647, not 1e\+308"),
        (lambda: WTime("99999999999-00:00:00"), ConfigurationError, "is not a time"),
        (lambda: Cores(2.5), TypeError, r"N must be a whole number, not 2\.5"),
        (lambda: Cores(True), TypeError, "N must be a whole number, not True"),
        (lambda: Cores(2, [1, 1]), ConfigurationError, r"\[1, 1\]"),
        (lambda: Cores(2, [1]), ConfigurationError, r"\[1\]"),
        (lambda: Cores(2, "12"), ConfigurationError, "12"),
        (lambda: GPUs(-1), ConfigurationError, "N must be at least 1, not -1"),
        (lambda: Memory("8G"), TypeError, "M must be a number, not '8G'"),
        (lambda: Memory(0), ConfigurationError, "M must be above zero, and finite, not 0"),
        (lambda: Memory(math.nan), ConfigurationError, "M must be above zero, and finite, not nan"),
        (lambda: Memory(math.inf), ConfigurationError, "M must be above zero, and finite, not inf"),
        (lambda: WTime("2h"), ConfigurationError, "T='2h' is not a time"),
        (lambda: WTime(60, softT="1:30"), ConfigurationError, "softT='1:30' is not a time"),
        (lambda: WTime(60, softT=61), ConfigurationError, "softT=61 is longer than T=60"),
        (lambda: WTime(60, group=3), TypeError, "group must be a text, not 3"),
        (lambda: Token(""), ConfigurationError, "name must not be empty"),
        (lambda: Token(3), TypeError, "name must be a text, not 3"),
        (lambda: Capacity(0), ConfigurationError, "count must be at least 1, not 0"),
        (lambda: Cores(1) & 2, TypeError, "&"),
        (
            lambda: scaled(Memory(1), memory=0),
            ConfigurationError,
            "memory must be above zero, and finite, not 0",
        ),
    ],
)
def test_bad_input_is_an_error_that_names_argument_and_value(
    make: Callable[[], Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        make()


def test_numbers_of_numpy_are_numbers() -> None:
    assert Cores(np.int64(4)) & Memory(np.float32(8)) == Node(4, 8)  # type: ignore[arg-type]
    assert type(Cores(np.int64(4)).N) is int  # type: ignore[arg-type]


# -------------------------------------------------------------------- what is held and given


def test_what_is_given_has_numbers_of_its_own() -> None:
    holder = Cores(4, [2, 3, 6, 7]).holder()
    first, second = holder._alloc(Cores(1)), holder._alloc(Cores(3))
    assert (first.c, second.c, second.N) == ([2], [3, 6, 7], 3)  # type: ignore[attr-defined]


def test_what_was_given_back_is_given_again() -> None:
    holder = GPUs(2, ["GPU-1f", "GPU-2a"]).holder()
    first = holder._alloc(GPUs(1))
    holder._alloc(GPUs(1))
    holder._dealloc(first)
    assert holder._alloc(GPUs(1)) == first == GPUs(1, ["GPU-1f"])


def test_a_holder_says_no_to_more_than_is_free() -> None:
    holder = Node(4, 8).holder()
    holder._alloc(Node(3, 2))
    assert holder._request(Node(1, 6))
    assert not holder._request(Cores(2))
    assert not holder._request(Memory(6.1))


def test_a_holder_says_no_to_a_kind_it_does_not_hold() -> None:
    assert not Cores(4).holder()._request(Cores(1) & GPUs(1))
    assert not ZERO.holder()._request(Capacity(1))


def test_nothing_fits_everywhere() -> None:
    assert ZERO.holder()._alloc(ZERO) == ZERO


def test_giving_more_than_is_free_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"Cores\(4\) has not Cores\(5\) free"):
        Cores(4).holder()._alloc(Cores(5))


@pytest.mark.parametrize(
    ("held", "asked"),
    [(Cores(4), Cores(2)), (Memory(4), Memory(2)), (Capacity(4), Capacity(2))],
    ids=repr,
)
def test_giving_back_twice_is_an_error(held: Resource, asked: Resource) -> None:
    holder = held.holder()
    given = holder._alloc(asked)
    holder._dealloc(given)
    with pytest.raises(ValueError, match="has it back already"):
        holder._dealloc(given)


def test_giving_back_what_was_never_held_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"Cores\(4\) never gave GPUs\(1\)"):
        Cores(4).holder()._dealloc(GPUs(1))


def test_the_parts_that_can_be_given_back_are_when_one_cannot() -> None:
    holder = Node(4, 8).holder()
    holder._alloc(Memory(8))
    with pytest.raises(ValueError, match="never gave"):
        holder._dealloc(Cores(1, [0]) & Memory(8))
    assert holder._request(Memory(8))


def test_a_combined_allocation_that_fails_in_one_part_gives_back_the_others() -> None:
    holder = (Cores(4) & Memory(8) & Seats("matlab") & Moody(1)).holder()
    with pytest.raises(RuntimeError, match="not today"):
        holder._alloc(Cores(4) & Seats("matlab") & Moody(1) & Memory(8))
    assert holder._request(Cores(4) & Memory(8) & Seats("matlab"))


def test_an_alloc_that_returns_something_else_is_an_error_that_says_so() -> None:
    holder = (Cores(4) & Forgetful(1)).holder()
    with pytest.raises(TypeError, match="must return a Forgetful, not None"):
        holder._alloc(Cores(4) & Forgetful(1))
    assert holder._request(Cores(4))


def test_a_holder_has_books_of_its_own() -> None:
    resources = Node(4, 8) & Seats("matlab")
    resources.holder()._alloc(resources)
    assert resources.holder()._request(resources)


def test_a_holder_stays_equal_to_what_it_was_made_of() -> None:
    resources = Node(4, 8)
    holder = resources.holder()
    holder._alloc(Cores(3))
    assert holder == resources
    assert hash(holder) == hash(resources)


def test_what_is_in_use_is_told_by_the_part_that_is_used_up_most() -> None:
    holder = (Cores(4) & Memory(8) & Token("fast")).holder()
    assert holder._stat() == (0, 4)
    holder._alloc(Cores(1) & Memory(6.5))
    assert holder._stat() == (6.5, 8)
    assert ZERO._stat() == (0, 0)


def test_parts_of_memory_that_are_no_round_number_add_up() -> None:
    holder = Memory(1).holder()
    given = [holder._alloc(Memory(0.1)) for _ in range(10)]
    for one in given:
        holder._dealloc(one)
    assert holder._request(Memory(1))


def test_a_token_is_not_used_up() -> None:
    holder = Token("fast").holder()
    assert [holder._alloc(Token("fast")) for _ in range(3)] == 3 * [Token("fast")]
    assert not holder._request(Token("slow"))


def test_capacity_counts_tasks() -> None:
    holder = Capacity(2).holder()
    holder._alloc(Capacity())
    holder._alloc(Capacity())
    assert not holder._request(Capacity())


def test_a_subclass_is_a_kind_of_its_own() -> None:
    holder = (Capacity(1) & Disk(5)).holder()
    assert holder._request(Disk(5))
    assert not holder._request(Capacity(5))


def test_a_kind_of_the_users_own_says_its_native_words() -> None:
    assert Seats("matlab", 2)._native("gridengine") == ["-l", "matlab=2"]
    assert list(Cores(2)._native("slurm")) == []


# -------------------------------------------------------------------- time


def test_a_task_is_not_begun_where_its_soft_limit_has_not_time_left() -> None:
    holder = (Cores(4) & WTime(3600)).holder()
    holder._at(1000.0)
    holder._at(1000.0 + 3000)
    assert holder.left == 600
    assert holder._request(WTime(900, softT=600))
    assert not holder._request(WTime(900))


def test_what_has_no_limit_is_begun_whatever_time_is_left() -> None:
    holder = (Cores(4) & WTime(60)).holder()
    holder._at(0.0)
    holder._at(61.0)
    assert holder.left == 0
    assert holder._request(Cores(1) & WTime())


def test_where_nobody_limits_time_any_time_is_granted() -> None:
    holder = Cores(4).holder()
    given: Any = holder._alloc(Cores(1) & WTime("1-00:00:00"))
    assert given.T == 86_400
    holder._dealloc(given)


def test_time_runs_out_on_holders_alone() -> None:
    asked = WTime(60)
    assert (asked.countdown, asked.holder().countdown) == (False, True)
    asked._at(0.0)
    asked._at(50.0)
    assert asked.left == 60


def test_what_a_job_is_given_says_its_own_limits() -> None:
    holder = WTime(3600).holder()
    assert limits(holder._alloc(WTime(60, softT=30))) == (60, 30)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2:00:00", 7200),
        ("00:00:01", 1),
        ("100:00:00", 360_000),
        ("1-12:30:05", 131_405),
        (" 0:01:00 ", 60),
        (1.5, 1.5),
    ],
)
def test_times_are_read(text: str | float, seconds: float) -> None:
    assert parse_seconds("T", text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "60",
        "1:30",
        "0:00:00",
        "1:60:00",
        "1:00:60",
        "1-24:00:00",
        "-1:00:00",
        "1:00:00.5",
        "1-1:0:0",
        "\u0661:00:00",
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"limit='.*' is not a time"):
        parse_seconds("limit", text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "00:00:01"), (7200, "02:00:00"), (86_399.5, "1-00:00:00"), (131_405, "1-12:30:05")],
)
def test_times_are_written_and_rounded_up(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_a_gigabyte_is_what_batch_systems_call_one() -> None:
    assert to_bytes(1.5) == 3 * 2**29
    assert to_gigabytes(2**30) == 1


# -------------------------------------------------------------------- what was learnt


def test_scaling_the_memory_leaves_the_rest() -> None:
    assert scaled(Cores(2) & Memory(8) & WTime(60), memory=1.5) == Cores(2) & Memory(12) & WTime(60)
    assert scaled(Memory(8), memory=2) == Memory(16)


def test_without_memory_there_is_nothing_to_scale() -> None:
    assert scaled(Cores(2), memory=2) == Cores(2)
    assert scaled(ZERO, memory=2) == ZERO


def known_group() -> GroupTimes:
    times = GroupTimes()
    for seconds in (20, 40, 20, 40, 20, 40, 20, 40):
        times.ran("fold", seconds)
    return times


DEVIATION = math.sqrt(8 * 10**2 / 7)


def test_a_group_is_unlimited_until_eight_runs_of_over_ten_seconds_are_known() -> None:
    times = GroupTimes()
    for seconds in (*range(11, 18), 10, 1):
        times.ran("fold", seconds)
    assert times.limits("fold") is None
    times.ran("fold", 18)
    assert times.limits("fold") is not None


def test_a_groups_limits_are_its_mean_and_deviations() -> None:
    assert known_group().limits("fold") == pytest.approx((30 + 5 * DEVIATION, 30 + 2 * DEVIATION))


def test_later_runs_do_not_move_the_limits() -> None:
    times = known_group()
    before = times.limits("fold")
    times.ran("fold", 10_000)
    assert times.limits("fold") == before


def test_a_request_gets_the_limits_of_its_group() -> None:
    limited = known_group().limited(Cores(2) & WTime(group="fold"))
    assert limits(limited) == pytest.approx((30 + 5 * DEVIATION, 30 + 2 * DEVIATION))
    assert limited.get(Cores) == Cores(2)


def test_a_shorter_limit_that_was_asked_for_stands() -> None:
    assert limits(known_group().limited(WTime(45, group="fold"))) == (45, 45)


@pytest.mark.parametrize("request_", [ZERO, Cores(2), WTime(60), WTime(group="other")], ids=repr)
def test_a_request_of_no_known_group_stays_as_it_is(request_: Resource) -> None:
    assert known_group().limited(request_) is request_


# -------------------------------------------------------------------- the face


@pytest.mark.parametrize(
    "name", ["Cores", "Memory", "Node", "GPUs", "WTime", "Token", "Capacity", "ZERO"]
)
def test_the_kinds_are_on_the_face(name: str) -> None:
    assert getattr(gridengine, name) is getattr(gridengine.resources, name)
    assert name in gridengine.__all__


def test_the_users_page_is_true() -> None:
    failed, tried = doctest.testfile(
        str(Path(__file__).parents[3] / "docs" / "resources.md"), module_relative=False
    )
    assert failed == 0
    assert tried > 10
