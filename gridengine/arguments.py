"""Checks of users' arguments: numbers, flags, texts, times and amounts of memory.

Each check returns the value, or raises an error that names the argument, the value and the remedy.
"""

from __future__ import annotations

import math
import numbers
import re
from typing import Any, Protocol, TypeAlias

from gridengine.errors import ConfigurationError, safe_repr

MOST = 2**31 - 1
"""The largest number that is accepted, and the longest time in seconds (68 years)."""
SHOWN = 80
"""How many characters of a user's value an error shows, so that it fits into a line."""


def number(name: str, value: Any, *, least: float = 0, hint: str | None = None) -> float:
    """Return a finite number above zero and at least `least`, as `int` if it is whole.

    Raises:
        TypeError, ConfigurationError: the value is not such a number; the text names the argument
            and
        the value.
    """
    if type(value) is int and value > 0 and least <= value <= MOST:
        return value
    if type(value) not in (int, float) and (
        isinstance(value, bool) or not isinstance(value, numbers.Real)
    ):
        raise TypeError(f"{name} must be a number, not {value!r}")
    try:
        amount = as_integer(float(value))
    except OverflowError:
        amount = math.inf
    if not 0 < amount < math.inf:
        shown = safe_repr(value, most=SHOWN)
        raise ConfigurationError(f"{name} must be above zero, and finite, not {shown}", hint=hint)
    _check_range(name, value, least, MOST, hint or "leave it out for no limit")
    return amount


def whole(
    name: str, value: Any, *, least: int = 1, most: int = MOST, hint: str | None = None
) -> int:
    """Return a whole number between `least` and `most`. `hint` is the remedy for a smaller one.

    Raises:
        TypeError, ConfigurationError: the value is not such a number; the text names the argument
            and
        the value.
    """
    if type(value) is int and least <= value <= most:
        return value
    if type(value) is not int and (
        isinstance(value, bool) or not isinstance(value, numbers.Integral)
    ):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    _check_range(name, int(value), least, most, hint if int(value) < least else None)
    return int(value)


def flag(name: str, value: Any) -> bool:
    """Return a value that is True or False; 1, 0 and numpy's own are accepted.

    Rejected: taking any value by its truth. Then `wait="no"`, from a settings file or a command
    line, would be true.

    Raises:
        TypeError: the value is anything else; the text names the argument and the value.
    """
    if type(value).__name__ in ("bool", "bool_") or (type(value) is int and value in (0, 1)):
        return bool(value)
    raise TypeError(f"{name} must be True or False, not {safe_repr(value, most=SHOWN)}")


def text(name: str, value: Any) -> str:
    """Return a text that is not empty.

    Raises:
        TypeError, ConfigurationError: the value is not such a text; the text names the argument.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text, not {value!r}")
    if not value:
        raise ConfigurationError(f"{name} must not be empty")
    return value


def _check_range(name: str, value: Any, least: float, most: float, hint: str | None) -> None:
    if not least <= value <= most:
        bound = f"at least {least}" if value < least else f"at most {most:,}"
        shown = safe_repr(value, most=SHOWN)
        raise ConfigurationError(f"{name} must be {bound}, not {shown}", hint=hint)


def as_integer(value: float) -> float:
    """Return a number, as `int` if it is whole."""
    return int(value) if value.is_integer() else value


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
_WITH_UNITS = re.compile(rf"{_PART}(?: ?{_PART})*", re.IGNORECASE | re.ASCII)
_UNITS = {"w": 7 * DAY, "d": DAY, "h": 3600, "m": 60, "s": 1}


def seconds_in(text: str) -> float | None:
    """Return the seconds in a text of numbers with units, such as `30 min`; None if it is none."""
    if not _WITH_UNITS.fullmatch(text):
        return None
    parts = re.findall(_PART, text, re.IGNORECASE | re.ASCII)
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
    amount = r"([0-9]+(?:\.[0-9]+)?) ?([KMGT])i?B?"
    match = re.fullmatch(amount, value.strip(), re.IGNORECASE | re.ASCII)
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
