"""Translates a demand's resources into options of Slurm (see sbatch(1)), with a site's names. Pure
functions.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gridengine.errors import ConfigurationError
from gridengine.resources.base import Resource
from gridengine.resources.demand import Demand
from gridengine.resources.kinds import Cores, GPUs, Memory, Token, WTime
from gridengine.resources.units import DAY, format_seconds, to_bytes
from gridengine.schedulers.launcher import MARGIN_SECONDS
from gridengine.schedulers.options import (
    check_no_conflict,
    check_not_ours,
    fill_template,
    native_options,
    split_words,
)
from gridengine.schedulers.script import line_of_text
from gridengine.settings.values import SlurmSite

Option = str | int | float | bool

OURS = frozenset(
    {
        *("--array", "--chdir", "--cluster", "--clusters", "--error", "--job-name", "--output"),
        *("--parsable", "--test-only", "--uid", "--wait", "--wrap"),
        *("-a", "-D", "-e", "-J", "-M", "-o", "-W"),
    }
)
"""Options that users may not set."""
SHORT = {
    "-A": "--account",
    "-C": "--constraint",
    "-c": "--cpus-per-task",
    "-p": "--partition",
    "-q": "--qos",
    "-t": "--time",
}
"""The short forms of options that are compared."""
ALIKE = {"--mem-per-cpu": "--mem", "--mem-per-gpu": "--mem"}
"""Options that exclude each other."""
UNITS = {"": 2**20, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
SIGNAL_SECONDS = 30
"""How long before its end a worker is told to leave, should it not have left by itself."""
EARLY_SECONDS = 60
"""By how much earlier Slurm may send that signal than it was asked to (sbatch(1), --signal)."""


def own_options(given: Mapping[str, Option], native: str) -> list[str]:
    """Return a scheduler's own options as sbatch takes them, one word each where that can be.

    Raises:
        TypeError, ConfigurationError: one is not what it must be, or is one of those that are ours
        to set.
    """
    if not isinstance(native, str):
        raise TypeError(f"native must be a string, not {native!r}")
    options = [_option(name, value) for name, value in given.items() if value is not False]
    options += split_words(native)
    _check_users(options)
    return options


def _check_users(options: Sequence[str]) -> None:
    check_not_ours([*option_values(options), *(word[:2] for word in options)], OURS)


def _option(name: str, value: Option) -> str:
    if value is True:
        return f"--{name.replace('_', '-')}"
    if not isinstance(value, (str, int, float)):
        raise TypeError(f"{name} must be a string, a number or True, not {value!r}")
    return f"--{name.replace('_', '-')}={line_of_text(name, str(value))}"


def sbatch_options(own: Sequence[str], demand: Demand, site: SlurmSite) -> list[str]:
    """Return the options of `sbatch` for workers of this demand: the scheduler's own, all memory
    multiplied by the demand's factor; what the demand asks for; and of the site's settings what
    neither says.

    Raises:
        ConfigurationError: the scheduler's own options and the demand say different things, or a
        setting is wrong; the text names both.
    """
    options = [_scaled(option, demand.factor) for option in own]
    own_values = option_values(own)
    for part in demand.resources:
        words = _without_own_times(part, _options_of(part, demand.factor, site), own_values)
        check_no_conflict(part, option_values(words), own_values)
        options += words
    named = option_values(options)
    defaults = {"--partition": site.partition, "--account": site.account, "--qos": site.qos}
    options += [
        f"{name}={value}" for name, value in defaults.items() if value and name not in named
    ]
    options += split_words(site.native)
    _check_users(options)
    return options


def drmaa_options(own: Sequence[str], demand: Demand, site: SlurmSite) -> list[str]:
    """Return `sbatch_options` as DRMAA libraries take them: in their spelling, and without the
    signal that comes before the end.

    A worker that Slurm put back into its queue would pass for the one that it was before.
    """
    requeue = [] if "--requeue" in own else ["--no-requeue"]
    options = [*requeue, *sbatch_options(own, demand, site)]
    return [
        _in_drmaa_spelling(option)
        for option in options
        if option in own or not option.startswith("--signal=")
    ]


def _in_drmaa_spelling(option: str) -> str:
    """Return an option of sbatch's in the spelling that DRMAA libraries take too: megabytes without
    a unit, time with hours and minutes.
    """
    name, _, value = option.partition("=")
    size = re.fullmatch(r"(\d+)([KMGT])B?", value, flags=re.IGNORECASE)
    if name in ("--mem", "--mem-per-cpu") and size is not None:
        return f"{name}={math.ceil(int(size[1]) * UNITS[size[2].upper()] / 2**20)}"
    if name == "--time" and parse_time(value):
        minutes = math.ceil(parse_time(value) / 60)
        return f"--time={minutes // 60:02}:{minutes % 60:02}:00"
    return option


def option_values(options: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the value of each option, by its long form, and the words that give it."""
    values = {}
    for word, follower in itertools.zip_longest(options, options[1:], fillvalue=""):
        name, is_joined, value = word.partition("=")
        if not word.startswith("--") and word[:2] in SHORT:
            name, is_joined, value = SHORT[word[:2]], word[2:], word[2:].removeprefix("=")
        if name.startswith("--"):
            text = (
                word
                if is_joined or follower.startswith("-") or not follower
                else f"{word} {follower}"
            )
            values[ALIKE.get(name, name)] = (value if is_joined else follower, text)
    return values


