"""Requests to a batch system, in its own options; and its refusals, as errors with remedies: pure
functions over the `BatchWords` of any system.

A submission has options from four places: the arguments of the scheduler, its `native` text, the
resources that calls request, and the site's settings. No option is said twice: if the scheduler and
a call both set one, that is an error, and a setting applies only where neither says anything.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from gridengine.arguments import format_seconds, to_bytes
from gridengine.errors import (
    ConfigurationError,
    GridEngineError,
    SchedulerUnavailable,
    SubmissionRefused,
)
from gridengine.resources.base import Resource
from gridengine.resources.demand import Demand, on_one_node
from gridengine.resources.kinds import Cores, GPUs, Memory, Ranks, Token, WTime
from gridengine.schedulers.batch_words import BatchWords, Option
from gridengine.schedulers.launcher import MARGIN_SECONDS, TryAgain
from gridengine.settings.values import BatchSite, said_by, said_in, settings

T = TypeVar("T")
EXCLUDE_HOSTS = "exclude_hosts"
"""The name of the argument, and of the setting, for hosts that workers may not run on."""
NOT_INSTALLED = {
    "not installed": "`gridengine doctor` says what is here; load your site's module, or have "
    "calls run on this machine by scheduler=ProcessScheduler()"
}


# Options.


def own_options(system: BatchWords, given: Mapping[str, Option], native: str) -> list[str]:
    """Return the options of a scheduler's own arguments, and of its `native` text.

    Raises:
        TypeError, ConfigurationError: an argument cannot be an option; the text names it.
    """
    if not isinstance(native, str):
        raise TypeError(f"native must be a string, not {native!r}")
    options = []
    for name, value in given.items():
        if name in system.site_options:
            options += system.site_option(name, value)
        elif system.says_false or value is not False:
            options += system.own_option(name, value)
    return options + system.split(native)


def worker_options(
    system: BatchWords,
    own: Sequence[str],
    demand: Demand,
    site: Any = None,
    left_out: Sequence[str] = (),
) -> list[str]:
    """Return all options for workers of this demand: the scheduler's own, with memory multiplied by
    the demand's factor; those of the demand; those of the site's settings that neither has; and
    those that keep workers off the hosts `left_out` and the setting's.

    Raises:
        ConfigurationError: the scheduler and the demand set one option differently, or a setting is
            wrong; the text names both. Or the system has no words for leaving hosts out.
    """
    site = site_settings(system) if site is None else site
    system = system.for_request(own, demand, site)
    options = [system.scaled(option, demand.factor) for option in own]
    own_said = system.said(own)
    asked = demand.resources
    if not system.spans_nodes:
        asked = on_one_node(asked, f"a worker in a job of {system.title}")
    for part in asked:
        words = _options_of(system, part, demand.factor, site)
        if isinstance(part, WTime):
            words = _without_own_times(system, part, words, own_said)
        check_no_conflict(part, system.said(words), own_said)
        options += words
    named = system.said(options)
    for setting in system.site_options:
        value = getattr(site, setting, "")
        words = system.site_option(setting, value) if value else []
        if not system.said(words).keys() & named.keys():
            options += words
    options += system.split(site.native)
    system.check(options)
    setting = f"the setting {system.key}.{EXCLUDE_HOSTS}"
    bad_hosts = host_names(setting, getattr(site, EXCLUDE_HOSTS, "").strip())
    return system.completed(_without(system, options, [*bad_hosts, *left_out]))


def _without(system: BatchWords, options: list[str], hosts: Sequence[str]) -> list[str]:
    """Return the options with those that keep workers off these hosts."""
    if not hosts:
        return options
    check_leaves_out(system, hosts)
    own, _ = system.said(options).get(system.host_option, ("", ""))
    return [*options, *system.excluding([*dict.fromkeys(hosts)], own)]


def check_leaves_out(system: BatchWords, hosts: Sequence[str]) -> None:
    """Raise a ConfigurationError if there are hosts, and the system cannot leave them out."""
    if hosts and not system.host_option:
        raise ConfigurationError(
            f"{EXCLUDE_HOSTS}={','.join(hosts)!r}: {system.title} has no words for that",
            hint="name a queue without them, or say it in native=, in the site's own words",
        )


def host_names(name: str, value: object) -> tuple[str, ...]:
    """Return the hosts of an argument or a setting: "n1,n2", or several names.

    Raises:
        TypeError, ConfigurationError: it names no hosts; the text names it and its value.
    """
    words = value.split(",") if isinstance(value, str) and value else value or ()
    if not isinstance(words, Iterable) or not all(isinstance(word, str) for word in words):
        raise TypeError(f"{name} must be names of hosts, as 'n1,n2' or ['n1', 'n2'], not {value!r}")
    hosts = tuple(word.strip() for word in words)
    for host in hosts:
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", host, re.ASCII):
            raise ConfigurationError(
                f"{name} must be names of hosts, as 'n1,n2' or ['n1', 'n2']: {host!r} is none",
                hint="name each host by itself, as the batch system names it",
            )
    return hosts


def _options_of(system: BatchWords, part: Resource, factor: float, site: Any) -> list[str]:
    """Return the options that request a resource. A user's kind has its own `native_options`."""
    if type(part) is Cores:
        return system.cores(part.N)
    if type(part) is Ranks:
        return system.ranks(part)
    if type(part) is Memory:
        return system.memory(math.ceil(to_bytes(part.M) * factor))
    if type(part) is WTime:
        hard, soft = _limits(part)
        return [
            *([] if hard is None else system.time(hard)),
            *([] if soft is None else system.soft_time(soft)),
        ]
    if type(part) is GPUs:
        template, places = site.gpus or system.gpus, system.gpu_places(len(part.g))
        return system.split(fill_template(f"{system.key}.gpus", template, **places))
    if type(part) is Token:
        said = site.tokens.get(part.name)
        return system.token(part.name, site.tokens) if said is None else system.split(said)
    return native_options(part, system.native_name)  # none for Capacity


