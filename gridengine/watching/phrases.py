"""Format times, sizes, places and numbers for people; and `Explanation`."""

from __future__ import annotations

import time

from msgspec import Struct

from gridengine.arguments import format_seconds
from gridengine.dispatcher.watch_messages import WatchAnswer


class Explanation(Struct, frozen=True):
    """Why something waits, or what is unusual: a word for scripts, a sentence or two, the next
    step, and the place.
    """

    cause: str
    text: str
    next_step: str = ""
    place: str = ""

    def __str__(self) -> str:
        return f"{self.text}. Next: {self.next_step}." if self.next_step else f"{self.text}."


def where(host: str, job: str) -> str:
    """Return a host, with the cluster job there if there is one."""
    return f"{host} (cluster job {job})" if job else host


def on(host: str, job: str) -> str:
    """Return ` on` and a place; empty where none is known."""
    return f" on {where(host, job)}" if host else ""


def then(*steps: str) -> str:
    """Join steps that can be taken one after the other."""
    return "; ".join(filter(None, steps))


def ago(seconds: float) -> str:
    """Format a time. A time below zero, as of a worker that should have left, counts as zero."""
    seconds = max(seconds, 0.0)
    return f"{seconds:.1f} s" if seconds < 60 else format_seconds(seconds)


def date(answer: WatchAnswer, seconds_ago: float) -> str:
    """Return the date and time of something, from how many seconds before an answer it was."""
    told_at = answer.identity.since + answer.status.elapsed_seconds
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(told_at - seconds_ago))


def clock(answer: WatchAnswer, seconds_ago: float) -> str:
    """Return the date and time, without the date if it is today."""
    return date(answer, seconds_ago).removeprefix(time.strftime("%Y-%m-%d "))


def names_of(call: str) -> tuple[str, ...]:
    """Return the names of a call: `call 7 of f` is also 7, and `job x` also x."""
    kind, _, rest = call.partition(" ")
    if kind == "job":
        return call, rest
    return call, rest.partition(" ")[0] if kind == "call" else call


def are(count: int) -> str:
    """Return `is` or `are`, by a number."""
    return "is" if count == 1 else "are"


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
    """Return the request that fits calls that were seen to use this many bytes, with a quarter to
    spare; empty when unknown.
    """
    if not used:
        return ""
    gigabytes = 1.25 * used / KILO**3
    return f"Memory({gigabytes:.0f})" if gigabytes >= 10 else f"Memory({max(gigabytes, 0.01):.2g})"
