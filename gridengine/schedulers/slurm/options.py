"""How sbatch's options are written and read (see sbatch(1)). Pure functions."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from gridengine.resources.units import DAY
from gridengine.schedulers.batch_commands import BatchCommands

SIGNAL_SECONDS = 30
"""How long before its end a worker is told to leave, should it not have left by itself."""
EARLY_SECONDS = 60
"""By how much earlier Slurm may send that signal than it was asked to (sbatch(1), --signal)."""


class SbatchOptions(BatchCommands):
    """The options of sbatch, and what asks for resources by them."""

    ours = frozenset(
        {
            *("--array", "--chdir", "--cluster", "--clusters", "--error", "--job-name"),
            *("--output", "--parsable", "--test-only", "--uid", "--wait", "--wrap"),
            *("-a", "-D", "-e", "-J", "-M", "-o", "-W"),
        }
    )
    short: Mapping[str, str] = {
        "-A": "--account",
        "-C": "--constraint",
        "-c": "--cpus-per-task",
        "-p": "--partition",
        "-q": "--qos",
        "-t": "--time",
    }
    alike: Mapping[str, str] = {"--mem-per-cpu": "--mem", "--mem-per-gpu": "--mem"}
    time_option = "--time"
    own_memory = re.compile(r"(--mem(?:-per-[cg]pu)?=)(\d+)([KMGT]?)B?", re.IGNORECASE)
    site_options: Mapping[str, str] = {
        name: f"--{name}={{}}" for name in ("partition", "account", "qos")
    }

    def cores(self, count: int) -> list[str]:
        return [f"--cpus-per-task={count}"]

    def memory(self, size: int) -> list[str]:
        return [f"--mem={math.ceil(size / 2**20)}M"]

    def time(self, seconds: float) -> list[str]:
        """Return a limit such that the signal before it, early as it may come, comes after the time
        is over.
        """
        minutes = math.ceil((seconds + EARLY_SECONDS) / 60)
        return [f"--time={minutes}", f"--signal=B:TERM@{SIGNAL_SECONDS}"]

    def token(self, name: str) -> list[str]:
        return [f"--constraint={name}"]

    def parse_time(self, text: str) -> float:
        """Return the seconds that Slurm means by "90" (minutes), "2:00:00" or "1-12"; 0 when it is
        none or has no end (see sbatch(1)).
        """
        match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
        if match is None:
            return 0.0
        days, *rest = match.groups()
        numbers = [float(number) for number in rest if number is not None]
        if days is None and len(numbers) < 3:
            numbers.insert(0, 0.0)  # minutes, or minutes:seconds; else hours come first
        hours, minutes, seconds = (*numbers, 0.0, 0.0)[:3]
        return int(days or 0) * DAY + hours * 3600 + minutes * 60 + seconds
