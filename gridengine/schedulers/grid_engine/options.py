"""Translates a demand's resources into options of Grid Engine (see submit(1) and complex(5)), with
a site's names. Pure functions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from gridengine.errors import ConfigurationError
from gridengine.resources.base import Resource
from gridengine.resources.demand import Demand
from gridengine.resources.kinds import Cores, GPUs, Memory, Token, WTime
from gridengine.resources.units import to_bytes
from gridengine.schedulers.grid_engine.request import Request, parse_memory, parse_time
from gridengine.schedulers.launcher import MARGIN_SECONDS
from gridengine.schedulers.options import (
    check_no_conflict,
    check_not_ours,
    fill_template,
    native_options,
    split_words,
)
from gridengine.settings.values import GridEngineSite

MEMORY = frozenset(
    {
        "h_vmem",
        "s_vmem",
        "h_rss",
        "s_rss",
        "h_data",
        "s_data",
        "mem_free",
        "virtual_free",
        "mem_total",
        "virtual_total",
    }
)
"""Resources of Grid Engine that are amounts of memory (see complex(5)); a site may have more."""
OURS = frozenset({"-e", "-o", "-t", "-wd"})
"""Options that users may not set: what DRMAA itself has words for replaces them without a word."""
PER_SLOT = "$pe_slots"
"""The allocation_rule of parallel environments all of whose slots are on one machine
(sge_pe(5)).
"""


def request_for(
    request: Request, demand: Demand, site: GridEngineSite, environment: Callable[[], str]
) -> Request:
    """Return the request of a scheduler with what a demand asks for in it, all memory multiplied by
    the demand's factor.

    `environment` gives the name of a parallel environment, when one is needed and the site's
    settings name none.

    Raises:
        ConfigurationError: the scheduler's own words and the demand say different things, or the
            site has no words for it; the text names both.
    """
    own = _own_values(request)
    queue = request.queue if request.queue is not None or "-q" in own else site.queue or None
    whole = replace(
        request,
        queue=queue,
        memory_per_slot=site.memory_per_slot,
        resources=_scaled(request.resources, demand.factor, MEMORY.union(memory_names(site))),
    )
    cores = demand.resources.get(Cores)
    if cores is not None:
        whole = _with_cores(whole, cores, own, site.parallel_environment or environment)
    slots = whole.slots
    options = [site.native]
    for part in demand.resources:
        limits, words = _options_of(part, demand.factor, site, slots)
        limits = _without_own_times(part, limits, own)
        check_no_conflict(part, [*limits, *option_values(words)], own)
        whole = replace(whole, resources={**whole.resources, **limits})
        if "-q" in option_values(words) and request.queue is None:
            whole = replace(
                whole, queue=None
            )  # the site's queue is for those that ask for no other
        options.append(words)
    native = " ".join(filter(None, [request.native.strip(), *options]))
    said = split_words(native)
    check_not_ours(said, OURS)
    check_submits(said)
    return replace(whole, native=native)


def check_submits(words: Sequence[str]) -> None:
    """Raise when an option has Grid Engine check a job in place of taking it: workers of such a job
    have a number and never come (qsub(1): -verify, -w v, -w p).

    Raises:
        ConfigurationError: there is one; the text names it.
    """
    for option, value in pairwise([*words, ""]):
        if option == "-verify" or (option == "-w" and value in ("v", "p")):
            named = option if option == "-verify" else f"{option} {value}"
            raise ConfigurationError(
                f"{named} has Grid Engine check jobs and take none",
                hint="leave it out; `-w e` refuses a job that could never run",
            )


def by_shell(words: Sequence[str]) -> bool:
    """Return whether these options have a shell run a job's command, which it then splits at blanks
    (qsub(1): -shell; the last counts).
    """
    said = [value for option, value in pairwise(words) if option == "-shell"]
    return bool(said) and said[-1].startswith("y")


def option_values(words: str) -> dict[str, str]:
    """Return the values that options give: to "-q", to "-pe" and to each name in "-l".

    Raises:
        ConfigurationError: a quote in them is not closed.
    """
    rest = iter(split_words(words))
    values: dict[str, str] = {}
    for option in rest:
        if option == "-l":
            values.update(
                {
                    name: value
                    for name, _, value in (one.partition("=") for one in next(rest, "").split(","))
                }
            )
        elif option == "-q":
            values["-q"] = next(rest, "")
        elif option == "-pe":
            values["-pe"] = f"{next(rest, '')} {next(rest, '')}"
    return values


def own_walltime(request: Request) -> float | None:
    """Return for how many seconds the scheduler itself has its workers run (`h_rt`), None when it
    does not say.
    """
    value, _ = _own_values(request).get("h_rt", ("", ""))
    return parse_time(value) or None


def _own_values(request: Request) -> dict[str, tuple[str, str]]:
    """Return the values that the scheduler itself gives, and the argument that gives each."""
    said = {"queue": request.queue, "parallel_environment": request.parallel_environment}
    arguments = {name: value for name, value in said.items() if value is not None}
    options = {"queue": "-q", "parallel_environment": "-pe"}
    return {
        name: (value, f"native={request.native!r}")
        for name, value in option_values(request.native).items()
    } | {
        options.get(name, name): (str(value), f"{name}={value!r}")
        for name, value in {**request.resources, **arguments}.items()
    }


def _with_cores(
    request: Request,
    cores: Cores,
    own: Mapping[str, tuple[str, str]],
    environment: str | Callable[[], str],
) -> Request:
    if "-pe" in own:
        if own["-pe"][0].split()[1:] != [str(cores.N)]:
            raise ConfigurationError(
                f"{cores!r} of a call and {own['-pe'][1]} of the scheduler say different numbers "
                "of slots",
                hint="say it in one of the two places",
            )
        return request
    if cores.N == 1:
        return request
    name = environment if isinstance(environment, str) else environment()
    return replace(request, parallel_environment=f"{name} {cores.N}")


def _options_of(
    part: Resource, factor: float, site: GridEngineSite, slots: int
) -> tuple[dict[str, str], str]:
    """Return limits by name, and other options, that ask for this part. A subclass is a kind of its
    own, with words of its own.
    """
    if type(part) is Memory:
        size = math.ceil(to_bytes(part.M) * factor / (slots if site.memory_per_slot else 1))
        return dict.fromkeys(memory_names(site), format_memory(size)), ""
    if type(part) is WTime:
        return _times(part), ""
    if type(part) is GPUs:
        return {}, _gpus(len(part.g), site, slots)
    if type(part) is Token:
        return {}, _token(part, site)
    return {}, " ".join(native_options(part, "gridengine"))  # none for Cores and Capacity


def memory_names(site: GridEngineSite) -> list[str]:
    """Return the resources that memory is asked by."""
    return [name for name in map(str.strip, site.memory.split(",")) if name]


def _times(time: WTime) -> dict[str, str]:
    limits = {"h_rt": time.T, "s_rt": time.softT if time.softT != time.T else None}
    return {
        name: format_time(seconds + MARGIN_SECONDS)
        for name, seconds in limits.items()
        if seconds is not None
    }


def _without_own_times(
    part: Resource, limits: Mapping[str, str], own: Mapping[str, tuple[str, str]]
) -> dict[str, str]:
    """Return the limits without those of time that the scheduler's own are long enough for: its
    workers run several calls.
    """
    if not isinstance(part, WTime):
        return dict(limits)
    for name, least in limits.items():
        if name in own and 0 < parse_time(own[name][0]) < parse_time(least):
            raise ConfigurationError(
                f"{part!r} of a call wants {name}={least}, and {own[name][1]} of the scheduler is "
                "less",
                hint=f"give the scheduler more, or leave {name} out: then each call's own time is "
                "asked for",
            )
    return {name: least for name, least in limits.items() if name not in own}


def _gpus(count: int, site: GridEngineSite, slots: int) -> str:
    if "{per_slot}" in site.gpus and count % slots:
        raise ConfigurationError(
            f"GPUs({count}) cannot be divided among {slots} slots, for each of which they are "
            "counted here",
            hint=f"ask for a multiple of {slots}",
        )
    return fill_template("grid_engine.gpus", site.gpus, n=count, per_slot=count // slots)


def _token(token: Token, site: GridEngineSite) -> str:
    if token.name not in site.tokens:
        known = f"; there are: {', '.join(site.tokens)}" if site.tokens else ""
        raise ConfigurationError(
            f"{token!r}: the settings do not say what this is on this Grid Engine{known}",
            hint=f'write it into a settings file: [grid_engine.tokens] {token.name} = "-q name.q", '
            "say",
        )
    return site.tokens[token.name]


def _scaled(resources: Mapping[str, Any], factor: float, memory: Container[str]) -> dict[str, Any]:
    if factor == 1.0:
        return dict(resources)
    sizes = {
        name: parse_memory(str(value)) if name in memory else 0.0
        for name, value in resources.items()
    }
    return {
        name: str(round(sizes[name] * factor)) if sizes[name] else value
        for name, value in resources.items()
    }


def format_memory(size: int) -> str:
    """Return bytes as Grid Engine reads them, in the largest unit that says it in whole numbers
    (see sge_types(5)).
    """
    for power, unit in ((3, "G"), (2, "M"), (1, "K")):
        if size % 1024**power == 0:
            return f"{size // 1024**power}{unit}"
    return str(size)


def format_time(seconds: float) -> str:
    """Return seconds, rounded up, as Grid Engine reads them: hours have no end, and there are no
    days.
    """
    whole = math.ceil(seconds)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"


def parse_environments(texts: Iterable[str]) -> dict[str, str]:
    """Return the allocation_rule of each parallel environment, from the output of `qconf -sp` for
    each.
    """
    fields = [dict(re.findall(r"^(\w+) +(\S+)", text, flags=re.MULTILINE)) for text in texts]
    return {one["pe_name"]: one.get("allocation_rule", "") for one in fields if "pe_name" in one}


def first_environment(rules: Mapping[str, str]) -> str:
    """Return the first parallel environment whose slots are all on one machine.

    Raises:
        ConfigurationError: there is none; the text lists what there is.
    """
    found = next((name for name, rule in rules.items() if rule == PER_SLOT), None)
    if found is not None:
        return found
    there = (
        ", ".join(f"{name} ({rule})" for name, rule in rules.items())
        or "none, or qconf does not tell"
    )
    raise ConfigurationError(
        f"more than one core wants a parallel environment whose allocation_rule is {PER_SLOT}; "
        f"there are: {there}",
        hint='name one in a settings file: [grid_engine] parallel_environment = "smp", say',
    )
