"""Times, amounts of memory, and the checks of what users give for them. Pure."""

from __future__ import annotations

import math
import numbers
import re
from typing import Any

from gridengine.errors import ConfigurationError, safe_repr

GIGABYTE = 2**30
"""Bytes in what is called a GB here, as Grid Engine's and Slurm's `G` (queue_conf(5),
sbatch(1)).
"""
DAY = 86_400
MOST = 2**31 - 1
"""The largest number of anything, and the longest time in seconds (68 years), that is taken."""
SHOWN = 80
"""How many characters of what a user gave an error shows, so that it fits into a line."""


def parse_seconds(name: str, value: float | str) -> float:
    """Return the seconds that a number, or a text `[d-]hh:mm:ss`, means.

    Raises:
        TypeError, ConfigurationError: it is neither, or not above zero; the text names the argument
        and the value.
    """
    if not isinstance(value, str):
        return number(name, value)
    match = re.fullmatch(r"(?:([0-9]+)-)?([0-9]+):([0-5][0-9]):([0-5][0-9])", value.strip())
    days, hours, minutes, seconds = (
        (int(digits or 0) for digits in match.groups()) if match else (0, 0, 0, 0)
    )
    total = days * DAY + hours * 3600 + minutes * 60 + seconds
    if short := re.fullmatch(r"([0-9]+):([0-5][0-9])", value.strip()):
        raise ConfigurationError(
            f"{name}={value[:40]!r} is not a time: hours and minutes, or minutes and seconds?",
            hint=f"write {value.strip()[:40]}:00, or 0:{int(short[1]):02}:{short[2]}",
        )
    if not 0 < total <= MOST or (days and hours > 23):
        raise ConfigurationError(
            f"{name}={value[:40]!r} is not a time",
            hint="write [d-]hh:mm:ss, as 2:00:00 or 1-12:30:00, or a number of seconds",
        )
    return total


def format_seconds(seconds: float) -> str:
    """Return `[d-]hh:mm:ss`; what is not a whole number of seconds is rounded up."""
    days, rest = divmod(math.ceil(seconds), DAY)
    text = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text


def parse_gigabytes(name: str, value: float | str) -> float:
    """Return the GB that a number, or a text as `4G` or `512M`, means.

    Raises:
        TypeError, ConfigurationError: it is neither, or not above zero; the text names the argument
        and the value.
    """
    if not isinstance(value, str):
        return number(name, value)
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT])i?B?", value.strip(), re.IGNORECASE)
    if match is None:
        raise ConfigurationError(
            f"{name}={value[:40]!r} is not an amount of memory",
            hint="write GB as a number, as Memory(4), or a text with a unit, as Memory('512M')",
        )
    return number(name, float(match[1]) * 1024.0 ** ("KMGT".index(match[2].upper()) - 2))


def plural(count: int, noun: str) -> str:
    """Return a number of things in words: `1 call`, `1,200 calls`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def to_bytes(gigabytes: float) -> int:
    """Return the bytes in so many GB. Rounded down, so that n times an n-th of what there is
    fits.
    """
    return int(gigabytes * GIGABYTE)


def to_gigabytes(size: int) -> float:
    """Return the GB in so many bytes."""
    return _plain(size / GIGABYTE)


def _plain(value: float) -> float:
    return int(value) if value.is_integer() else value


def number(name: str, value: Any, *, least: float = 0, hint: str | None = None) -> float:
    """Return a finite number above zero and of at least `least`, whole ones as `int`.

    Raises:
        TypeError, ConfigurationError: it is none; the text names the argument and the value.
    """
    if type(value) is int and value > 0 and least <= value <= MOST:
        return value
    if type(value) not in (int, float) and (
        isinstance(value, bool) or not isinstance(value, numbers.Real)
    ):
        raise TypeError(f"{name} must be a number, not {value!r}")
    try:
        amount = _plain(float(value))
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
    """Return a whole number of at least `least` and at most `most`; `hint` is for a smaller one.

    Raises:
        TypeError, ConfigurationError: it is none; the text names the argument and the value.
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
    """Return whether it is True; 1 and 0, and numpy's own, stand for theirs.

    Raises:
        TypeError: it is anything else, as "no", which would be true; the text names the argument
        and the value.
    """
    if type(value).__name__ in ("bool", "bool_") or (type(value) is int and value in (0, 1)):
        return bool(value)
    raise TypeError(f"{name} must be True or False, not {safe_repr(value, most=SHOWN)}")


def _check_range(name: str, value: Any, least: float, most: float, hint: str | None) -> None:
    if not least <= value <= most:
        bound = f"at least {least}" if value < least else f"at most {most:,}"
        shown = safe_repr(value, most=SHOWN)
        raise ConfigurationError(f"{name} must be {bound}, not {shown}", hint=hint)


def text(name: str, value: Any) -> str:
    """Return a text that is not empty.

    Raises:
        TypeError, ConfigurationError: it is none; the text names the argument.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text, not {value!r}")
    if not value:
        raise ConfigurationError(f"{name} must not be empty")
    return value
