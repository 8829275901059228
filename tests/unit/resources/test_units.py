"""Times and amounts of memory."""

from __future__ import annotations

import pytest

from gridengine.errors import ConfigurationError
from gridengine.resources.units import format_seconds, parse_seconds, to_bytes, to_gigabytes


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
