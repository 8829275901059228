"""Checks of users' arguments."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from gridengine.arguments import (
    flag,
    format_seconds,
    number,
    parse_gigabytes,
    parse_seconds,
    to_bytes,
    to_gigabytes,
    whole,
)
from gridengine.errors import ConfigurationError


def test_a_number_too_small_and_one_too_large_have_different_errors() -> None:
    with pytest.raises(ConfigurationError) as small:
        whole("N", 0, hint="say none")
    with pytest.raises(ConfigurationError) as large:
        whole("N", 10**30, hint="say none")
    assert (small.value.hint, large.value.hint) == ("say none", None)


class bool_:
    def __bool__(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("value", "means"), [(True, True), (False, False), (1, True), (0, False), (bool_(), False)]
)
def test_truth_values_are_taken(value: object, means: bool) -> None:
    assert flag("wait", value) is means


@pytest.mark.parametrize("value", ["no", "", None, 2, 1.0, [], [True]])
def test_a_value_that_is_no_truth_value_is_refused_by_name(value: object) -> None:
    with pytest.raises(TypeError) as raised:
        flag("wait", value)
    assert str(raised.value) == f"wait must be True or False, not {value!r}"


@pytest.mark.parametrize("check", [number, whole])
@pytest.mark.parametrize("value", [True, "3", None])
def test_a_truth_value_is_no_number(check: Any, value: object) -> None:
    with pytest.raises(TypeError, match="N must be a"):
        check("N", value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2:00:00", 7200),
        ("00:00:01", 1),
        ("100:00:00", 360_000),
        ("1-12:30:05", 131_405),
        (" 0:01:00 ", 60),
        (1.5, 1.5),
        ("2h", 7200),
        ("90 s", 90),
        ("1h 30min", 5400),
        ("1.5 Hours", 5400),
        ("2 days", 172_800),
        (datetime.timedelta(minutes=2), 120),
    ],
)
def test_times_are_read(text: Any, seconds: float) -> None:
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
        "2 apples",
        "100ms",
        "h",
    ],
)
def test_a_wrong_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"limit='.*' is not a time"):
        parse_seconds("limit", text)


def test_a_time_of_minutes_or_hours_is_refused_with_both_readings() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_seconds("T", "2:00")
    assert caught.value.hint == "write 2:00:00, or 0:02:00"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "00:00:01"), (7200, "02:00:00"), (86_399.5, "1-00:00:00"), (131_405, "1-12:30:05")],
)
def test_times_are_written_and_rounded_up(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_a_gigabyte_is_that_of_batch_systems() -> None:
    assert to_bytes(1.5) == 3 * 2**29
    assert to_gigabytes(2**30) == 1


@pytest.mark.parametrize(
    ("text", "gigabytes"),
    [("4G", 4), ("4 GB", 4), ("4GiB", 4), (" 512m ", 0.5), ("1.5T", 1536), ("1048576K", 1), (3, 3)],
)
def test_amounts_of_memory_are_read(text: str | float, gigabytes: float) -> None:
    assert parse_gigabytes("M", text) == gigabytes


@pytest.mark.parametrize("text", ["", "4", "G", "4 apples", "-4G", "1e3G", "\u0661G"])
def test_a_wrong_amount_of_memory_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"M='.*' is not an amount of memory(.|\n)*512M"):
        parse_gigabytes("M", text)
