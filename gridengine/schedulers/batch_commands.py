"""`BatchCommands`: how the commands of one batch system are called, and what their output means.

In: an array of workers to submit, the requests of calls, the output of commands. Out: argument
lists, and the state of cluster jobs. Everything here and in the class of a system is pure: it
starts no process, opens no file and reads no clock. `command_launcher` runs the commands, each with
a time limit; it submits, lists and cancels for all systems alike.

A system is one class derived from `BatchCommands`, in a module of its own, beside a
`CommandScheduler` that names the class. `docs/batch-systems.md` has a whole one, for a system whose
commands are `put`, `look` and `drop`; `tests/unit/schedulers/test_batch_commands.py` runs it.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from msgspec import Struct

from gridengine.errors import GridEngineError, exit_words
from gridengine.schedulers.batch_words import NOTHING, BatchWords
from gridengine.schedulers.launcher import WorkerStatus

Argv = Sequence[str]
"""A command and its arguments. No shell reads them; `shell` makes one command of two."""
SIGNALLED = range(129, 129 + 64)
"""A shell's statuses for a command that a signal ended: 128 more than the signal's number."""


def shell(script: str, *arguments: str) -> list[str]:
    """Return the command that has a shell run this script; `arguments` are its `$1`, `$2`, ...

    For example where only ids can be cancelled, to cancel all jobs of a name:
    `shell('ids=$(find --name "$1") && drop $ids', name)`.
    """
    return ["/bin/sh", "-c", script, "sh", *arguments]


def one_line(pattern: str, output: str) -> re.Match[str] | None:
    """Return the match of the only line of an output that has this form, beside lines that a site's
    banner or wrapper adds; None if there is no such line, or several that differ.
    """
    found = [re.fullmatch(pattern, line.strip()) for line in output.splitlines()]
    named = {match[0]: match for match in found if match is not None}
    return next(iter(named.values())) if len(named) == 1 else None


def succeeds_if_said(command: Argv, words: str) -> list[str]:
    """Return a command that runs `command` and also succeeds if `command` fails with these words,
    such as "no such job" in `cancel_all`.
    """
    script = (
        'words=$1; shift; said=$("$@" 2>&1) || case $said in *"$words"*) ;; '
        '*) echo "$said" >&2; exit 1 ;; esac'
    )
    return shell(script, words, *command)


def shell_exit_words(code: int) -> str:
    """Describe a shell's exit status: the status, or the signal that ended the shell's command."""
    return exit_words(128 - code if code in SIGNALLED else code)


class WorkerArray(Struct, frozen=True):
    """An array job to submit. Each of its tasks runs one worker.

    Attributes:
        name: the name of all jobs of one launcher, and of no other jobs; `listing` and `cancel_all`
            find the jobs by it. A letter, then letters, digits and `-_.`; at most 80 characters.
        count: the number of tasks, at most `most_tasks`. A single task may be submitted as a job
            that is not an array.
        script: the absolute path of the bash script that each task runs. It has a `#!` line, may be
            executed (0700), and is in the run directory, which all nodes see unless there are
            `files`.
        options: the requests of the user and of the calls, made by `requests.worker_options`.
        log: returns the path of a task's log, given the word that stands for the task: its number,
            or a placeholder that the batch system replaces by its number or id (`%a`). Standard
            output and standard error must both go there, unbuffered, written from the task's node:
            a worker is recognised by the path of its standard output.
        files: None where nodes see the run directory. Else the files and folders that the system
            brings to the folder in which the script begins, with the script itself. The variable
            GRIDENGINE_JOB_LOG then has the last two parts of the log's path (`told_log`). Only for
            systems with `unbrought`.
        host: the name by which nodes know this machine, if there are `files`.
    """

    name: str
    count: int
    script: Path
    options: Sequence[str]
    log: Callable[[object], str]
    files: Sequence[Path] | None = None
    host: str = ""

    @property
    def folder(self) -> Path:
        """The run directory, in which jobs are to start."""
        return self.script.parent

    def told_log(self, task: object) -> str:
        """Return what a worker is told of the path of its log, which it does not see."""
        return "/".join(Path(self.log(task)).parts[-2:])


class Seen(Struct, frozen=True):
    """A listing's statement on one task.

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
        again: it waits, perhaps not for the first time. If its log exists, it ran before; the
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


class Queue(Struct, frozen=True):
    """A queue or partition in `gridengine doctor`. `words` describe it, such as "up, 2 nodes";
    `open` says whether jobs in it start.
    """

    name: str
    words: str
    open: bool = True


