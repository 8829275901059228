"""What tasks ask for and workers hold: how it is said, combined, given, and given back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gridengine.errors import ConfigurationError
from gridengine.resources import Capacity, Cores, GPUs, Memory, Node, Nodes, Ranks, Token, WTime


def limits(resource: Any) -> tuple[Any, Any]:
    return resource.T, resource.softT


def test_changing_the_list_of_cores_changes_no_request() -> None:
    request = Cores(2, [5, 7])
    request.c.append(9)
    assert request.c == [5, 7]


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
        (lambda: Memory("8"), ConfigurationError, "M='8' is not an amount of memory"),
        (lambda: Memory("0G"), ConfigurationError, "M must be above zero"),
        (lambda: Memory(None), TypeError, "M must be a number, not None"),  # type: ignore[arg-type]
        (lambda: Memory(0), ConfigurationError, "M must be above zero, and finite, not 0"),
        (lambda: Memory(math.nan), ConfigurationError, "M must be above zero, and finite, not nan"),
        (lambda: Memory(math.inf), ConfigurationError, "M must be above zero, and finite, not inf"),
        (lambda: WTime("2x"), ConfigurationError, "T='2x' is not a time"),
        (lambda: WTime(60, softT="1:30"), ConfigurationError, "softT='1:30' is not a time"),
        (lambda: WTime(60, softT=61), ConfigurationError, "softT=61 is longer than T=60"),
        (lambda: WTime(60, group=3), TypeError, "group must be a text, not 3"),
        (lambda: Ranks(0), ConfigurationError, "ranks must be at least 1, not 0"),
        (lambda: Ranks("4"), TypeError, "ranks must be a whole number, not '4'"),  # type: ignore[arg-type]
        (lambda: Ranks(2, nodes=3), ConfigurationError, r"Ranks\(2, nodes=3\): fewer ranks than"),
        (lambda: Nodes(0), ConfigurationError, "nodes must be at least 1, not 0"),
        (lambda: Token(""), ConfigurationError, "name must not be empty"),
        (lambda: Token(3), TypeError, "name must be a text, not 3"),
        (lambda: Capacity(0), ConfigurationError, "count must be at least 1, not 0"),
        (lambda: Cores(1) & 2, TypeError, "&"),
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


def test_units_given_back_are_given_again() -> None:
    holder = GPUs(2, ["GPU-1f", "GPU-2a"]).holder()
    first = holder.allocate(GPUs(1))
    holder.allocate(GPUs(1))
    holder.deallocate(first)
    assert holder.allocate(GPUs(1)) == first == GPUs(1, ["GPU-1f"])


def test_a_token_is_not_used_up() -> None:
    holder = Token("fast").holder()
    assert [holder.allocate(Token("fast")) for _ in range(3)] == 3 * [Token("fast")]
    assert not holder.can_allocate(Token("slow"))


def test_a_task_is_not_begun_where_its_soft_limit_has_not_time_left() -> None:
    holder = (Cores(4) & WTime(3600)).holder()
    holder.set_time(1000.0)
    holder.set_time(1000.0 + 3000)
    assert holder.left == 600
    assert holder.can_allocate(WTime(900, softT=600))
    assert not holder.can_allocate(WTime(900))


def test_a_call_without_limit_begins_whatever_time_is_left() -> None:
    holder = (Cores(4) & WTime(60)).holder()
    holder.set_time(0.0)
    holder.set_time(61.0)
    assert holder.left == 0
    assert holder.can_allocate(Cores(1) & WTime())


def test_any_time_is_granted_where_time_has_no_limit() -> None:
    holder = Cores(4).holder()
    given: Any = holder.allocate(Cores(1) & WTime("1-00:00:00"))
    assert given.T == 86_400
    holder.deallocate(given)


def test_time_runs_out_on_holders_alone() -> None:
    asked = WTime(60)
    assert (asked.countdown, asked.holder().countdown) == (False, True)
    asked.set_time(0.0)
    asked.set_time(50.0)
    assert asked.left == 60


def test_a_job_s_grant_has_its_own_limits() -> None:
    holder = WTime(3600).holder()
    assert limits(holder.allocate(WTime(60, softT=30))) == (60, 30)