_OPTIONS: Mapping[type[Resource], Callable[[Any, float, SlurmSite], list[str]]] = {
    Cores: lambda part, factor, site: [f"--cpus-per-task={part.N}"],
    Memory: lambda part, factor, site: [
        f"--mem={math.ceil(to_bytes(part.M) * factor / 2**20)}M",
    ],
    WTime: lambda part, factor, site: _times(part),
    GPUs: lambda part, factor, site: split_words(
        fill_template("slurm.gpus", site.gpus, n=len(part.g))
    ),
    Token: lambda part, factor, site: (
        split_words(site.tokens[part.name])
        if part.name in site.tokens
        else [f"--constraint={part.name}"]
    ),
}


def _options_of(part: Resource, factor: float, site: SlurmSite) -> list[str]:
    """Return the options that ask for this part. A subclass is a kind of its own, with words of its
    own.
    """
    options = _OPTIONS.get(type(part))
    # None for Capacity.
    return native_options(part, "slurm") if options is None else options(part, factor, site)


def _times(time: WTime) -> list[str]:
    """Return a limit such that the signal before it, early as it may come, comes after the time is
    over.
    """
    if time.T is None:
        return []
    seconds = time.T + MARGIN_SECONDS + EARLY_SECONDS
    return [f"--time={math.ceil(seconds / 60)}", f"--signal=B:TERM@{SIGNAL_SECONDS}"]


def _without_own_times(
    part: Resource, options: Iterable[str], own_values: Mapping[str, tuple[str, str]]
) -> list[str]:
    """Return the options without those of time that the scheduler's own are long enough for: its
    workers run several calls.
    """
    if not isinstance(part, WTime) or part.T is None:
        return list(options)
    if "--time" in own_values and 0 < parse_time(own_values["--time"][0]) < part.T + MARGIN_SECONDS:
        raise ConfigurationError(
            f"{part!r} of a call wants {format_seconds(part.T + MARGIN_SECONDS)}, and "
            f"{own_values['--time'][1]} of the scheduler is less",
            hint="give the scheduler more, or leave it out: then each call's own time is asked for",
        )
    return [option for option in options if option.partition("=")[0] not in own_values]


def own_walltime(options: Sequence[str]) -> float | None:
    """Return for how many seconds the scheduler itself has its workers run (`--time`), None when it
    does not say.
    """
    value, _ = option_values(options).get("--time", ("", ""))
    return parse_time(value) or None


def parse_time(text: str) -> float:
    """Return the seconds that Slurm means by "90" (minutes), "2:00:00" or "1-12"; 0 when it is none
    or has no end (see sbatch(1)).
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


def _scaled(option: str, factor: float) -> str:
    match = re.fullmatch(r"(--mem(?:-per-[cg]pu)?)=(\d+)([KMGT]?)B?", option, flags=re.IGNORECASE)
    if match is None or factor == 1.0:
        return option
    return f"{match[1]}={math.ceil(int(match[2]) * UNITS[match[3].upper()] * factor / 2**20)}M"
