"""`Request`: a scheduler's own arguments as a native specification (`-l`, `-q`, `-pe`), and the
sizes and times in it. Pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gridengine.errors import ConfigurationError, GridEngineError, OutOfMemory, TimeoutError
from gridengine.schedulers.script import line_of_text

Value = str | int | float | bool

LIMITS = (
    "h_rt",
    "s_rt",
    "h_cpu",
    "s_cpu",
    "h_vmem",
    "s_vmem",
    "h_rss",
    "s_rss",
    "h_data",
    "s_data",
)
"""Resources of Grid Engine whose excess ends a job (see queue_conf(5))."""
UNITS = (
    {"": 1}
    | {unit: 1000**power for power, unit in enumerate("kmgt", 1)}
    | {unit: 1024**power for power, unit in enumerate("KMGT", 1)}
)
MEMORY_REACHED = 0.95
"""The share of a memory limit that a task which was killed must have been seen to use to be taken
as killed for it.
"""


@dataclass(frozen=True, slots=True)
class Request:
    """What each cluster task asks for, in Grid Engine's own words (see submit(1)).

    Limits of memory are for each slot, unless `memory_per_slot` is False.

    Raises:
        TypeError, ConfigurationError: a field is not what it must be; the text names it and its
        value.
    """

    queue: str | None = None
    parallel_environment: str | None = None
    native: str = ""
    resources: Mapping[str, Value] = field(default_factory=dict)
    memory_per_slot: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.native, str):
            raise TypeError(f"native must be a string, not {self.native!r}")
        given = self.parallel_environment
        if given is not None and not re.fullmatch(
            r"\S+ +\d+(-\d*)?", line_of_text("parallel_environment", given)
        ):
            raise ConfigurationError(
                "parallel_environment must be a name and a number of slots, as 'smp 4', not "
                f"{given!r}"
            )
        self.specification()

    def specification(self) -> str:
        """Return the native specification."""
        limits = ",".join(
            f"{name}={_resource(name, value)}" for name, value in self.resources.items()
        )
        words = (
            f"-l {limits}" if limits else "",
            "" if self.queue is None else f"-q {_word('queue', self.queue)}",
            "" if self.parallel_environment is None else f"-pe {self.parallel_environment}",
            self.native.strip(),
        )
        return " ".join(filter(None, words))

    @property
    def slots(self) -> int:
        """How many slots the parallel environment gives at least; 1 without."""
        return (
            1
            if self.parallel_environment is None
            else int(self.parallel_environment.split()[1].partition("-")[0])
        )

    @property
    def limits(self) -> str:
        """The limits that were asked for, in words; empty when none."""
        return ", ".join(
            f"{name}={self.resources[name]}" for name in LIMITS if name in self.resources
        )

    def fault(self, usage: Mapping[str, str]) -> type[GridEngineError] | None:
        """Return which of its limits a task that was killed had reached, by what DRMAA tells of its
        usage; None when none, or unknown.
        """
        run, peak = ran_for(usage), float(usage.get("maxvmem") or 0)
        times = [
            parse_time(str(self.resources[name]))
            for name in ("h_rt", "s_rt")
            if name in self.resources
        ]
        if any(0 < limit <= run for limit in times):
            return TimeoutError
        slots = self.slots if self.memory_per_slot else 1
        memories = [
            parse_memory(str(self.resources[name])) * slots
            for name in ("h_vmem", "s_vmem")
            if name in self.resources
        ]
        return (
            OutOfMemory if any(0 < MEMORY_REACHED * limit <= peak for limit in memories) else None
        )


def ran_for(usage: Mapping[str, str]) -> float:
    """Return for how many seconds a task ran, 0 where DRMAA does not tell."""
    return float(usage.get("ru_wallclock") or 0)


def parse_memory(text: str) -> float:
    """Return the bytes that Grid Engine means by "10G" (2**30 each) or "10g" (10**9 each); 0 when
    it is none (see sge_types(5)).
    """
    match = re.fullmatch(r"(\d+(?:\.\d*)?)([kKmMgGtT]?)", text)
    return float(match[1]) * UNITS[match[2]] if match else 0.0


def parse_time(text: str) -> float:
    """Return the seconds that Grid Engine means by "02:00:00" or "7200"; 0 when it is none (see
    sge_types(5)).
    """
    match = re.fullmatch(r"(?:(?:(\d*):)?(\d*):)?(\d+(?:\.\d*)?)", text)
    return (
        3600 * float(match[1] or 0) + 60 * float(match[2] or 0) + float(match[3]) if match else 0.0
    )


def _resource(name: str, value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    return _word(name, value, forbidden=r"[\s,'\"]")


def _word(name: str, value: object, forbidden: str = r"[\s'\"]") -> str:
    text = line_of_text(name, value)
    if re.search(forbidden, text):
        raise ConfigurationError(
            f"{name}={text!r} holds a blank, a quote or a comma, which the batch system would take "
            "for its own"
        )
    return text