class BatchCommands(BatchWords):
    """One batch system: its words, how its commands are called, and how their output is read.

    An instance never changes. If a site has limits or defaults of its own, `questions` asks for
    them, and `told` returns an instance that knows them.
    """

    # The commands.

    commands: tuple[str, ...]
    """The commands that must be in PATH; the first one submits."""
    server_name = "server"
    """The system's name for the process that answers its commands."""
    package: str = ""
    """Where the commands come from, for `gridengine doctor`, such as "Debian: slurm-client"."""
    tested = True
    """Whether we have run it on a real system; if not, `gridengine doctor` says so."""
    most_tasks: int = 1000
    """The largest array; 0: there are no arrays, and each worker is submitted as a job of its own
    (`WorkerArray.count` is 1).
    """
    first_lines = ""
    """Shell lines that begin each worker's script, before the prologue."""

    # The meanings of their words, besides refusals.

    away: re.Pattern[str] = NOTHING
    """The system cannot be reached: nothing is known, and it is asked again."""
    gone: re.Pattern[str] = NOTHING
    """There is no such job: no error from a command that lists or cancels."""
    own_limits: Mapping[str, str] = {}
    """Limits of `later` that only this user's own jobs use up. If this user has no job
    (`own_jobs`), such a limit allows none at all; the values are remedies.
    """
    retrying: bytes = b""
    """The text that a command writes to standard error if it waits and retries by itself. Then it
    is killed before its time limit.
    """

    # The environment of commands.

    foreign: tuple[str, ...] = ()
    """The beginnings of the names of variables that commands must not see: those of the job in
    which this process runs, and those that change what commands print or wait for.
    """
    kept: re.Pattern[str] = NOTHING
    """The whole names of variables that commands see all the same: they say which system it is and
    where, `PBS_DEFAULT|PBS_CONF_FILE` for example. No other variables of batch jobs are seen.
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
        """Return a remark that users need on workers with these options here, such as that each
        gets a whole node; empty if there is none. It is logged once, as a warning.
        """
        return ""

    # The limits of the site.

    def questions(self) -> Sequence[Argv]:
        """Return commands that tell what the site allows and lacks. They are run once, before the
        first submission; the output of a refused one is empty.
        """
        return ()

    def told(self, outputs: Sequence[str], options: Sequence[str]) -> Self:
        """Return an instance that has read the outputs of `questions`, in their order; `options`
        are those of the scheduler and of the settings.
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
        """Return the id of each task of an array, in order and in the form that `parse` uses, from
        the output of the command of `submit`; none from any other output.

        The outputs of failed submissions are passed too: if there are ids, or no answer came, jobs
        may exist nevertheless. The launcher finds them by their name, and deletes them.
        """

    def log_word(self, task: int, id: str) -> object:
        """Return the word for a task in the name of its log: by default its number, from 1.
        Otherwise the word that the batch system puts in the place of the placeholder in
        `WorkerArray.log`: a number from 0, or the id.
        """
        return task

    @abstractmethod
    def listing(self, name: str) -> Argv:
        """Return the command that lists this user's jobs of this name, with each task of an array.
        It also lists jobs that have ended, as long as the system remembers them.
        """

    @abstractmethod
    def parse(self, output: str) -> dict[str, Seen]:
        """Return the listing's statement on each task, by id.

        Raises:
            ValueError: the output is not a listing; the text says what it is. Nothing is known
                then.
        """

    def endings(self, ended: Mapping[str, Seen]) -> Sequence[Argv]:
        """Return commands that tell more of these tasks, which ended or are listed no more (`GONE`,
        `VANISHED`): exit status, node, who deleted them. By default none.
        """
        return ()

    def parse_endings(self, ended: Mapping[str, Seen], outputs: Sequence[str]) -> dict[str, Seen]:
        """Return the statements of the outputs of `endings` on these tasks; an output is empty if
        its command failed. A task that is left out is reported as it was. A task whose state is
        neither `ENDED` nor `FAILED` still lives: a rule of the site may have renamed it, so that
        listings lack it. By default `parse` reads the outputs.
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

    def wait_all(self, name: str) -> Argv:
        """Return the command that waits until all jobs of this name have ended, if the system
        brings logs back only then; by default none.
        """
        return ()

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
        """Return the command that prints something if, and only if, this user has any job. It is
        run after a refusal that matches `own_limits`.
        """
        return ()

    # The questions of `gridengine doctor` and `best_available()`.

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
        """Return a command that submits nothing, and fails exactly if this user's submission with
        these options would fail; by default `ping`, for systems without such a command.
        """
        return self.ping()

    queue_name = "queue"
    """The system's word for a queue; the setting of this name says in which queue workers wait."""

    def queues(self) -> Argv:
        """Return the command that lists the queues; by default none."""
        return ()

    def parse_queues(self, output: str) -> list[Queue]:
        """Return the queues that the output of `queues` has."""
        return []
