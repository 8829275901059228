"""`Request`: a scheduler's own arguments as a native specification (`-l`, `-q`, `-pe`), and the
sizes and times in it. Pure functions.

Translates a demand's resources into options of Grid Engine (see submit(1) and complex(5)), with
a site's names. Pure functions.

Which batch system a DRMAA library speaks to, and what workers ask for in that system's words:
pure functions.

DRMAA itself has no words for most of it: they are options in each system's own language (GFD.22,
`drmaa_native_specification`).

What it means that Grid Engine, or a DRMAA library, says no, or does not have what it took: pure
functions on its words.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from gridengine.errors import (
    ConfigurationError,
    GridEngineError,
    OutOfMemory,
    SchedulerUnavailable,
    SubmissionRefused,
    TimeoutError,
    WorkerNotStarted,
)
from gridengine.resources.base import Resource
from gridengine.resources.demand import Demand
from gridengine.resources.kinds import Cores, GPUs, Memory, Token, WTime
from gridengine.resources.units import to_bytes
from gridengine.schedulers.grid_engine import drmaa
from gridengine.schedulers.grid_engine.drmaa import SLURM, System
from gridengine.schedulers.launcher import (
    MARGIN_SECONDS,
    Handle,
    Report,
    TryAgain,
    Unavailable,
    failed,
)
from gridengine.schedulers.registry import BY_NAME
from gridengine.schedulers.requests import (
    TooMany,
    check_no_conflict,
    check_not_ours,
    fill_template,
    first_match,
    native_options,
    refused,
    split_words,
)
from gridengine.schedulers.worker_command import line_of_text
from gridengine.settings.values import GridEngineSite, Settings, said_in

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


def native_request(
    system: System, request: Request, demand: Demand, held: Resource, settings: Settings
) -> Request:
    """Return the request of a scheduler, with what a demand asks for, to a system that is no Grid
    Engine: all of it as native options.

    `held` is what the user says that each worker holds: where there are no words for it, `native`
    is taken to ask for it.

    Raises:
        ConfigurationError: there are no words for something of it, or it is said twice; the text
        names it.
    """
    if system.kind == SLURM:
        own = list(_own_for_slurm(system, request))
        words = BY_NAME[SLURM].options_module().drmaa_options(own, demand, settings.slurm)
        options = [shlex.quote(word) if re.search(r"[\s'\"]", word) else word for word in words]
    else:
        options = [
            *_own_for_other(system, request),
            *([] if demand.resources == held else _options_for_other(system, demand)),
        ]
    return Request(native=" ".join(options))


def _own_for_slurm(system: System, request: Request) -> Iterator[str]:
    """Yield a scheduler's own arguments as options of sbatch."""
    if request.parallel_environment is not None:
        said = f"parallel_environment={request.parallel_environment!r}"
        raise no_words(system, said, f"ask for resources=gridengine.Cores({request.slots})")
    if request.queue is not None:
        yield f"--partition={request.queue}"
    for name, value in request.resources.items():
        seconds, size = parse_time(str(value)), parse_memory(str(value))
        if name == "h_rt" and seconds:
            yield f"--time={math.ceil(seconds / 60)}"
        elif name == "h_vmem" and size:
            yield f"--mem-per-cpu={math.ceil(size / 2**20)}M"
        else:
            raise no_words(system, f"{name}={value!r}")
    yield from split_words(request.native)


def _own_for_other(system: System, request: Request) -> Iterator[str]:
    """Yield the one argument that any system understands: options in its own language."""
    own = {
        "queue": request.queue,
        "parallel_environment": request.parallel_environment,
        **request.resources,
    }
    for name, value in own.items():
        if value is not None:
            raise no_words(system, f"{name}={value!r}")
    if request.native.strip():
        yield request.native.strip()


def _options_for_other(system: System, demand: Demand) -> Iterator[str]:
    """Yield the options of users' own kinds of resources."""
    for part in demand.resources:
        if _needs_option(part):
            raise no_words(
                system,
                repr(part),
                f"say it in native=, in its own words, and in worker_resources={part!r} what a "
                "worker then holds for calls to share",
            )
        yield from native_options(part, system.kind)


def _needs_option(part: Resource) -> bool:
    return (
        type(part) in (Memory, GPUs, Token)
        or (type(part) is Cores and part.N > 1)
        or (type(part) is WTime and part.T is not None)
    )


def no_words(
    system: System, said: str, hint: str = "say it in native=, in its own words"
) -> ConfigurationError:
    """Return what to raise of something that a system has no words for here."""
    return ConfigurationError(
        f"{said} cannot be said to {system}, which the DRMAA library speaks to: no words for it "
        "are known",
        hint=hint,
    )


