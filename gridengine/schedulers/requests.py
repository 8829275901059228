"""What calls request, as options of a batch system; and what its refusals mean: pure functions over
the tables of its `BatchCommands`.
"""

from __future__ import annotations

import functools
import math
import re
import shlex
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from gridengine.errors import (
    ConfigurationError,
    GridEngineError,
    SchedulerUnavailable,
    SubmissionRefused,
)
from gridengine.resources.base import Resource
from gridengine.resources.demand import Demand
from gridengine.resources.kinds import Cores, GPUs, Memory, Token, WTime
from gridengine.resources.units import format_seconds, to_bytes
from gridengine.schedulers.batch_commands import UNITS, BatchCommands, Option, option_text
from gridengine.schedulers.launcher import MARGIN_SECONDS, TryAgain
from gridengine.settings.values import BatchSite, said_by, said_in, settings


def own_options(system: BatchCommands, given: Mapping[str, Option], native: str) -> list[str]:
    """Return a scheduler's own options, one word each where that can be. What is None or False is
    not asked for.

    Raises:
        TypeError, ConfigurationError: one is not what it must be, or is one of those that are ours
        to set.
    """
    if not isinstance(native, str):
        raise TypeError(f"native must be a string, not {native!r}")
    options = [
        word
        for name, value in given.items()
        if value is not False
        for word in (_named_option(system, name, value) or system.own_option(name, value))
    ]
    options += split_words(native)
    _check_users(system, options)
    return options


def _named_option(system: BatchCommands, name: str, value: object) -> list[str]:
    """Return the words for what has the same name in the settings, as a queue; else none."""
    text = option_text(name, value) if name in system.site_options else ""
    return [word.format(text) for word in system.site_options.get(name, "").split()]


def _check_users(system: BatchCommands, options: Sequence[str]) -> None:
    check_not_ours([*system.said(options), *(word[:2] for word in options)], system.ours)


def worker_options(
    system: BatchCommands, own: Sequence[str], demand: Demand, site: BatchSite
) -> list[str]:
    """Return all options for workers of this demand: the scheduler's own, all memory multiplied by
    the demand's factor; what the demand asks for; and of the site's settings what neither says.

    Raises:
        ConfigurationError: the scheduler's own options and the demand say different things, or a
        setting is wrong; the text names both.
    """
    options = [_scaled(system, option, demand.factor) for option in own]
    own_said = system.said(own)
    for part in demand.resources:
        words = _options_of(system, part, demand.factor, site)
        if isinstance(part, WTime):
            words = _without_own_times(system, part, words, own_said)
        check_no_conflict(part, system.said(words), own_said)
        options += words
    named = system.said(options)
    for setting in system.site_options:
        value = getattr(site, setting, "")
        words = _named_option(system, setting, value) if value else []
        if not system.said(words).keys() & named.keys():
            options += words
    options += split_words(site.native)
    _check_users(system, options)
    return system.completed(options)


def _options_of(system: BatchCommands, part: Resource, factor: float, site: BatchSite) -> list[str]:
    """Return the options that ask for this part. A subclass is a kind of its own, with words of its
    own.
    """
    if type(part) is Cores:
        return system.cores(part.N)
    if type(part) is Memory:
        return system.memory(math.ceil(to_bytes(part.M) * factor))
    if type(part) is WTime:
        return [] if part.T is None else system.time(part.T + MARGIN_SECONDS)
    if type(part) is GPUs:
        template = site.gpus or system.gpus
        return split_words(fill_template(f"{system.key}.gpus", template, n=len(part.g)))
    if type(part) is Token:
        said = site.tokens.get(part.name)
        return system.token(part.name) if said is None else split_words(said)
    return native_options(part, system.key)  # none for Capacity


def _without_own_times(
    system: BatchCommands, time: WTime, options: Sequence[str], own: Mapping[str, tuple[str, str]]
) -> list[str]:
    """Return the options without those of time that the scheduler's own are long enough for: its
    workers run several calls.
    """
    value, words = own.get(system.time_option, ("", ""))
    if time.T is not None and 0 < system.parse_time(value) < time.T + MARGIN_SECONDS:
        raise ConfigurationError(
            f"{time!r} of a call wants {format_seconds(time.T + MARGIN_SECONDS)}, and {words} of "
            "the scheduler is less",
            hint="give the scheduler more, or leave it out: then each call's own time is asked for",
        )
    return [option for option in options if not system.said([option]).keys() & own.keys()]


def site_names(system: BatchCommands) -> BatchSite:
    """Return what the settings say of a system; nothing of one that is not of this package."""
    return getattr(settings(), system.key, None) or BatchSite()


def own_walltime(system: BatchCommands, options: Sequence[str]) -> float | None:
    """Return for how many seconds the scheduler itself has its workers run, None when it does not
    say.
    """
    value, _ = system.said(options).get(system.time_option, ("", ""))
    return system.parse_time(value) or None


def _scaled(system: BatchCommands, option: str, factor: float) -> str:
    found = system.own_memory.fullmatch(option)
    if found is None or factor == 1.0:
        return option
    size = int(found[2]) * UNITS[found[3].upper()] * factor
    return f"{found[1]}{math.ceil(size / 2**20)}{system.memory_suffix}"