def _limits(time: WTime) -> list[float | None]:
    """Return how many seconds a worker needs for calls of this time, and for their soft limit; None
    where there is no limit. `MARGIN_SECONDS` are for it to start, and to leave in order.
    """
    soft = None if time.softT == time.T else time.softT
    return [None if limit is None else limit + MARGIN_SECONDS for limit in (time.T, soft)]


def _without_own_times(
    system: BatchWords, time: WTime, options: Sequence[str], own: Mapping[str, tuple[str, str]]
) -> list[str]:
    """Return the options without limits that the scheduler sets itself: these may be longer, since
    its workers run several calls.

    Raises:
        ConfigurationError: the scheduler's own limit is shorter.
    """
    names = (system.time_option, system.soft_time_option)
    for name, least in zip(names, _limits(time), strict=True):
        value, words = own.get(name, ("", ""))
        if least is not None and 0 < system.parse_time(value) < least:
            raise ConfigurationError(
                f"{time!r} of a call wants {format_seconds(least)}, and {words} of the scheduler "
                "is less",
                hint="give the scheduler more, or leave it out: then each call's own time is asked "
                "for",
            )
    return [option for option in options if not system.said([option]).keys() & own.keys()]


def site_settings(system: BatchWords) -> Any:
    """Return the settings of a system's table; the defaults for a system of a site's own."""
    return settings().sites.get(system.key) or BatchSite()


def own_walltime(system: BatchWords, options: Sequence[str]) -> float | None:
    """Return for how many seconds these options have workers run; None without a limit."""
    value, _ = system.said(options).get(system.time_option, ("", ""))
    return system.parse_time(value) or None


def check_no_conflict(
    part: Resource, named: Iterable[str], own: Mapping[str, tuple[str, str]]
) -> None:
    """Raise unless the scheduler and a call's resource set different options.

    own: for each option of the scheduler, its value, and the words that set it.

    Raises:
        ConfigurationError: both set one; the text names both.
    """
    both = next((name for name in named if name in own), None)
    if both is not None:
        raise ConfigurationError(
            f"{part!r} of a call and {own[both][1]} of the scheduler both say {both}",
            hint="say it in one of the two places",
        )


