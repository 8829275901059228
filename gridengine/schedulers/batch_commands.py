"""`BatchCommands`: what one batch system's commands are called, and what their output means.

In: an array of workers to submit, what calls request, output of commands. Out: argument lists, and
what was seen of jobs. Everything here and in a system's own class is pure: it starts no process,
opens no file, and looks at no clock. `command_launcher` runs the commands, each with a time limit;
it submits, lists and cancels for every system alike.

A system is one class derived from `BatchCommands`, in a module of its own, beside a
`CommandScheduler` that names it: `docs/batch-systems.md` has a whole one, for a system whose
commands are `put`, `look` and `drop`, and `tests/unit/schedulers/test_batch_commands.py` runs it.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Self

from gridengine.errors import ConfigurationError, GridEngineError
from gridengine.schedulers.launcher import WorkerStatus
from gridengine.schedulers.worker_command import line_of_text

Argv = Sequence[str]
"""A command and its arguments: no shell reads them. `shell` makes one of two commands."""
Option = str | int | float | bool
"""The value of an option that a user gives a scheduler."""
NOTHING = re.compile(r"(?!)")
"""Matches no words."""
UNITS: Mapping[str, int] = {"": 2**20, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def shell(script: str, *arguments: str) -> list[str]:
    """Return the command that has a shell run this script; `arguments` are its `$1`, `$2`, ...

    For what takes two commands, as to cancel all jobs of a name where only their ids can be
    cancelled: `shell('ids=$(find --name "$1") && drop $ids', name)`.
    """
    return ["/bin/sh", "-c", script, "sh", *arguments]


def succeeds_if_said(command: Argv, words: str) -> list[str]:
    """Return the command that runs this one, and succeeds as well when it fails and says these
    words: "no such job", by `cancel_all`.
    """
    script = (
        'words=$1; shift; said=$("$@" 2>&1) || case $said in *"$words"*) ;; '
        '*) echo "$said" >&2; exit 1 ;; esac'
    )
    return shell(script, words, *command)


@dataclass(frozen=True, slots=True)
class WorkerArray:
    """An array job to submit, each of whose tasks runs one worker.

    Attributes:
        name: what all jobs of one launcher are called, and no others: `list` and `cancel_all` find
            them by it. It begins with a letter; letters, digits and `-_.` follow, 80 at most.
        count: how many tasks; 1 may be submitted as a job that is no array. Never more than
            `most_tasks`.
        script: the whole path of the file that each task runs: a bash script with a `#!` line,
            which may be executed (0700), in the run directory, which all nodes must see.
        options: what the user and the calls ask for, as `BatchCommands.options` returned it.
        log: gives the path of a task's log, given the word that stands for the task: its number, or
            what the batch system puts its number or id in place of (`%a`). Standard output and
            standard error go there together, written as they come and from the node that the task
            runs on: a worker is known by the path that its standard output has.
    """

    name: str
    count: int
    script: Path
    options: Sequence[str]
    log: Callable[[object], str]

    @property
    def folder(self) -> Path:
        """The run directory: where jobs are to start."""
        return self.script.parent


@dataclass(frozen=True, slots=True)
class Seen:
    """What a listing says of one task.

    Attributes:
        state: `QUEUED`, `RUNNING` or `SUSPENDED`; `ENDED` when it ended by itself and in order,
            `FAILED` when in any other way; None while it is ending and its end is not known: after
            half a minute of that the launcher takes it to have failed.
        reason: why it waits, or how it ended, in the system's words (a code where it has codes:
            `meanings` says what they mean). Of one that runs it is not read.
        fault: which error its end is: `OutOfMemory` or `TimeoutError`, where the system says.
        deleted: somebody deleted it.
        blameless: neither the worker nor its calls had a part in its end: another job took its
            place, its node did not boot. The calls run again at no charge.
        uncertain: the system only lost sight of it, and it may live on: its node does not answer.
        host: the node that it has or had; may be empty.
        linger: it is of no more use, and the system keeps it for somebody to look at, or to start
            it again: held, evicted, requeued, in an error state. Its `state` is `FAILED` (mostly
            `blameless`), and the launcher deletes it.
        again: it waits, and maybe not for the first time: when its log exists, it ran before. The
            launcher then takes it as lost, blameless, and deletes it.
        start: of one that runs, when it started, as the system writes it, or how often it was
            started; empty where it does not say. One that was seen to run, and later waits or has
            another `start`, was started again: as `again`. None where the system starts no job
            twice: what waits again has not begun.
        remaining_seconds: of one that runs, for how long it may, by a limit that the system knows.
        ends_at: the same as the Unix time when the limit is reached, where the system says that.
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
"""A task that two listings in a row lack, and that had started: it has left a log."""
VANISHED = Seen(WorkerStatus.FAILED, "it was deleted while it waited", deleted=True)
"""A task that two listings in a row lack, and that has left no log."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue or partition as `gridengine doctor` shows it: `words` are what else is to be told of
    it, as "up, 2 nodes"; `open`, whether jobs in it start.
    """

    name: str
    words: str
    open: bool = True


