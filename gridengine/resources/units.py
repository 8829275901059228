"""Times and amounts of memory: as users write them, in seconds and GB, and as text."""

from __future__ import annotations

import math
import re

from gridengine.arguments import MOST, as_integer, number
from gridengine.errors import ConfigurationError

GIGABYTE = 2**30
"""The bytes in a GB, which is here as large as Grid Engine's and Slurm's `G` (queue_conf(5),
sbatch(1)).
"""
DAY = 86_400


def parse_seconds(name: str, value: float | str) -> float:
    """Return the seconds in a number or a text `[d-]hh:mm:ss`.

    Raises:
        TypeError, ConfigurationError: the value is neither, or not above zero; the text names the
        argument and the value.
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
            hint="write [d-]hh:mm:ss, such as 2:00:00 or 1-12:30:00, or a number of seconds",
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
