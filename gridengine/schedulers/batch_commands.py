"""`BatchCommands`: how the commands of one batch system are called, and what their output means.

In: an array of workers to submit, what calls request, the output of commands. Out: argument lists,
and the state of cluster jobs. Everything here and in the class of a system is pure: it starts no
process, opens no file and reads no clock. `command_launcher` runs the commands, each with a time
limit; it submits, lists and cancels for all systems alike.

`BatchWords`, its base, has only the words: of options for what calls request, and of refusals.
Grid Engine and other systems that are used by DRMAA have these too.

A system is one class derived from `BatchCommands`, in a module of its own, beside a
`CommandScheduler` that names the class. `docs/batch-systems.md` has a whole one, for a system whose
commands are `put`, `look` and `drop`; `tests/unit/schedulers/test_batch_commands.py` runs it.
"""

from __future__ import annotations

import math
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Self

from gridengine.errors import ConfigurationError, GridEngineError, exit_words
from gridengine.resources.demand import Demand
from gridengine.schedulers.launcher import WorkerStatus
from gridengine.schedulers.worker_command import line_of_text

Argv = Sequence[str]
"""A command and its arguments. No shell reads them; `shell` makes one command of two."""
Option = str | int | float | bool
"""The value of an option that a user gives a scheduler."""
NOTHING = re.compile(r"(?!)")
"""Matches no text."""
UNITS: Mapping[str, int] = {"": 2**20, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
SIGNALLED = range(129, 129 + 64)
"""A shell's statuses for a command that a signal ended: 128 more than the signal's number."""


def shell(script: str, *arguments: str) -> list[str]:
    """Return the command that has a shell run this script; `arguments` are its `$1`, `$2`, ...

    For example where only ids can be cancelled, to cancel all jobs of a name:
    `shell('ids=$(find --name "$1") && drop $ids', name)`.
    """
    return ["/bin/sh", "-c", script, "sh", *arguments]


def succeeds_if_said(command: Argv, words: str) -> list[str]:
    """Return a command that runs `command`, and succeeds also if it fails with these words, as "no
    such job" in `cancel_all`.
    """
    script = (
        'words=$1; shift; said=$("$@" 2>&1) || case $said in *"$words"*) ;; '
        '*) echo "$said" >&2; exit 1 ;; esac'
    )
    return shell(script, words, *command)


def megabytes(size: float) -> int:
    """Return bytes as megabytes (2**20 bytes), rounded up."""
    return math.ceil(size / 2**20)


def clock_time(seconds: float) -> str:
    """Return seconds, rounded up, as "02:01:00": hours have no upper limit, and there are no
    days.
    """
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


def shell_exit_words(code: int) -> str:
    """Describe a shell's exit status: the status, or the signal that ended the shell's command."""
    return exit_words(128 - code if code in SIGNALLED else code)


@dataclass(frozen=True, slots=True)
class WorkerArray:
    """An array job to submit. Each of its tasks runs one worker.

    Attributes:
        name: the name of all jobs of one launcher, and of no other jobs; `listing` and `cancel_all`
            find the jobs by it. A letter, then letters, digits and `-_.`; at most 80 characters.
        count: the number of tasks, at most `most_tasks`. A single task may be submitted as a job
            that is no array.
        script: the absolute path of the bash script that each task runs. It has a `#!` line, may be
            executed (0700), and is in the run directory, which all nodes must see.
        options: what the user and the calls request, made by `requests.worker_options`.
        log: returns the path of a task's log, given the word that stands for the task: its number,
            or a placeholder that the batch system replaces by its number or id (`%a`). Standard
            output and standard error must both go there, unbuffered, written from the task's node:
            a worker is recognised by the path of its standard output.
    """

    name: str
    count: int
    script: Path
    options: Sequence[str]
    log: Callable[[object], str]

    @property
    def folder(self) -> Path:
        """The run directory, in which jobs are to start."""
        return self.script.parent


@dataclass(frozen=True, slots=True)
class Seen:
    """What a listing says of one task.

    Attributes:
        state: `QUEUED`, `RUNNING` or `SUSPENDED`; `ENDED` if it ended by itself and in order,
            `FAILED` if in any other way. None while it is ending and the outcome is unknown: after
            half a minute of None the launcher takes the task to have failed.
        reason: why it waits, or how it ended, in the system's words or codes (`meanings` explains
            codes). Ignored while it runs.
        fault: `OutOfMemory` or `TimeoutError`, if the system says that this was the cause.
        deleted: somebody deleted it.
        blameless: neither the worker nor its calls caused the end: another job took its place, its
            node did not boot. The calls run again, and this attempt does not count.
        uncertain: the system only lost sight of it (its node does not answer), and it may live on.
        host: its node; may be empty.
        linger: it is of no more use, but the system keeps it for somebody to look at or restart:
            held, evicted, requeued, in an error state. Its `state` is `FAILED` (mostly
            `blameless`), and the launcher deletes it.
        again: it waits, maybe not for the first time. If its log exists, it ran before; the
            launcher then takes it as lost, blameless, and deletes it.
        start: of a running task, when it started, as the system writes it, or how often it was
            started; empty if unknown. A task that was seen running and later waits, or has another
            `start`, was restarted: treated as `again`. None if the system starts no job twice.
        remaining_seconds: of a running task, how long it may still run, by a limit that the system
            knows.
        ends_at: the same as a Unix time, if the system gives one.
    """

    state: WorkerStatus | None
    reason: str = ""
    fault: type[GridEngineError] | None = None
    deleted: bool = False
    blameless: bool = False
    uncertain: bool = False
    host: str = ""
    linger: bool = False
    again: bool = False
    start: str | None = ""
    remaining_seconds: float = math.inf
    ends_at: float = math.inf


GONE = Seen(WorkerStatus.FAILED, "the batch system no longer knows it, nor how it ended")
"""A task that is missing from two consecutive listings, and had started: it has left a log."""
VANISHED = Seen(WorkerStatus.FAILED, "it was deleted while it waited", deleted=True)
"""A task that is missing from two consecutive listings, and has left no log."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue or partition in `gridengine doctor`; `words` describe it, as "up, 2 nodes"; `open` is
    whether jobs in it start.
    """

    name: str
    words: str
    open: bool = True


class BatchWords(ABC):
    """The words of one batch system: options for what calls request, and tables of refusals.

    Tables hold regular expressions, which are searched for in the output of a failed command
    (standard error, or standard output if that is empty; on one line, without the name of the
    command): compiled patterns with flags of their own, or the keys of mappings, of which the first
    match counts and case does not.
    """

    key: str
    """Its name as `scheduler="slurm"`, and of its table in the settings."""
    title: str
    """Its name for people."""

    # What its refusals mean.

    later: re.Pattern[str] = NOTHING
    """A limit on jobs is reached: fewer are submitted, or the same later."""
    array_limit: re.Pattern[str] = NOTHING
    """The array is too large for this site; group 1, if there is one, is the limit."""
    barred: Mapping[str, str] = {}
    """No job of this user is taken; the values are remedies."""
    remedies: Mapping[str, str] = {}
    """Remedies for refusals, and for reasons why jobs wait."""
    other_remedy: str = ""
    """The remedy for a refusal that `remedies` does not have."""
    unavailable: Mapping[str, str] = {}
    """Remedies where the system cannot be reached at all when workers are first needed, or by
    `gridengine doctor`; the key of the last may be empty, and matches all other cases.
    """
    never: re.Pattern[str] = NOTHING
    """A job that waits for this reason never starts."""
    meanings: Mapping[str, tuple[str, str]] = {}
    """For systems that give codes as reasons why jobs wait, as `^BadConstraints$`: what the code
    means, and the remedy. Of other reasons `remedies` may know a remedy.
    """

    # Options.

    ours: frozenset[str] = frozenset()
    """The options that users may not set, in each of their forms (`--array`, `-a`)."""
    short: Mapping[str, str] = {}
    """The long form of each short option that `said` has to know, as `{"-p": "--partition"}`."""
    alike: Mapping[str, str] = {}
    """Options that exclude each other, as `{"--mem-per-cpu": "--mem"}`."""
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
    says_false = False
    """Whether an argument that is False is an option too; if not, it is left out."""

    @property
    def native_name(self) -> str:
        """The name with which `Resource._native` is called."""
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

    def for_request(self, own: Sequence[str], demand: Demand, site: Any) -> Self:
        """Return an instance that knows the whole request, for systems in which one part depends on
        others: the scheduler's own options, the demand, and the site's settings.
        """
        return self

    def cores(self, count: int) -> list[str]:
        """Return the words that request this many cores of one node."""
        return self.cores_option.format(n=count).split()

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

    def token(self, name: str) -> list[str]:
        """Return the words for a `Token` that the settings do not have.

        Raises:
            ConfigurationError: there are none.
        """
        if self.token_option:
            return [self.token_option.format(name)]
        raise ConfigurationError(
            f"Token({name!r}): the settings do not say what this is on this {self.title}",
            hint=f"write it into a settings file: [{self.key}.tokens] {name} = the options",
        )

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
        """Return what options set: for each, under one name however it is spelt, its value and the
        words that give it. By default options are `--name=value`, `--name value`, `-n value` and
        `-nvalue`, the last two for names in `short`.
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
        """Return the words of a text of options, as `native` or a setting.

        Raises:
            ConfigurationError: a quote is not closed.
        """
        return split_words(options)

    def check(self, options: Sequence[str]) -> None:
        """Raise a ConfigurationError that names an option which users may not set."""
        check_not_ours([*self.said(options), *(word[:2] for word in options)], self.ours)

    def completed(self, options: list[str]) -> list[str]:
        """Return all options as they are submitted: with defaults that the site lacks, or several
        joined into the one that the system wants. By default unchanged.
        """
        return options


class BatchCommands(BatchWords):
    """One batch system: its words, how its commands are called, and how their output is read.

    An instance never changes. If a site has limits or defaults of its own, `questions` asks for
    them, and `told` returns an instance that knows them.
    """

    # The commands.

    commands: tuple[str, ...]
    """The commands that must be in PATH; the first one submits."""
    server_name = "server"
    """What the system calls the process that answers its commands."""
    package: str = ""
    """Where the commands come from, for `gridengine doctor`, as "Debian: slurm-client"."""
    tested = True
    """Whether we have run it on a real system; if not, `gridengine doctor` says so."""
    most_tasks: int = 1000
    """The largest array; 0: there are no arrays, and each worker is submitted as a job of its own
    (`WorkerArray.count` is 1).
    """
    first_lines = ""
    """Shell lines that begin each worker's script, before the prologue."""

    # What their words mean, besides refusals.

    away: re.Pattern[str] = NOTHING
    """The system cannot be reached: nothing is known, and it is asked again."""
    gone: re.Pattern[str] = NOTHING
    """There is no such job: no error from a command that lists or cancels."""
    own_limits: Mapping[str, str] = {}
    """Limits of `later` that only this user's own jobs use up. If this user has no job
    (`own_jobs`), such a limit allows none at all; the values are remedies.
    """
    retrying: bytes = b""
    """What a command writes to standard error if it waits and retries by itself: it is killed then,
    before its time limit.
    """

    # The environment of commands.

    foreign: tuple[str, ...] = ()
    """How variables begin that commands must not see: those of the job that this process runs in,
    and those that change what commands print or wait for.
    """
    kept: re.Pattern[str] = NOTHING
    """The whole names of variables that commands see all the same: they say which system it is and
    where, as `PBS_DEFAULT|PBS_CONF_FILE`. No other variables of batch jobs are seen.
    """
    variables: Mapping[str, str] = {}
    """Variables that are set for commands; the submitted jobs may have them too."""
    configuration: str = ""
    """The variable that names the system's configuration file, if one does. If the file is missing,
    no command is run: commands may look for it for a minute.
    """
    request_variables: str = ""
    """How variables begin by which users request something, for the texts of refusals."""

    def advice(self, options: Sequence[str]) -> str:
        """Return what users should know of workers with these options here, as that each gets a
        whole node; empty if nothing. It is logged once, as a warning.
        """
        return ""

    # What the site allows.

    def questions(self) -> Sequence[Argv]:
        """Return commands that tell what the site allows and lacks. They are run once, before the
        first submission; the output of a refused one is empty.
        """
        return ()

    def told(self, outputs: Sequence[str], options: Sequence[str]) -> Self:
        """Return an instance that knows the outputs of `questions`, in their order; `options` are
        those of the scheduler and of the settings.
        """
        return self

    # Jobs.

    @abstractmethod
    def submit(self, array: WorkerArray) -> Argv:
        """Return the command that submits an array. The system must not restart its jobs nor send
        mail about them, and they must wait for nothing but what the user requested.

        Raises:
            ConfigurationError: this system cannot take the path of the run directory.
        """

    @abstractmethod
    def ids(self, output: str, count: int) -> list[str]:
        """Return the id of each task of an array, in order, as `parse` has them, from what the
        command of `submit` printed; none from any other output.

        Failed submissions are passed too: if there are ids, or no answer came, jobs may exist all
        the same. The launcher finds them by their name, and deletes them.
        """

    def log_word(self, task: int, id: str) -> object:
        """Return the word for a task in the name of its log: by default its number, from 1.
        Otherwise what the placeholder in `WorkerArray.log` became: a number from 0, the id.
        """
        return task

    @abstractmethod
    def listing(self, name: str) -> Argv:
        """Return the command that lists this user's jobs of this name, each task of an array, also
        those that have ended, as long as the system remembers them.
        """

    @abstractmethod
    def parse(self, output: str) -> dict[str, Seen]:
        """Return what a listing says of each task, by id.

        Raises:
            ValueError: it is no listing; the text says what it is. Nothing is known then.
        """

    def endings(self, ended: Mapping[str, Seen]) -> Sequence[Argv]:
        """Return commands that tell more of these tasks, none of which ended in order, or which are
        listed no more (`GONE`, `VANISHED`): exit status, node, who deleted them. By default none.
        """
        return ()

    def parse_endings(self, ended: Mapping[str, Seen], outputs: Sequence[str]) -> dict[str, Seen]:
        """Return what the outputs of `endings` say of these tasks; an output is empty if its
        command failed. A task that is left out is reported as it was; a task whose state is not
        `ENDED` or `FAILED` has not ended, and is not reported. By default `parse` reads the
        outputs.
        """
        try:
            found = self.parse("".join(outputs)) if outputs else {}
        except ValueError:
            return {}
        return {id: seen for id, seen in found.items() if id in ended}

    @abstractmethod
    def cancel(self, ids: Sequence[str]) -> Argv:
        """Return the command that cancels these tasks, at most a thousand, running or not. If ids
        are unknown to the system, it fails with words of `gone`, or does not fail.
        """

    @abstractmethod
    def cancel_all(self, name: str) -> Argv:
        """Return the command that cancels all jobs of this name, and succeeds if there is none (see
        `succeeds_if_said`). A process that outlives the user's repeats it until it succeeds, for at
        most a minute.
        """

    def why(self, id: str) -> Argv:
        """Return the command that tells why a task waits, if listings do not (their `reason` is
        empty); by default none. It is run for one task, when the user is told the reason.
        """
        return ()

    def because(self, output: str) -> str:
        """Return why a task waits, on one line, from the output of `why`; empty if it does not say.
        A reason that matches `never` is an error at once.
        """
        return ""

    def own_jobs(self) -> Argv:
        """Return the command that prints something exactly if this user has any job; it is run
        after a refusal of `own_limits`.
        """
        return ()

    # What `gridengine doctor` and `best_available()` ask.

    def version(self) -> Argv:
        """Return the command that prints the version on its first line."""
        return [self.commands[0], "--version"]

    def ping(self) -> Argv:
        """Return the command that tells whether the system answers; by default, a listing."""
        return self.listing("gridengine-doctor")

    def is_up(self, output: str) -> bool:
        """Return whether the output of `ping` says that the system is up; by default always."""
        return True

    def probe(self, options: Sequence[str]) -> Argv:
        """Return the command that fails as this user's submission with these options would, and
        submits nothing; by default, where there is none, `ping`.
        """
        return self.ping()

    queue_name = "queue"
    """What the system calls a queue; the setting of this name says which one workers wait in."""

    def queues(self) -> Argv:
        """Return the command that lists the queues; by default none."""
        return ()

    def parse_queues(self, output: str) -> list[Queue]:
        """Return the queues that the output of `queues` has."""
        return []


def option_text(name: str, value: object) -> str:
    """Return the text of an argument that is an option of a batch system.

    Raises:
        TypeError, ConfigurationError: it cannot be one; the text names the argument and its value.
    """
    if not isinstance(value, (str, int, float)):
        raise TypeError(f"{name} must be a string, a number or True, not {value!r}")
    return line_of_text(name, str(value))


def split_words(options: str) -> list[str]:
    """Return the words of options. As in a shell, a quoted word may hold blanks.

    Raises:
        ConfigurationError: a quote is not closed.
    """
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
                hint="leave it out; name= of the scheduler names its jobs, and logs are below the "
                "run directory",
            )