def native_options(part: Resource, system: str) -> list[str]:
    """Return the options of a user's own kind of resource.

    Raises:
        TypeError, ConfigurationError: its `native_options` returns no options.
    """
    words: Any = part.native_options(system)
    if (
        isinstance(words, str)
        or not isinstance(words, Sequence)
        or not all(isinstance(word, str) for word in words)
    ):
        raise TypeError(
            f"native_options({system!r}) of {part!r} must return a list of texts, not {words!r}"
        )
    if any(re.search(r"[\s'\"\0]", word) or not word for word in words):
        raise ConfigurationError(
            f"native_options({system!r}) of {part!r} returns {words!r}, in which a word is empty "
            "or holds a blank or a quote"
        )
    return list(words)


def fill_template(setting: str, template: str, **values: object) -> str:
    """Return a setting's text with the values in their places.

    Raises:
        ConfigurationError: the text has other places.
    """
    try:
        return template.format(**values)
    except (KeyError, ValueError, IndexError, AttributeError, TypeError) as error:
        places = ", ".join(f"{{{name}}}" for name in values)
        raise ConfigurationError(
            f"the setting {setting} = {template!r} may hold {places} and no other braces",
            hint=f"it is set by {said_by(setting)}",
        ) from error


# Refusals.


def cannot_say(
    system: BatchWords, said: str, hint: str = "write it in native=, in its own words"
) -> ConfigurationError:
    """Return the error of a request for which a system, used by DRMAA, has no words here."""
    return ConfigurationError(
        f"{said} cannot be requested from {system.title}, to which the DRMAA library speaks: no "
        "options for it are known",
        hint=hint,
    )


class TooMany(TryAgain):
    """The site takes no array of this size: none over `limit`, if that is known, now or ever."""

    def __init__(self, words: str, limit: int | None = None) -> None:
        super().__init__(words)
        self.limit = limit


def refused(words: str, asked: str, hint: str | None, table: str) -> SubmissionRefused:
    """Return the error of a refused job. `asked` are its options; those that come from this table
    of the settings are named with their file and line.
    """
    request = f"; it was asked for: {asked}{said_in(asked, table)}" if asked else ""
    return SubmissionRefused(f"{words}{request}", hint=hint)


def first_match(words: str, table: Mapping[str, T]) -> T | None:
    """Return the value of a table's first regular expression that is found, case aside."""
    return next(
        (value for key, value in table.items() if re.search(key, words, re.IGNORECASE)), None
    )


@functools.lru_cache(maxsize=1000)
def meaning(system: BatchWords, reason: str) -> tuple[str, str]:
    """Return the reason why a job waits, with its meaning, and the remedy, which may be empty."""
    found = first_match(reason, system.meanings)
    if found is None:
        remedies = {**system.waiting, **system.remedies}
        return reason, first_match(system.telling(reason), remedies) or ""
    return f"{reason}: {found[0]}", found[1]


def explanation(system: BatchWords, reason: str) -> str:
    """Return the reason why a job waits, its meaning and the remedy, as one text."""
    return "; ".join(filter(None, meaning(system, reason)))


def parted(system: type[BatchWords], text: str) -> tuple[str, str]:
    """Return what `explanation` joined: the reason with its meaning, and the remedy."""
    of_codes = (remedy for _, remedy in system.meanings.values())
    for remedy in (*system.waiting.values(), *system.remedies.values(), *of_codes):
        if remedy and text.endswith(f"; {remedy}"):
            return text.removesuffix(f"; {remedy}"), remedy
    return text, ""


def impossible(
    system: BatchWords, reason: str, asked: Sequence[str], *, ended: bool = False
) -> SubmissionRefused:
    """Return the error of a job that the system took and can never start, and may have `ended`."""
    words, remedy = meaning(system, reason)
    waits = "" if ended else "strict=False of the scheduler waits all the same"
    hint = "; ".join(filter(None, [remedy, waits]))
    text = f"{system.title} took the job and can never start it: {words}"
    return refused(text, " ".join(asked), hint, system.key)


def refusal(
    system: BatchWords, words: str, asked: Sequence[str], count: int
) -> TryAgain | GridEngineError:
    """Return the error of a refused array of `count` tasks with the options `asked`."""
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


def unavailable(system: BatchWords, words: str) -> SchedulerUnavailable:
    """Return the error of a system that cannot be reached when workers are first needed."""
    hint = first_match(words, {**NOT_INSTALLED, **system.unavailable})
    return SchedulerUnavailable(
        f"{system.title} cannot be used: {words}{said_in(words, 'drmaa_library')}", hint=hint
    )
