"""The requests for Grid Engine, and for other systems that are used by DRMAA, written as options:
pure functions and tables.

DRMAA itself has no words for most requests; they are options in each system's own language (GFD.22,
`drmaa_native_specification`). Options of Grid Engine are those of submit(1) and complex(5).

An option that this module writes is one string with a blank in it, such as "-l h_rt=60", whereas a
user's own has a string for each word. So `completed` can put ours first: after a user's `-soft`,
Grid Engine would take them as mere wishes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NoReturn, Self

from gridengine.errors import ConfigurationError, GridEngineError, OutOfMemory, TimeoutError
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.demand import Demand
from gridengine.resources.kinds import Cores, Ranks
from gridengine.schedulers.batch_words import (
    BatchWords,
    Option,
    check_not_ours,
    clock_seconds,
    clock_time,
    memory_bytes,
    split_words,
)
from gridengine.schedulers.grid_engine import answers
from gridengine.schedulers.grid_engine.allocation import rank_hosts
from gridengine.schedulers.grid_engine.drmaa import GRID_ENGINE, SLURM, System
from gridengine.schedulers.registry import BY_NAME
from gridengine.schedulers.requests import cannot_say, own_options, site_settings, worker_options
from gridengine.schedulers.worker_command import line_of_text
from gridengine.settings.values import GridEngineSite

_MEMORY_LIMITS = "h_vmem", "s_vmem", "h_rss", "s_rss", "h_data", "s_data"
LIMITS = "h_rt", "s_rt", "h_cpu", "s_cpu", *_MEMORY_LIMITS
"""Resources of Grid Engine whose excess ends a job (queue_conf(5))."""
MEMORY = frozenset(
    (*_MEMORY_LIMITS, "mem_free", "virtual_free", "mem_total", "virtual_total"),
)
"""Resources of Grid Engine that are amounts of memory (complex(5)); a site may have more."""
MEMORY_REACHED = 0.95
"""A killed task is taken as killed for its memory if it was seen to use this share of the limit."""
RESUME = (
    "`qmod -usj JOB`; if `qstat -f` shows its queue in the state C (by a calendar) or S (by "
    "another queue's jobs), by themselves when that is over"
)
VALUES = {"-l": 1, "-q": 1, "-pe": 2}
"""How many words follow an option."""
OPEN = "*"
"""Stands for a parallel environment's number of slots, which the calls say."""
HOSTS = ("h", "hostname")
"""The names of the resource by which hosts are chosen."""
LEFT_OUT = "!"
"""Stands before the hosts that workers may not run on."""
PER_SLOT = "$pe_slots"
"""The allocation_rule of parallel environments all of whose slots are on one machine (sge_pe(5)).
"""


