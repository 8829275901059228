"""Times and amounts of memory: as users write them, in seconds and GB, and as text."""

from __future__ import annotations

import math
import re
from typing import Any, Protocol, TypeAlias

from gridengine.arguments import MOST, as_integer, number
from gridengine.errors import ConfigurationError


class TimeDelta(Protocol):
    """A `datetime.timedelta`; this room imports no clock."""

    def total_seconds(self) -> float: ...


Seconds: TypeAlias = float | str | TimeDelta
"""A time as users write it: see `parse_seconds`."""
GIGABYTE = 2**30
"""The bytes in a GB, which is here as large as Grid Engine's and Slurm's `G` (queue_conf(5),
sbatch(1)).
"""
DAY = 86_400


_PART = r"([0-9]+(?:\.[0-9]+)?) ?(weeks?|w|days?|d|hours?|h|minutes?|min|m|seconds?|sec|s)"
_WITH_UNITS = re.compile(rf"{_PART}(?: ?{_PART})*", re.IGNORECASE)
_UNITS = {"w": 7 * DAY, "d": DAY, "h": 3600, "m": 60, "s": 1}


def seconds_in(text: str) -> float | None:
    """Return the seconds in a text of numbers with units, such as `30 min`; None if it is none."""
    if not _WITH_UNITS.fullmatch(text):
        return None
    parts = re.findall(_PART, text, re.IGNORECASE)
    return sum(float(count) * _UNITS[unit[0].lower()] for count, unit in parts)


def parse_seconds(name: str, value: Any, *, hint: str | None = None) -> float:
    """Return the seconds in a number, a `datetime.timedelta`, or a text: `[d-]hh:mm:ss`, or
    numbers with units, such as `90 s`, `30 min` and `1h30m`. `hint` is the remedy for a number.

    Raises:
        TypeError, ConfigurationError: the value is none of them, or not above zero; the text names
        the argument and the value.
    """
    if not isinstance(value, str):
        is_delta = type(value).__name__ == "timedelta"  # without importing datetime
        return number(name, value.total_seconds() if is_delta else value, hint=hint)
    value = value.strip()
    if (total := seconds_in(value)) is not None:
        return number(name, total)
    match = re.fullmatch(r"(?:([0-9]+)-)?([0-9]+):([0-5][0-9]):([0-5][0-9])", value)
    days, hours, minutes, seconds = (
        (int(digits or 0) for digits in match.groups()) if match else (0, 0, 0, 0)
    )
    total = days * DAY + hours * 3600 + minutes * 60 + seconds
    if short := re.fullmatch(r"([0-9]+):([0-5][0-9])", value):
        raise ConfigurationError(
            f"{name}={value[:40]!r} is not a time: hours and minutes, or minutes and seconds?",
            hint=f"write {value[:40]}:00, or 0:{int(short[1]):02}:{short[2]}",
        )
    if not 0 < total <= MOST or (days and hours > 23):
        raise ConfigurationError(
            f"{name}={value[:40]!r} is not a time",
            hint="write 90 s, 30 min, 2h, [d-]hh:mm:ss, such as 1-12:30:00, or a number of seconds",
        )
    return total


def format_seconds(seconds: float) -> str:
    """Return seconds as `[d-]hh:mm:ss`, rounded up to whole seconds."""
    days, rest = divmod(math.ceil(seconds), DAY)
    text = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text


def parse_gigabytes(name: str, value: float | str) -> float:
    """Return the GB in a number or a text such as `4G` or `512M`.

    Raises:
        TypeError, ConfigurationError: the value is neither, or not above zero; the text names the
        argument and the value.
    """
    if not isinstance(value, str):
        return number(name, value)
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT])i?B?", value.strip(), re.IGNORECASE)
    if match is None:
        raise ConfigurationError(
            f"{name}={value[:40]!r} is not an amount of memory",
            hint="write GB as a number, such as Memory(4), or a text with a unit, such as "
            "Memory('512M')",
        )
    return number(name, float(match[1]) * 1024.0 ** ("KMGT".index(match[2].upper()) - 2))


def to_bytes(gigabytes: float) -> int:
    """Return the bytes in this many GB, rounded down, so that n equal parts of an amount never
    add up to more than the amount.
    """
    return int(gigabytes * GIGABYTE)


def to_gigabytes(size: int) -> float:
    """Return the GB in this many bytes."""
    return as_integer(size / GIGABYTE)
