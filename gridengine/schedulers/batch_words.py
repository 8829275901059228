"""`BatchWords`: the words of one batch system: the options for requests of calls, and its refusals.

Every batch system has them: the systems that are used by their commands (`BatchCommands`), Grid
Engine, and others that are used by DRMAA. `requests` writes requests in these words, and makes
errors of refusals.
"""

from __future__ import annotations

import math
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Self

from gridengine.errors import ConfigurationError
from gridengine.resources.demand import Demand
from gridengine.resources.kinds import Ranks
from gridengine.schedulers.worker_command import line_of_text

Option = str | int | float | bool
"""The value of an option that a user gives a scheduler."""
NOTHING = re.compile(r"(?!)")
"""Matches no text."""
UNITS: Mapping[str, int] = {"": 2**20, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def megabytes(size: float) -> int:
    """Return bytes as megabytes (2**20 bytes), rounded up."""
    return math.ceil(size / 2**20)


def clock_time(seconds: float) -> str:
    """Return seconds, rounded up, as "02:01:00". There are no days: hours have no upper limit."""
    whole = math.ceil(seconds)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"


def clock_seconds(text: str) -> float:
    """Return the seconds of "[[hours:]minutes:]seconds"; 0 if the text has another form."""
    if not re.fullmatch(r"(\d*:){0,2}\d+(\.\d*)?", text):
        return 0.0
    return sum(60.0**place * float(part or 0) for place, part in enumerate(text.split(":")[::-1]))


def memory_bytes(text: str) -> float:
    """Return the bytes of "10G" (2**30 each) or "10g" (10**9 each), as Grid Engine reads amounts
    (sge_types(5)); 0 if the text has another form.
    """
    match = re.fullmatch(r"(\d+(?:\.\d*)?)([kKmMgGtT]?)", text)
    if match is None:
        return 0.0
    base = 1024 if match[2].isupper() else 1000
    return float(match[1]) * float(base ** " KMGT".index(match[2].upper() or " "))


class BatchWords(ABC):
    """The words of one batch system: options for requests of calls, and tables of refusals.

    The keys of tables are regular expressions, which are searched for in the output of a failed
    command: its standard error, or its standard output if that is empty, on one line and without
    the name of the command. They are compiled patterns with flags of their own, or the keys of
    mappings. Of a mapping the first match counts, and upper and lower case are the same.
    """

    key: str
    """Its name as `scheduler="slurm"`, and of its table in the settings."""
    title: str
    """Its name for people."""

    unbrought: re.Pattern[str] | None = None
    """What may not be in the path of a file that the system itself brings to nodes which share no
    files with this machine (`WorkerArray.files`). None if it brings no files.
    """

    # The meanings of its refusals.

    later: re.Pattern[str] = NOTHING
    """A limit on jobs is reached: fewer are submitted, or the same later."""
    array_limit: re.Pattern[str] = NOTHING
    """The array is too large for this site; group 1, if there is one, is the limit."""
    barred: Mapping[str, str] = {}
    """No job of this user is taken; the values are remedies."""
    waiting: Mapping[str, str] = {}
    """Remedies for reasons why jobs wait. JOB stands for the id of the job in all texts."""
    remedies: Mapping[str, str] = {}
    """Remedies for refusals, and for reasons why jobs wait that `waiting` does not have."""
    other_remedy: str = ""
    """The remedy for a refusal that `remedies` does not have."""
    unavailable: Mapping[str, str] = {}
    """Remedies for a system that cannot be reached at all, when workers are first needed or in
    `gridengine doctor`. The last key may be empty: it matches all other cases.
    """
    never: re.Pattern[str] = NOTHING
    """A job that waits for this reason never starts."""
    meanings: Mapping[str, tuple[str, str]] = {}
    """For systems whose reasons for waiting are codes (`^BadConstraints$`): the meaning of each
    code, and the remedy. For other reasons `remedies` may have a remedy.
    """

    look: str = ""
    """The command that tells people most about a job."""
    resume: str = ""
    """How people have a suspended job go on."""

    # Options.

    ours: frozenset[str] = frozenset()
    """The options that users may not set, in each of their forms (`--array`, `-a`)."""
    short: Mapping[str, str] = {}
    """The long forms of short options that `said` must know, such as `{"-p": "--partition"}`."""
    alike: Mapping[str, str] = {}
    """Options that exclude each other, such as `{"--mem-per-cpu": "--mem"}`."""
    time_option: str = ""
    """The name, in `said`, of the option that limits how long a job may run."""
    soft_time_option: str = ""
    """The same for a limit at which a job is only warned, if the system has one."""
    own_memory: re.Pattern[str] = NOTHING
    """A whole option that requests memory: group 1 is the text before the number, group 2 the
    number, group 3 its unit, one letter of `UNITS` in any case, or empty for `UNITS[""]`.
    """
    memory_suffix: str = "M"
    """How the system writes megabytes (2**20 bytes)."""
    cores_option: str
    """The options that request {n} cores of one node."""
    memory_option: str = ""
    """The options that request {n} megabytes of memory for the whole worker; empty if the system
    gives out no memory.
    """
    no_memory: str = ""
    """The remedy for a request of memory then."""
    token_option: str = ""
    """The option for a `Token` of which the settings say nothing; empty if there is none."""
    gpus: str = ""
    """The options that request {n} GPUs, if the site's setting `gpus` is empty."""
    site_options: Mapping[str, str] = {}
    """Arguments of the scheduler, by name, and the options that each stands for: `--queue={}` or
    `-q {}`. If the site's settings have the same name, they say the default.
    """
    host_option: str = ""
    """The name, in `said`, of the option by which `excluding` keeps workers off hosts; empty if the
    system has no words for that.
    """
    spans_nodes = False
    """Whether a job may have several nodes, by `ranks`; if not, one node has a call's ranks."""
    rank_starter: str = ""
    """The words before a program that start it as {ranks} ranks of {cores} cores each on the
    {nodes} nodes of a job; without them mpirun is given the nodes.
    """
    says_false = False
    """Whether an argument that is False is an option too; if not, it is left out."""

    def telling(self, reason: str) -> str:
        """Return the part of a reason to wait that counts for the remedy; all by default."""
        return reason

    @property
    def native_name(self) -> str:
        """The name with which `Resource.native_options` is called."""
        return self.key

    def site_option(self, name: str, value: object) -> list[str]:
        """Return the words for an argument or a setting that is in `site_options`."""
        text = option_text(name, value)
        return [word.format(text) for word in self.site_options[name].split()]

    def own_option(self, name: str, value: Option) -> list[str]:
        """Return the words for an argument of the scheduler that is not in `site_options`.

        Raises:
            TypeError, ConfigurationError: the value cannot be an option; the text names both.
        """
        option = f"--{name.replace('_', '-')}"
        return [option] if value is True else [f"{option}={option_text(name, value)}"]

    def excluding(self, hosts: Sequence[str], own: str) -> list[str]:
        """Return the words that keep workers off these hosts, and stand after all others; `own` is
        the value that `host_option` has already, or empty.
        """
        return []

    def for_request(self, own: Sequence[str], demand: Demand, site: Any) -> Self:
        """Return an instance that knows the whole request, for systems in which one part depends on
        others: the scheduler's own options, the demand, and the site's settings.
        """
        return self

    def cores(self, count: int) -> list[str]:
        """Return the words that request this many cores of one node."""
        return self.cores_option.format(n=count).split()

    def ranks(self, ranks: Ranks) -> list[str]:
        """Return the words that request places for ranks, if the system spans nodes (`cores` and
        `memory` are then those of each rank).

        Raises:
            ConfigurationError: the system cannot be asked for that many nodes.
        """
        return []

    @classmethod
    def rank_hosts(
        cls, environment: Mapping[str, str], ranks: int, cores: int
    ) -> Sequence[tuple[str, int]]:
        """Return the nodes of the job of a process with this environment, and how many ranks each
        has; none if all ranks are on this node.

        Raises:
            ConfigurationError: the job has no room for this many ranks of so many cores.
        """
        return ()

    def memory(self, size: int) -> list[str]:
        """Return the words that request this many bytes of memory for the whole worker.

        Raises:
            ConfigurationError: this system gives out no memory.
        """
        if not self.memory_option:
            raise ConfigurationError(
                f"Memory({size / 2**30:g}): {self.title} gives out no memory", hint=self.no_memory
            )
        return self.memory_option.format(n=megabytes(size)).split()

    @abstractmethod
    def time(self, seconds: float) -> list[str]:
        """Return the words that request this much time: a call's time and `MARGIN_SECONDS`. If the
        system can send a signal before the end, request it: workers leave in order at SIGTERM.
        """

    def soft_time(self, seconds: float) -> list[str]:
        """Return the words for `soft_time_option`."""
        return []

    def gpu_places(self, count: int) -> dict[str, int]:
        """Return the values for the places of the setting `gpus`."""
        return {"n": count}

    def token(self, name: str, known: Iterable[str]) -> list[str]:
        """Return the words for a `Token` that the settings do not have; they have those `known`.

        Raises:
            ConfigurationError: there are none.
        """
        if self.token_option:
            return [self.token_option.format(name)]
        there = f"; there are: {', '.join(known)}" if known else ""
        raise ConfigurationError(
            f"Token({name!r}): the settings do not say what this is on this {self.title}{there}",
            hint=f'write it into a settings file: [{self.key}.tokens] {name} = "the options"',
        )

    @classmethod
    def time_argument(cls) -> str:
        """Return the name of the scheduler's argument for `time_option`."""
        return cls.time_option.strip("-").replace("-", "_")

    def parse_time(self, text: str) -> float:
        """Return the seconds that the value of `time_option` means; 0 if it is malformed or means
        no limit. By default of the form "[[hours:]minutes:]seconds".
        """
        return clock_seconds(text)

    def scaled(self, option: str, factor: float) -> str:
        """Return one of the scheduler's own options, with any memory in it multiplied."""
        found = self.own_memory.fullmatch(option)
        if found is None or factor == 1.0:
            return option
        size = int(found[2]) * UNITS[found[3].upper()] * factor
        return f"{found[1]}{megabytes(size)}{self.memory_suffix}"

    def said(self, options: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Return the settings that options make: for each, under one name however it is spelt, its
        value and the words that give it. By default options are `--name=value`, `--name value`, `-n
        value` and `-nvalue`, the last two for names in `short`.
        """
        values = {}
        for word, follower in zip_longest(options, options[1:], fillvalue=""):
            name, is_joined, value = word.partition("=")
            if not word.startswith("--") and word[:2] in self.short:
                name, is_joined = self.short[word[:2]], word[2:]
                value = word[2:].removeprefix("=")
            if name.startswith("--"):
                alone = is_joined or follower.startswith("-") or not follower
                text = word if alone else f"{word} {follower}"
                values[self.alike.get(name, name)] = (value if is_joined else follower, text)
        return values

    def split(self, options: str) -> list[str]:
        """Return the words of a text of options; raise a ConfigurationError for an open quote."""
        return split_words(options)

    def check(self, options: Sequence[str]) -> None:
        """Raise a ConfigurationError that names an option which users may not set."""
        check_not_ours([*self.said(options), *(word[:2] for word in options)], self.ours)

    def completed(self, options: list[str]) -> list[str]:
        """Return all options as they are submitted: with defaults that the site lacks, or with
        several options joined into the single one that the system expects. By default unchanged.
        """
        return options


def option_text(name: str, value: object) -> str:
    """Return the text of an argument that is an option of a batch system.

    Raises:
        TypeError, ConfigurationError: it cannot be one; the text names the argument and its value.
    """
    if not isinstance(value, (str, int, float)):
        raise TypeError(f"{name} must be a string, a number or True, not {value!r}")
    return line_of_text(name, str(value))


def split_words(options: str) -> list[str]:
    """Return the words of options, as a shell does; a ConfigurationError for an open quote."""
    try:
        return shlex.split(options)
    except ValueError as error:
        raise ConfigurationError(f"the options {options!r} cannot be read: {error}") from error


def check_not_ours(names: Iterable[str], ours: Container[str]) -> None:
    """Raise a ConfigurationError that names an option which the package itself sets."""
    for name in names:
        if name in ours:
            raise ConfigurationError(
                f"{name} is not for users to set: workers need their own",
                hint="leave it out; name= of the scheduler names its jobs, shared_files= says "
                "whether files are brought to nodes, and logs are below the run directory",
            )