def lost_report(handle: Handle) -> Report:
    """Return the report on a job that Grid Engine has numbered, and does not have. Its worker may
    run all the same, as after the master was restored from a copy.
    """
    number = handle.id.partition(".")[0]
    words = f"Grid Engine does not have this job, to which it gave the number {number}"
    error = WorkerNotStarted(
        words,
        job=handle.id,
        hint=f"`qstat -j {number}` says so too. Where an option or a rule of the site (-w v, a "
        "JSV) has jobs checked and not taken, leave it out; or the master was restored from an "
        "older copy: run this again, or ask the administrators",
    )
    return failed(words, error=error, uncertain=True)


REMEDIES = {
    "no suitable queues": "no queue has all of this, even when it is empty: ask for less; or ask "
    "for something that a queue has (`qhost -F`, `qconf -sq QUEUE`)",
    r"unknown queue|queue \S+ does not exist": "`qconf -sql` lists the queues; name one with "
    "queue=",
    "parallel environment": "`qconf -spl` lists the parallel environments; name one with "
    "parallel_environment='NAME SLOTS', or the one for Cores(n) in the setting "
    "parallel_environment of [grid_engine]",
    r"unknown resource|is not a complex attribute|missing value for resource": "`qconf -sc` "
    "lists the resources. Arguments of GridEngineScheduler that are not its own are asked for as "
    "-l NAME=VALUE: is one misspelt? Which one Memory and GPUs ask for is in the settings memory "
    "and gpus of [grid_engine]",
    r"(?<![/-])\bproject\b": "`qconf -sprjl` lists the projects and `qconf -sprj NAME` says who "
    "may use one; name one with native='-P NAME'",
    r"unknown option|invalid option|option.*argument": "`man qsub` lists the options that "
    "native= may have; is one misspelt?",
    r"time (value|specifier|format)|format of (time|date|seconds)|invalid format": "write a time "
    "as seconds or 'hours:minutes:seconds', as h_rt='2:00:00'; or leave it to the WTime of calls",
    r"memory (value|specifier)|is not a (double|memory)": "write an amount with a unit, as "
    "h_vmem='4G'; or leave it to the Memory of calls",
    "resolve hostname": "`qhost` lists the hosts",
    r"submit host": "the administrators must make this machine a submit host (`qconf -as HOST`)",
    r"not allowed to submit|userset|department|minimum uid|lower than minimum": "the "
    "administrators say who may submit jobs here; root may not, as a rule: run this as a plain "
    "user",
    r"reading answer list": "it takes no blanks in a name or an account, as native='-N NAME' or "
    "'-A ACCOUNT': write another; in name= of the scheduler they are replaced",
    r"JSV": "the site's own check of jobs (JSV) refuses it: ask the administrators",
}
"""What can be done where a refusal holds these words, as regular expressions: the first that
matches (the texts are those of Grid Engine's master and DRMAA library, 8.1.9).
"""
UNAVAILABLE = {
    "no DRMAA library was found": "source your site's settings.sh, which sets SGE_ROOT; "
    "`gridengine doctor` says what is here; scheduler=ProcessScheduler() has calls run on this "
    "machine",
    "SGE_ROOT|SGE_CELL|act_qmaster|bootstrap": "source your site's settings.sh: it sets SGE_ROOT "
    "and SGE_CELL to where this site's Grid Engine is",
    "cannot open shared object file|invalid ELF": "DRMAA_LIBRARY_PATH, the setting drmaa_library "
    "or drmaa_library= must name a DRMAA library for this machine (libdrmaa.so)",
    "submit host": REMEDIES["submit host"],
    "qmaster|commlib|connect": "is sge_qmaster running, and can this machine reach it? `qstat` "
    "tells; ask the administrators",
}
"""What can be done where no session opens and these words are said."""


def unavailable(error: Unavailable) -> SchedulerUnavailable:
    """Return what to raise when DRMAA cannot be used."""
    return SchedulerUnavailable(
        f"no batch system can be used through DRMAA: {error}"
        + said_in(str(error), "drmaa_library"),
        hint=first_match(str(error), UNAVAILABLE) or "`gridengine doctor` says what is here",
    )


def refusal(error: drmaa.DrmaaRefused, native: str) -> TryAgain | SubmissionRefused:
    """Return what a refusal of a job that was asked for in these words means."""
    limit = drmaa.TASKS_LIMIT.search(str(error))
    if limit:
        return TooMany(str(error), int(limit[1]))
    if error.for_now:
        return TryAgain(str(error))
    hint = first_match(str(error), REMEDIES)
    return refused(f"the batch system refuses the job: {error}", native, hint, "grid_engine")