class GridEngineWords(BatchWords):
    """The words of Grid Engine.

    Args:
        environment: returns the name of a parallel environment, if one is needed and the site's
            settings name none.
    """

    key, title = "grid_engine", "Grid Engine"
    native_name = GRID_ENGINE
    says_false = True
    array_limit = answers.ARRAY_LIMIT
    waiting, remedies, unavailable = answers.WAITING, answers.REMEDIES, answers.UNAVAILABLE
    look, resume = "qstat -j JOB", RESUME
    # DRMAA sets these itself, and silently ignores a user's.
    ours = frozenset({"-e", "-o", "-t", "-wd"})
    time_option, soft_time_option, host_option = "h_rt", "s_rt", "hostname"
    alike: Mapping[str, str] = {"h": "hostname"}
    spans_nodes = True
    site_options: Mapping[str, str] = {"queue": "-q {}"}

    def __init__(self, environment: Callable[[], str] = str) -> None:
        self._environment = environment
        self._own_environment = ""
        self._site = GridEngineSite()
        self._slots = self._asked_slots = 1
        self._ranks = 0

    def for_request(self, own: Sequence[str], demand: Demand, site: GridEngineSite) -> Self:
        made = type(self)(self._environment)
        made._site = site
        made._own_environment, _ = self.said(own).get("-pe", ("", ""))
        asked = demand.resources
        cores, ranks = asked.get(Cores), asked.get(Ranks)
        made._ranks = 0 if ranks is None else ranks.ranks
        made._asked_slots = (made._ranks or 1) * (1 if cores is None else cores.N)
        made._slots = slots_of(made._own_environment) or made._asked_slots
        return made

    def telling(self, reason: str) -> str:
        """Return the parts that are not on queues which the job cannot use, if there are any."""
        parts = [part for part in reason.split("; ") if not re.search(answers.OTHER_QUEUES, part)]
        return "; ".join(parts) or reason

    # Options.

    def site_option(self, name: str, value: object) -> list[str]:
        return [f"-q {_word(name, value)}"]

    def own_option(self, name: str, value: Option) -> list[str]:
        """Return a parallel environment, or a resource: `-l name=value`."""
        if name != "parallel_environment":
            if isinstance(value, bool):
                value = str(value).lower()
            is_text = not isinstance(value, (int, float))
            return [f"-l {name}={_word(name, value, ',') if is_text else value}"]
        if not re.fullmatch(r"\S+( +\d+(-\d*)?)?", line_of_text(name, value)):
            raise ConfigurationError(
                f"{name} must be a name, or a name and a number of slots, as 'smp 4', not {value!r}"
            )
        environment, *slots = str(value).split()
        return [f"-pe {environment} {slots[0] if slots else OPEN}"]

    def said(self, options: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Return the values of each name in `-l`, of `-q` and of `-pe`."""
        values: dict[str, tuple[str, str]] = {}
        words = (
            part for word in options for part in (word.split(" ") if _is_ours(word) else [word])
        )
        for option, given, is_wish in _with_values(words):
            for one in ",".join(given).split(",") if option == "-l" else ():
                name, _, value = one.partition("=")
                if not (is_wish and name in HOSTS):
                    values[self.alike.get(name, name)] = (value, f"-l {one}")
            if option in VALUES and option != "-l":
                values[option] = (" ".join(given), " ".join([option, *given]))
        return values

    def excluding(self, hosts: Sequence[str], own: str) -> list[str]:
        """Return a condition on the host, which may have its domain in its name (sge_types(1))."""
        names = "|".join(f"{host}|{host}.*" for host in hosts)
        return [f"-l hostname={f'({own})&' if own else ''}{LEFT_OUT}({names})"]

    def cores(self, count: int) -> list[str]:
        """Return the parallel environment for this many slots, unless the scheduler has one, or
        `ranks` requests it.
        """
        if self._ranks or self._has_environment(f"Cores({count})") or count == 1:
            return []
        return [f"-pe {self._site.parallel_environment or self._environment()} {count}"]

    def ranks(self, ranks: Ranks) -> list[str]:
        """Return the parallel environment for the slots of all ranks, unless the scheduler has
        one. The environment's allocation_rule decides on which nodes they are.
        """
        if ranks.nodes is not None:
            raise ConfigurationError(
                f"{ranks!r}: Grid Engine has no words for a number of nodes; the allocation_rule "
                "of a parallel environment decides",
                hint=f"ask for Ranks({ranks.ranks}), in an environment whose rule spreads them so",
            )
        if self._has_environment(repr(ranks)):
            return []
        if not self._site.mpi_environment:
            raise ConfigurationError(
                f"{ranks!r} wants a parallel environment that may have slots on several nodes, and "
                "none is named",
                hint="`qconf -spl` lists them; name one by parallel_environment='NAME' of the "
                'scheduler, or in a settings file: [grid_engine] mpi_environment = "NAME"',
            )
        return [f"-pe {self._site.mpi_environment} {self._slots}"]

    @classmethod
    def rank_hosts(
        cls, environment: Mapping[str, str], ranks: int, cores: int
    ) -> list[tuple[str, int]]:
        file = environment.get("PE_HOSTFILE")
        return rank_hosts(Path(file), ranks, cores) if file else []

    def _has_environment(self, asked: str) -> bool:
        """Return whether the scheduler has a parallel environment.

        Raises:
            ConfigurationError: it has another number of slots than is `asked` for.
        """
        own = self._own_environment
        if own and own.split()[1:] not in ([str(self._asked_slots)], [OPEN]):
            raise ConfigurationError(
                f"{asked} of a call and -pe {own} of the scheduler say different numbers of slots",
                hint="say it in one of the two places",
            )
        return bool(own)

    def memory(self, size: int) -> list[str]:
        of_all = size * (self._ranks or 1)
        each = math.ceil(of_all / (self._slots if self._site.memory_per_slot else 1))
        return [f"-l {name}={format_memory(each)}" for name in memory_names(self._site)]

    def time(self, seconds: float) -> list[str]:
        return [f"-l h_rt={clock_time(seconds)}"]

    def soft_time(self, seconds: float) -> list[str]:
        return [f"-l s_rt={clock_time(seconds)}"]

    def gpu_places(self, count: int) -> dict[str, int]:
        if "{per_slot}" in self._site.gpus and count % self._slots:
            raise ConfigurationError(
                f"GPUs({count}) cannot be divided among {self._slots} slots, for each of which "
                "they are counted here",
                hint=f"ask for a multiple of {self._slots}",
            )
        return {"n": count, "per_slot": count // self._slots}

    def scaled(self, option: str, factor: float) -> str:
        if option.startswith("-pe ") and option.endswith(f" {OPEN}"):
            return option.replace(OPEN, str(self._slots))
        found = re.fullmatch(r"-l (\w+)=(.*)", option)
        is_memory = found and found[1] in MEMORY.union(memory_names(self._site))
        size = memory_bytes(found[2]) if found and is_memory else 0.0
        return f"-l {found[1]}={round(size * factor)}" if found and size and factor != 1 else option

    def split(self, options: str) -> list[str]:
        return raw_words(options)

    def check(self, options: Sequence[str]) -> None:
        check_not_ours(options, self.ours)
        check_submits(options)

    def completed(self, options: list[str]) -> list[str]:
        """Return our own options first, those of `-l` in one, then the user's and the site's."""
        asked = (word for word in options if word.startswith("-l "))
        limits = ",".join({next(iter(self.said([word]))): word[3:] for word in asked}.values())
        own = [word for name in ("-q ", "-pe ") for word in options if word.startswith(name)]
        others = [word for word in options if not _is_ours(word)]
        if f"{LEFT_OUT}(" in limits:
            others = _without_hosts(others)
        return [*([f"-l {limits}"] if limits else []), *own, *others]


class OtherWords(BatchWords):
    """The words of a system that only its DRMAA library knows: the text of `native`, unchanged."""

    key = "drmaa"

    def __init__(self, system: System) -> None:
        self.title = str(system)
        self._kind = system.kind

    @property
    def native_name(self) -> str:
        return self._kind

    def split(self, options: str) -> list[str]:
        return raw_words(options)

    def own_option(self, name: str, value: Option) -> list[str]:
        raise cannot_say(self, f"{name}={value!r}")

    def _refuse(self, part: str) -> NoReturn:
        raise cannot_say(
            self,
            part,
            f"say it in native=, in its own words, and in worker_resources={part} what a worker "
            "then holds for calls to share",
        )

    def cores(self, count: int) -> list[str]:
        return [] if count == 1 else self._refuse(f"Cores({count})")

    def memory(self, size: int) -> list[str]:
        self._refuse(f"Memory({size / 2**30:g})")

    def time(self, seconds: float) -> list[str]:
        self._refuse("the WTime of calls")

    def gpu_places(self, count: int) -> dict[str, int]:
        self._refuse(f"GPUs({count})")

    def token(self, name: str, known: Iterable[str]) -> list[str]:
        self._refuse(f"Token({name!r})")


def words_for(system: System, environment: Callable[[], str]) -> BatchWords:
    """Return the words of the system that a DRMAA library speaks to."""
    if system.kind == GRID_ENGINE:
        return GridEngineWords(environment)
    if system.kind == SLURM:
        return drmaa_words(SLURM, str(system))
    return OtherWords(system)


def drmaa_words(name: str, title: str) -> BatchWords:
    """Return the words of this system for a DRMAA library; `title` names both."""
    words: BatchWords = BY_NAME[name].system_class()._drmaa_words(title)
    return words


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The options of a cluster task, and the value that each sets, by its name.

    memory_per_slot: whether Grid Engine counts memory for each slot.
    """

    options: Sequence[str] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    memory_per_slot: bool = True

    @classmethod
    def of(cls, words: BatchWords, options: Sequence[str], site: Any = None) -> TaskOptions:
        values = {name: value for name, (value, _) in words.said(options).items()}
        return cls(options, values, getattr(site, "memory_per_slot", True))

    @property
    def native(self) -> str:
        """DRMAA's native specification."""
        return " ".join(self.options)

    @property
    def limits(self) -> str:
        """The limits that were requested, in words; empty when none."""
        return ", ".join(f"{name}={self.values[name]}" for name in LIMITS if name in self.values)

    def fault(self, usage: Mapping[str, str]) -> type[GridEngineError] | None:
        """Return the error for the limit that a killed task had reached, by its usage, if known."""
        run, peak = ran_for(usage), float(usage.get("maxvmem") or 0)
        slots = (slots_of(self.values.get("-pe", "")) or 1) if self.memory_per_slot else 1
        times = (clock_seconds(self.values.get(name, "")) for name in ("h_rt", "s_rt"))
        if any(0 < limit <= run for limit in times):
            return TimeoutError
        sizes = (slots * memory_bytes(self.values.get(name, "")) for name in ("h_vmem", "s_vmem"))
        return OutOfMemory if any(0 < MEMORY_REACHED * limit <= peak for limit in sizes) else None


@dataclass(frozen=True, slots=True)
class OwnArguments:
    """The arguments of a `GridEngineScheduler`.

    held: the resources that each worker holds according to the user. If the system has no words for
        them, `native` is taken to request them.
    left_out: the hosts that workers may not run on.
    """

    given: Mapping[str, Option] = field(default_factory=dict)
    native: str = ""
    held: Resource = ZERO
    left_out: Sequence[str] = ()


def request_for(
    words: BatchWords, own: OwnArguments, demand: Demand, site: Any = None
) -> TaskOptions:
    """Return the request for workers of this demand; `site`: the settings (default: ours)."""
    site = site_settings(words) if site is None else site
    if isinstance(words, OtherWords) and demand.resources == own.held:
        demand = Demand(ZERO, demand.factor)
    options = own_options(words, own.given, own.native)
    asked = worker_options(words, options, demand, site, own.left_out)
    return TaskOptions.of(words, asked, site)


def raw_words(options: str) -> list[str]:
    """Return the words of options with their quotes: the batch system itself reads these, and need
    not read quotes and backslashes as a shell does.
    """
    split_words(options)  # raises if a quote is not closed
    return re.findall(r"""(?:\\.|[^\s'"\\]|'[^']*'|"(?:\\.|[^"\\])*")+""", options)


def _without_hosts(words: Sequence[str]) -> list[str]:
    """Return a user's own words without their condition on hosts, which stands in ours: of several
    Grid Engine would take the last. A mere wish stays.
    """
    kept = list[str]()
    for option, given, is_wish in _with_values(words):
        if option == "-l" and not is_wish:
            stay = [one for one in ",".join(given).split(",") if one.partition("=")[0] not in HOSTS]
            kept += [option, ",".join(stay)] if stay else []
        else:
            kept += [option, *given]
    return kept


def _with_values(words: Iterable[str]) -> Iterator[tuple[str, list[str], bool]]:
    """Yield each option, its values, and whether it is a mere wish (`-soft`)."""
    rest, is_wish = iter(words), False
    for word in rest:
        is_wish = word == "-soft" or (is_wish and word != "-hard")
        yield word, list(islice(rest, VALUES.get(word, 0))), is_wish


def _is_ours(word: str) -> bool:
    return word.startswith(("-l ", "-q ", "-pe "))


def slots_of(environment: str) -> int:
    """Return the least number of slots of a parallel environment, from "smp 4-8"; 0 without one."""
    found = re.search(r" (\d+)", environment)
    return int(found[1]) if found else 0


def ran_for(usage: Mapping[str, str]) -> float:
    """Return for how many seconds a task ran, 0 if DRMAA does not say."""
    return float(usage.get("ru_wallclock") or 0)


def memory_names(site: GridEngineSite) -> list[str]:
    """Return the resources that request memory."""
    return [name for name in map(str.strip, site.memory.split(",")) if name]


def format_memory(size: int) -> str:
    """Return bytes in the largest unit of Grid Engine that needs no fraction (sge_types(5))."""
    for power, unit in ((3, "G"), (2, "M"), (1, "K")):
        if size % 1024**power == 0:
            return f"{size // 1024**power}{unit}"
    return str(size)


def _word(name: str, value: object, also: str = "") -> str:
    text = line_of_text(name, value)
    if re.search(rf"[\s'\"{also}]", text):
        raise ConfigurationError(
            f"{name}={text!r} holds a blank, a quote or a comma, which the batch system would take "
            "for its own"
        )
    return text


def check_submits(words: Sequence[str]) -> None:
    """Raise a ConfigurationError that names an option with which Grid Engine only checks a job, and
    gives it a number, but never runs it, so that its worker never comes (qsub(1): -verify, -w v, -w
    p); or with which it forgets the job's script (-clear).
    """
    if "-clear" in words:
        raise ConfigurationError(
            "-clear has Grid Engine forget the script of workers too, and refuse their jobs",
            hint="leave it out; to replace an option of ~/.sge_request, say that option here",
        )
    for option, value in pairwise([*words, ""]):
        if option == "-verify" or (option == "-w" and value in ("v", "p")):
            named = option if option == "-verify" else f"{option} {value}"
            raise ConfigurationError(
                f"{named} has Grid Engine check jobs and take none",
                hint="leave it out; `-w e` refuses a job that could never run",
            )


def by_shell(words: Sequence[str]) -> bool:
    """Return whether a shell runs the job's command, and splits it (qsub(1): the last -shell)."""
    said = [value for option, value in pairwise(words) if option == "-shell"]
    return bool(said) and said[-1].startswith("y")


def parse_environments(texts: Iterable[str]) -> dict[str, str]:
    """Return the allocation_rule of each parallel environment, from the outputs of `qconf -sp`."""
    fields = [dict(re.findall(r"^(\w+) +(\S+)", text, flags=re.MULTILINE)) for text in texts]
    return {one["pe_name"]: one.get("allocation_rule", "") for one in fields if "pe_name" in one}


def first_environment(rules: Mapping[str, str]) -> str:
    """Return the first parallel environment with all slots on one machine; else raise a
    ConfigurationError that lists those that there are.
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