def check_no_conflict(
    part: Resource, named: Iterable[str], own: Mapping[str, tuple[str, str]]
) -> None:
    """Raise unless the scheduler's own words are on other things than those that a part of a call's
    request says.

    `own` has the value of each thing, and the argument that says it.

    Raises:
        ConfigurationError: both say something of a thing; the text names both.
    """
    both = next((name for name in named if name in own), None)
    if both is not None:
        raise ConfigurationError(
            f"{part!r} of a call and {own[both][1]} of the scheduler both say {both}",
            hint="say it in one of the two places",
        )


def split_words(options: str) -> list[str]:
    """Return the words of options, quotes taken off: in these there may be blanks, as in a shell.

    Raises:
        ConfigurationError: a quote is not closed.
    """
    try:
        return shlex.split(options)
    except ValueError as error:
        raise ConfigurationError(f"the options {options!r} cannot be read: {error}") from error


def check_not_ours(names: Iterable[str], ours: Container[str]) -> None:
    """Raise unless users may set all options of these names.

    Raises:
        ConfigurationError: one of them would be replaced by our own; the text names it.
    """
    for name in names:
        if name in ours:
            raise ConfigurationError(
                f"{name} is not for users to set: workers need their own",
                hint="leave it out; name= of the scheduler names its jobs, and logs are below the "
                "run directory",
            )


def native_options(part: Resource, system: str) -> list[str]:
    """Return the options of a user's own kind.

    Raises:
        TypeError, ConfigurationError: it gives something else than options.
    """
    words: Any = part._native(system)
    if (
        isinstance(words, str)
        or not isinstance(words, Sequence)
        or not all(isinstance(word, str) for word in words)
    ):
        raise TypeError(
            f"_native({system!r}) of {part!r} must return a list of texts, not {words!r}"
        )
    if any(re.search(r"[\s'\"\0]", word) or not word for word in words):
        raise ConfigurationError(
            f"_native({system!r}) of {part!r} returns {words!r}, in which a word is empty or holds "
            "a blank or a quote"
        )
    return list(words)


def fill_template(setting: str, template: str, **values: object) -> str:
    """Return a setting's text with the values in their places.

    Raises:
        ConfigurationError: it has other places.
    """
    try:
        return template.format(**values)
    except (KeyError, ValueError, IndexError, AttributeError, TypeError) as error:
        places = ", ".join(f"{{{name}}}" for name in values)
        raise ConfigurationError(
            f"the setting {setting} = {template!r} may hold {places} and no other braces",
            hint=f"it is said by {said_by(setting)}",
        ) from error


T = TypeVar("T")
NOT_INSTALLED = {
    "not installed": "`gridengine doctor` says what is here; load your site's module, or have "
    "calls run on this machine by scheduler=ProcessScheduler()",
}


class TooMany(TryAgain):
    """The site takes no array of this size: none over `limit`, when that is known, now or ever."""

    def __init__(self, words: str, limit: int | None = None) -> None:
        super().__init__(words)
        self.limit = limit


def refused(words: str, asked: str, hint: str | None, table: str) -> SubmissionRefused:
    """Return what to raise when a batch system will not take a job that was asked for so; what of
    the request is from this table of the settings is told with the file and line.
    """
    request = f"; it was asked for: {asked}{said_in(asked, table)}" if asked else ""
    return SubmissionRefused(f"{words}{request}", hint=hint)


def first_match(words: str, table: Mapping[str, T]) -> T | None:
    """Return the first value of a table whose key, a regular expression, matches somewhere in these
    words of a batch system, case aside; None when none does.
    """
    return next(
        (value for key, value in table.items() if re.search(key, words, re.IGNORECASE)), None
    )


@functools.lru_cache(maxsize=1000)
def meaning(system: BatchCommands, reason: str) -> tuple[str, str]:
    """Return why a job waits, with what that means, and what can be done, or empty."""
    found = first_match(reason, system.meanings)
    if found is None:
        return reason, first_match(reason, system.remedies) or ""
    return f"{reason}: {found[0]}", found[1]


def explanation(system: BatchCommands, reason: str) -> str:
    """Return why a job waits: the system's reason, what it means and what can be done."""
    return "; ".join(filter(None, meaning(system, reason)))


def impossible(system: BatchCommands, reason: str, asked: Sequence[str]) -> SubmissionRefused:
    """Return what it means that a system took a job, which asked for this, and will never start
    it.
    """
    words, remedy = meaning(system, reason)
    hint = "; ".join(filter(None, [remedy, "strict=False of the scheduler waits all the same"]))
    text = f"{system.title} took the job and can never start it: {words}"
    return refused(text, " ".join(asked), hint, system.key)


def refusal(
    system: BatchCommands, words: str, asked: Sequence[str], count: int
) -> TryAgain | GridEngineError:
    """Return what it means that a system does not take an array of so many tasks, which asked for
    this.
    """
    limit = system.array_limit.search(words)
    if limit and count > 1:
        return TooMany(words, int(limit[1]) if limit.groups() else count // 2)
    if system.later.search(words):
        return TooMany(words)
    barred = first_match(words, system.barred)
    if barred:
        text = f"{system.title} takes no jobs of this user: {words}"
        return SchedulerUnavailable(text, hint=barred)
    remedy = first_match(words, system.remedies) or system.other_remedy or None
    return refused(f"{system.title} refuses the job: {words}", " ".join(asked), remedy, system.key)


def unavailable(system: BatchCommands, words: str) -> SchedulerUnavailable:
    """Return what it means that a system is not reached when workers are first needed."""
    hint = first_match(words, {**NOT_INSTALLED, **system.unavailable})
    return SchedulerUnavailable(f"{system.title} cannot be used: {words}", hint=hint)