class BatchCommands(ABC):
    """One batch system: names and tables, and functions that write commands and read their output.

    An instance is never changed. Where a site has limits or defaults of its own, `questions` asks
    for them and `told` returns an instance that knows them.

    Tables are regular expressions that are searched for in what a command said (standard error, or
    standard output where that is empty; on one line, without the command's own name before it):
    compiled patterns with flags of their own, or the keys of mappings, in which the first that
    matches counts and case does not.
    """

    # What it is called, and what it has.

    key: str
    """Its name as `scheduler="slurm"`, in the settings (the table of its own), and what
    `Resource._native` is called with.
    """
    title: str
    """Its name for people."""
    commands: tuple[str, ...]
    """The commands that must be in PATH, first the one that submits."""
    server_name = "server"
    """What the system calls the process that answers its commands."""
    package: str = ""
    """Where the commands come from, for `gridengine doctor`, as "Debian: slurm-client"."""
    tested = True
    """Whether we have run it on a real system; else `gridengine doctor` says that we have not."""
    most_tasks: int = 1000
    """The largest array; 0: there are no arrays, and each worker is submitted as a job of its own
    (`WorkerArray.count` is 1).
    """
    first_lines = ""
    """Shell lines that each worker's script begins with, before the prologue."""

    # What its commands' words mean.

    away: re.Pattern[str] = NOTHING
    """The system cannot be reached: nothing is known, and it is asked again."""
    later: re.Pattern[str] = NOTHING
    """A limit on jobs is reached: fewer are submitted, or the same later."""
    array_limit: re.Pattern[str] = NOTHING
    """The array is too large for this site; group 1, if there is one, is the limit."""
    barred: Mapping[str, str] = {}
    """No job of this user is taken; the values are remedies."""
    own_limits: Mapping[str, str] = {}
    """Of the limits of `later`, those that this user's jobs alone use up: where there is no such
    job (`own_jobs`), they allow none, and the values are remedies.
    """
    gone: re.Pattern[str] = NOTHING
    """There is no such job, said by a command that lists or cancels: no error."""
    retrying: bytes = b""
    """What a command writes to standard error when it waits and tries again by itself: it is killed
    then, in place of waiting for its time limit.
    """
    remedies: Mapping[str, str] = {}
    """What can be done about a refusal, or about why a job waits."""
    other_remedy: str = ""
    """What can be done about a refusal in words that are not in `remedies`."""
    unavailable: Mapping[str, str] = {}
    """What can be done where the system is not reached at all when workers are first needed, or by
    `gridengine doctor`: the first that matches; the last, whose key is empty, in all other cases.
    """
    never: re.Pattern[str] = NOTHING
    """A job that waits for this reason will never start."""
    meanings: Mapping[str, tuple[str, str]] = {}
    """What reasons mean for which jobs wait, and what can be done. For systems that say codes, as
    "BadConstraints": `^BadConstraints$`. Of other reasons `remedies` may know what can be done.
    """

    # Options.

    ours: frozenset[str] = frozenset()
    """The options that users may not set, in each of their forms (`--array`, `-a`)."""
    short: Mapping[str, str] = {}
    """The long form of each short one that `said` has to know, as `{"-p": "--partition"}`."""
    alike: Mapping[str, str] = {}
    """Options that exclude each other, as `{"--mem-per-cpu": "--mem"}`."""
    time_option: str = ""
    """The name, in `said`, of the option that limits how long a job may run."""
    own_memory: re.Pattern[str] = NOTHING
    """A whole option that asks for memory: group 1 is what stands before the number, group 2 the
    whole number, group 3 its unit, one letter of `UNITS` in any case, or empty for `UNITS[""]`.
    """
    memory_suffix: str = "M"
    """How the system writes megabytes (2**20 bytes)."""
    gpus: str = ""
    """The options that ask for {n} GPUs, where the setting `gpus` of the site is empty."""
    site_options: Mapping[str, str] = {}
    """For settings of the site, as `queue`, the options that say their value, as `--queue={}` or
    `-q {}`. The user's own replace them. An argument of the scheduler of the same name is said in
    the same words.
    """

    # The environment of commands.

    foreign: tuple[str, ...] = ()
    """How variables begin that commands must not see: those of the job that we run in, and those
    that change what commands print or wait for.
    """
    kept: re.Pattern[str] = NOTHING
    """The whole names of variables that they see though they begin so, or though they are those of
    a job: what says which system it is, and where, as `PBS_DEFAULT|PBS_CONF_FILE`. Of variables
    that begin as those of any batch system's jobs do, no others are seen.
    """
    variables: Mapping[str, str] = {}
    """Variables that are set for them; the jobs that they submit may have them too."""
    configuration: str = ""
    """The variable that names the system's configuration, if one does: where there is no such file,
    commands are not run, which may look for it for a minute.
    """
    request_variables: str = ""
    """How variables begin by which users request something, for the texts of refusals."""

    # What is requested.

    def own_option(self, name: str, value: Option) -> list[str]:
        """Return the words for an argument of the scheduler, as `queue="long"`. False is none.

        Raises:
            TypeError, ConfigurationError: it is none; the text names it and its value.
        """
        option = f"--{name.replace('_', '-')}"
        return [option] if value is True else [f"{option}={option_text(name, value)}"]

    @abstractmethod
    def cores(self, count: int) -> list[str]:
        """Return the words that ask for so many cores of one node."""

    @abstractmethod
    def memory(self, size: int) -> list[str]:
        """Return the words that ask for so many bytes of memory for the whole worker."""

    @abstractmethod
    def time(self, seconds: float) -> list[str]:
        """Return the words that ask for so much time: what a call may take, and `MARGIN_SECONDS`
        more. Where the system can send a signal some time before the end, ask for it: workers leave
        in order at SIGTERM.
        """

    def token(self, name: str) -> list[str]:
        """Return the words for a `Token` of which the settings say nothing.

        Raises:
            ConfigurationError: there are none. That is the default.
        """
        raise ConfigurationError(
            f"Token({name!r}): the settings do not say what this is on this {self.title}",
            hint=f"write it into a settings file: [{self.key}.tokens] {name} = the options",
        )

    def parse_time(self, text: str) -> float:
        """Return the seconds that the value of `time_option` means; 0 when it is none, or has no
        end. By default as "[[hours:]minutes:]seconds".
        """
        if not re.fullmatch(r"\d+(:\d+){0,2}", text):
            return 0.0
        return float(sum(60**place * int(n) for place, n in enumerate(text.split(":")[::-1])))

    def said(self, options: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Return what options set: for each, under one name however it is spelt, its value and the
        words that give it. By default as `--name=value`, `--name value`, `-n value` and `-nvalue`
        for names in `short`.
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

    def completed(self, options: list[str]) -> list[str]:
        """Return all options, as they are submitted: with defaults that the site lacks, or several
        joined into the one that the system wants. By default unchanged.
        """
        return options

    def advice(self, options: Sequence[str]) -> str:
        """Return what users should know of workers that ask for this here, as that each gets a
        whole node; empty when nothing. It is logged once, as a warning.
        """
        return ""

    # What the site allows.

    def questions(self) -> Sequence[Argv]:
        """Return commands that tell what the site allows and lacks. They are run once, before the
        first submission; where one is refused its output is empty.
        """
        return ()

    def told(self, outputs: Sequence[str], options: Sequence[str]) -> Self:
        """Return an instance that knows the answers to `questions`, in their order; `options` are
        those of the scheduler and the settings.
        """
        return self

    # Jobs.

    @abstractmethod
    def submit(self, array: WorkerArray) -> Argv:
        """Return the command that submits an array. Jobs must not be started again by the system,
        nor mailed about, and wait for nothing but what users said.

        Raises:
            ConfigurationError: the run directory's path cannot be said to this system.
        """

    @abstractmethod
    def ids(self, output: str, count: int) -> list[str]:
        """Return the ids of the array's tasks, in order, as `parse` has them: one for each, from
        what `submit`'s command printed; of any other output none.

        It is asked of failed submissions too: when there are ids, or no answer came, jobs may be
        there all the same. The launcher looks for them by their name, and deletes them.
        """

    def log_word(self, task: int, id: str) -> object:
        """Return what stands for a task in the name of its log: by default its number, the first
        being 1. Else what the placeholder in `WorkerArray.log` became: a number from 0, the id.
        """
        return task

    @abstractmethod
    def listing(self, name: str) -> Argv:
        """Return the command that lists all tasks of this user's jobs of this name, each of those
        of an array, and those that have ended for as long as the system remembers them.
        """

    @abstractmethod
    def parse(self, output: str) -> dict[str, Seen]:
        """Return what a listing says of each task, by id.

        Raises:
            ValueError: it is no listing; the text says what it is. Nothing is known then.
        """

    def endings(self, ended: Mapping[str, Seen]) -> Sequence[Argv]:
        """Return commands that tell more of these tasks, which have ended, or are listed no more
        (`GONE`, `VANISHED`): exit status, node, who deleted them. None of them ended in order. Each
        command is run if it can be; by default there are none.
        """
        return ()

    def parse_endings(self, ended: Mapping[str, Seen], outputs: Sequence[str]) -> dict[str, Seen]:
        """Return what is known of these tasks now, given the outputs of those commands of
        `endings`, empty where one failed. A task that is not in it is reported as it was; one whose
        state is `QUEUED` or `RUNNING` has not ended, and is not reported.
        """
        return {}

    @abstractmethod
    def cancel(self, ids: Sequence[str]) -> Argv:
        """Return the command that cancels these tasks, a thousand at most, running or not. For
        ids that it does not know it fails with words of `gone`, or does not fail.
        """

    @abstractmethod
    def cancel_all(self, name: str) -> Argv:
        """Return the command that cancels all jobs of this name, and succeeds when there is none
        (see `succeeds_if_said`). A process that outlives the user's runs it until it succeeds, for
        a minute at most.
        """

    def why(self, id: str) -> Argv:
        """Return the command that tells why a task waits, where the listing does not (its `reason`
        is empty); by default none. It is run for one task, when its user is told what it waits for.
        """
        return ()

    def because(self, output: str) -> str:
        """Return why a task waits, on one line, from the output of `why`'s command; empty when it
        does not say. What matches `never` is an error at once.
        """
        return ""

    def own_jobs(self) -> Argv:
        """Return the command that prints something if this user has any job at all, and nothing
        if not; it is run where words of `own_limits` were said.
        """
        return ()

    # What `gridengine doctor` and `best_available()` ask.

    def version(self) -> Argv:
        """Return the command that prints which version this is, on its first line."""
        return [self.commands[0], "--version"]

    def ping(self) -> Argv:
        """Return the command that tells whether the system answers; by default, a listing."""
        return self.listing("gridengine-doctor")

    def is_up(self, output: str) -> bool:
        """Return whether that output says so; by default any does."""
        return True

    def probe(self, options: Sequence[str]) -> Argv:
        """Return the command that fails as a submission of a job with these options by this user
        would, and submits none; by default, where there is none such, `ping`.
        """
        return self.ping()

    queue_name = "queue"
    """What the system calls a queue; the setting of the same name says which workers wait in."""

    def queues(self) -> Argv:
        """Return the command that lists the queues; by default none."""
        return ()

    def parse_queues(self, output: str) -> list[Queue]:
        """Return the queues, from its output."""
        return []


def option_text(name: str, value: object) -> str:
    """Return the text of an argument that is one of a batch system's options.

    Raises:
        TypeError, ConfigurationError: it is none; the text names the argument and its value.
    """
    if not isinstance(value, (str, int, float)):
        raise TypeError(f"{name} must be a string, a number or True, not {value!r}")
    return line_of_text(name, str(value))
