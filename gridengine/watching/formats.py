"""Format times and sizes in few characters."""

from __future__ import annotations

from gridengine.resources.units import format_seconds

KILO = 1024.0


def seconds(value: float | None) -> str:
    """Format a time: `120.0 ms`, `48.0 s`, `02:03`, `1-01:02:03`; `-` when it is unknown. A time
    below zero, from clocks that differ, counts as zero.
    """
    if value is None:
        return "-"
    value = max(value, 0.0)
    if value < 0.1:
        return f"{value * 1000:.1f} ms"
    if value < 60:
        return f"{value:.1f} s"
    return format_seconds(value).removeprefix("00:")


def size(value: float | None) -> str:
    """Format a number of bytes: `640 MB`, `1.2 GB`; `-` when it is unknown."""
    if not value:
        return "-"
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= KILO
    return f"{value:.1f} GB"


def memory_to_ask_for(used: int) -> str:
    """Return the request for calls that were seen to use this many bytes, with a quarter to spare;
    empty when unknown.
    """
    if not used:
        return ""
    gigabytes = 1.25 * used / KILO**3
    return f"Memory({gigabytes:.0f})" if gigabytes >= 10 else f"Memory({max(gigabytes, 0.01):.2g})"
