"""What Grid Engine itself says of a job, beyond DRMAA: its commands' output and its log, parsed by
pure functions.

Nothing depends on it: where the commands or files are missing, there are fewer words, and that is
all.

How long cluster tasks may run, by the limits that the site sets: of the queue, and
of the job, by its defaults for requests (sge_request(5), a JSV).

What `gridengine doctor` looks at of a Grid Engine, or of another system with a DRMAA library.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import pwd
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from gridengine.schedulers.checks import Finding, State, check_names, listed, setting_of
from gridengine.schedulers.command import Answer, ask
from gridengine.schedulers.detect import library_paths, why_no_command
from gridengine.schedulers.grid_engine.drmaa import (
    GRID_ENGINE,
    GRID_ENGINE_UNNAMED,
    SLURM,
    named_system,
)
from gridengine.schedulers.grid_engine.options import (
    PER_SLOT,
    first_environment,
    parse_environments,
    parse_time,
)
from gridengine.schedulers.launcher import TryAgain, Unavailable
from gridengine.schedulers.logs import tail
from gridengine.settings.values import settings

logger = logging.getLogger("gridengine")

NOWHERE = {"PATH": ""}
"""An environment in which there is no Grid Engine."""
STAMP = re.compile(r"^[\d/]+ [\d:]+ \[\d+:\d+\]: (error: )?")
"""What stands before a reason: when it was written, and by which user and process."""
LOG_BYTES = 256 * 1024
"""How much of the end of the master's log is read."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a job failed, as Grid Engine says, and where."""

    words: str
    host: str = ""


def parse_id(job: str) -> tuple[str, str]:
    """Return the numbers of a job and of its task, given an id of DRMAA's ("29.1"); of any other
    form, empty ones.
    """
    match = re.fullmatch(r"(\d+)(?:\.(\d+))?", job)
    return (match[1], match[2] or "1") if match else ("", "")


def parse_accounting(text: str, task: str) -> Failure | None:
    """Return why this task failed, from `qacct -j`'s output; None when it is not there or did not
    fail (see accounting(5)).
    """
    for record in re.split(r"^=+$", text, flags=re.MULTILINE):
        fields = dict(re.findall(r"^(\w+) +(.*?) *$", record, flags=re.MULTILINE))
        words = fields.get("failed", "").partition(":")[2]
        if fields.get("taskid") in (task, "undefined") and words:
            return Failure(words.strip(), fields.get("hostname", ""))
    return None


def parse_master_log(text: str, job: str) -> Failure | None:
    """Return the last failure of this job ("29.1") that the master's log tells of.

    A line ends like: `job 29.1 failed on host node7 general opening input/output file because:
        11/20/2026 21:43:47 [1001:30356]:
    error: can't open output file "/nosuch/x": No such file or directory`.
    """
    found = re.findall(
        rf"\|job {re.escape(job)} failed on host (\S+) (?:general )?(.*?) because: (.*)$",
        text,
        flags=re.MULTILINE,
    )
    if not found:
        return None
    host, stage, cause = found[-1]
    cause = STAMP.sub("", cause)
    # "assumedly after job" only says that a signal ended it, which is known.
    return Failure(f"{stage}: {cause}" if stage != "assumedly after job" else "", host)


def parse_error_reasons(text: str) -> list[str]:
    """Return why a job is in the error state, from `qstat -j`'s output."""
    return [
        STAMP.sub("", reason).strip()
        for reason in re.findall(r"^error reason +\d+: +(.*)$", text, flags=re.MULTILINE)
    ]


def parse_scheduling(text: str) -> list[str]:
    """Return why a job waits, from `qstat -j`'s output; of queues, only what concerns those that it
    asks for.
    """
    _, found, rest = text.partition("\nscheduling info:")
    if not found:
        return []
    asked = re.search(r"^hard_queue_list: +(\S+)", text, flags=re.MULTILINE)
    queues = [queue.partition("@")[0] for queue in asked[1].split(",")] if asked else []
    lines = [line.strip() for line in rest.splitlines() if line.strip()]
    return [line for line in lines if not queues or _concerns(line, queues)]


def _concerns(line: str, queues: list[str]) -> bool:
    named = re.search(r'queue(?: instance)? "([^"@]+)', line)
    return (
        named is None
        or named[1] in queues
        or any(mark in queue for queue in queues for mark in "*?[|")
    )


class Diagnostics:
    """Asks the commands and files of the Grid Engine that this environment names, if it names
    one.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)

    def failure(self, job: str) -> Failure | None:
        """Return why a job failed; None as long as nothing is known. The accounts are written some
        15 s late, the log at once.
        """
        number, task = parse_id(job)
        if not number:
            return None
        return self.logged_failure(job) or parse_accounting(
            self._output("qacct", "-j", number, "-t", task), task
        )

    def logged_failure(self, job: str) -> Failure | None:
        """Return why a job failed, when the master's log can be read here and says so."""
        path = self._master_log
        return parse_master_log(tail(path, LOG_BYTES), job) if path is not None else None

    def error_state(self, job: str) -> str:
        """Return why a job is in the error state, empty when it is not."""
        return "; ".join(parse_error_reasons(self._qstat(job)))

    def waiting(self, job: str) -> str:
        """Return what a job waits for, empty when that is not known."""
        output = self._qstat(job)
        return "; ".join(parse_error_reasons(output) or parse_scheduling(output))

    def lacks(self, job: str) -> bool:
        """Return whether Grid Engine's master says that it has no such job."""
        number, _ = parse_id(job)
        return bool(number) and "do not exist" in self.ask("qstat", "-j", number).failure

    def _qstat(self, job: str) -> str:
        number, _ = parse_id(job)
        return self._output("qstat", "-j", number) if number else ""

    def parallel_environments(self) -> dict[str, str]:
        """Return the allocation_rule of each parallel environment; empty when there is none, or
        qconf is not here.

        Raises:
            TryAgain: qconf is here, and Grid Engine's master does not answer it.
        """
        names = self._output("qconf", "-spl").split()
        if (
            not names and self.find("qconf") and not self._output("qconf", "-sh")
        ):  # it names no environment: does it name a host?
            raise TryAgain(
                "qconf, which is asked for the parallel environments, has no answer of Grid "
                "Engine's master"
            )
        return parse_environments(self._output("qconf", "-sp", name) for name in names)

    @functools.cached_property
    def parallel_environment(self) -> str:
        """The one that `Cores` asks for.

        Raises:
            ConfigurationError: there is none.
            TryAgain: nobody says.
        """
        return first_environment(self.parallel_environments())

    def _output(self, name: str, *arguments: str) -> str:
        return self.ask(name, *arguments).output

    def ask(self, name: str, *arguments: str) -> Answer:
        """Return what one of Grid Engine's commands says; nothing when it is not here."""
        command = self.find(name)
        if not command:
            return Answer("")
        answer = ask([command, *arguments], self._environment, settings().command_timeout)
        if answer.failure:
            logger.debug("%s", answer.failure)
        return answer

    def find(self, name: str) -> str:
        """Return the path of one of Grid Engine's commands, empty when there is none."""
        found = shutil.which(name, path=self._environment.get("PATH"))
        root = self._environment.get("SGE_ROOT")
        if found or not root:
            return found or ""
        architecture = self._environment.get("SGE_ARCH", "*")
        return next(
            (
                str(file)
                for file in sorted(Path(root, "bin").glob(f"{architecture}/{name}"))
                if os.access(file, os.X_OK)
            ),
            "",
        )

    @functools.cached_property
    def _master_log(self) -> Path | None:
        root, cell = self._environment.get("SGE_ROOT"), self._environment.get("SGE_CELL", "default")
        bootstrap = tail(Path(root, cell, "common", "bootstrap"), LOG_BYTES) if root else ""
        folder = re.search(r"^qmaster_spool_dir\s+(\S+)", bootstrap, flags=re.MULTILINE)
        return Path(folder[1], "messages") if folder else None


class Asks(Protocol):
    """Calls Grid Engine's commands; their output is empty where there are none."""

    def ask(self, name: str, *arguments: str) -> Answer: ...


class Limit(NamedTuple):
    """So many seconds, infinite where there is no limit, and what says so, for people."""

    seconds: float = math.inf
    words: str = ""


def parse_running(text: str) -> dict[str, str]:
    """Return where the tasks that run do so, as "all.q@node7", by their ids ("29.1"), from the
    output of `qstat -xml -s r`.
    """
    rows = (
        dict(re.findall(r"<(\w+)>([^<]*)</\1>", row))
        for row in re.findall(r"<job_list\b.*?</job_list>", text, flags=re.DOTALL)
    )
    return {
        f"{row['JB_job_number']}.{row.get('tasks', '1')}": row["queue_name"]
        for row in rows
        if {"JB_job_number", "queue_name"} <= row.keys()
    }


def parse_limit(text: str, whose: str) -> Limit:
    """Return the shorter limit of time in the output of `qconf -sq` or `qstat -j`: a line of its
    own for each, or one of requests. A task cannot use its time of processors (h_cpu) sooner than
    it passes, each slot having as much.
    """
    said = re.findall(r"(?:^|[\s,])(h_rt|h_cpu)(?:=|\s+)([\d:.]+)(?=[\s,]|$)", text)
    limits = [
        Limit(parse_time(value), f"{name}={value} of {whose}")
        for name, value in said
        if parse_time(value)
    ]
    return min(limits, default=Limit())


class TimeLimits:
    """Asks for the limits of tasks."""

    def __init__(self, grid_engine: Asks) -> None:
        self._grid_engine = grid_engine
        self._of_queue = functools.cache(self._ask_queue)
        self._of_job = functools.cache(self._ask_job)

    def of(self, ids: Collection[str]) -> dict[str, Limit]:
        """Return the limit of each of these tasks that runs, counted from its start, by one
        question for all, and one more for each job and queue that was not asked for before.
        """
        user = pwd.getpwuid(os.getuid()).pw_name
        told = self._grid_engine.ask("qstat", "-xml", "-s", "r", "-u", user).output
        return {
            id: min(self._of_job(id.partition(".")[0]), self._of_queue(queue))
            for id, queue in parse_running(told).items()
            if id in ids
        }

    def _ask_job(self, number: str) -> Limit:
        requests = re.findall(
            r"^hard resource_list: +(.*)$",
            self._grid_engine.ask("qstat", "-j", number).output,
            flags=re.MULTILINE,
        )
        return parse_limit(",".join(requests), f"job {number}")

    def _ask_queue(self, queue: str) -> Limit:
        return parse_limit(self._grid_engine.ask("qconf", "-sq", queue).output, f"queue {queue}")


_finding = functools.partial(Finding, "grid_engine")


def findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what there is: the environment, the library, the master, queues, parallel
    environments.
    """
    root, libraries, diagnostics = (
        environment.get("SGE_ROOT"),
        library_paths(environment),
        Diagnostics(environment),
    )
    if not root and not libraries:
        text = (
            "SGE_ROOT is not set"
            if diagnostics.find("qconf")
            else "SGE_ROOT is not set, and there is neither qconf nor a DRMAA library"
        )
        yield _finding(
            "environment",
            State.ABSENT,
            text,
            "source your site's settings.sh, or export SGE_ROOT, where there is a Grid Engine",
        )
        return
    absent = _absent_library(environment, libraries)
    if absent:
        yield _finding(
            "library",
            State.BROKEN,
            absent,
            "install Grid Engine's DRMAA library (Debian: gridengine-drmaa1.0), or set "
            "DRMAA_LIBRARY_PATH to where libdrmaa.so is",
        )
        return
    yield from _system(environment, libraries[0], diagnostics)


def _system(
    environment: Mapping[str, str], library: str, diagnostics: Diagnostics
) -> Iterator[Finding]:
    """Yield what there is of the system that a library speaks to."""
    try:
        system = named_system(library, environment)
    except Unavailable as error:
        system = GRID_ENGINE_UNNAMED
        yield _finding(
            "library",
            State.BROKEN,
            str(error),
            "is it a DRMAA library, for this machine's architecture? A Grid Engine's wants "
            "SGE_ROOT and SGE_CELL to be right",
        )
    else:
        yield _finding("library", State.OK, f"{library}, which speaks to {system}")
    if system.kind != GRID_ENGINE:
        better = (
            ": SlurmScheduler needs no DRMAA library"
            if system.kind == SLURM and not why_no_command("sbatch", environment)
            else ""
        )
        yield _finding("system", State.OK, f"{system.name}, and no Grid Engine{better}")
    elif environment.get("SGE_ROOT"):
        yield from _master(environment, environment["SGE_ROOT"], diagnostics)


def _absent_library(environment: Mapping[str, str], libraries: list[str]) -> str:
    """Return that there is no DRMAA library; empty when there is one."""
    if not libraries:
        return "there is no DRMAA library"
    if "/" not in libraries[0] or Path(libraries[0]).is_file():
        return ""
    named = environment.get("DRMAA_LIBRARY_PATH") == libraries[0]
    said = "DRMAA_LIBRARY_PATH says" if named else "it should be"
    return f"there is no DRMAA library where {said}: {libraries[0]}"


def _master(
    environment: Mapping[str, str], root: str, diagnostics: Diagnostics
) -> Iterator[Finding]:
    command = diagnostics.find("qconf")
    if not command:
        yield _finding(
            "commands",
            State.BROKEN,
            f"qconf is neither in PATH nor below {root}/bin",
            "correct SGE_ROOT, or add the folder of Grid Engine's commands to PATH",
        )
        return
    answer = diagnostics.ask("qconf", "-sql")
    if answer.failure:
        yield _finding(
            "master",
            State.BROKEN,
            answer.failure,
            "is sge_qmaster running? It is looked for where "
            f"{root}/{environment.get('SGE_CELL', 'default')}/common/act_qmaster says",
        )
        return
    yield _finding("master", State.OK, f"answers ({command})")
    queues = answer.output.split()
    yield check_names(_finding("queues", State.OK, listed(queues)), "grid_engine.queue", queues)
    yield _parallel_environments(diagnostics)


def _parallel_environments(diagnostics: Diagnostics) -> Finding:
    check = "parallel environments"
    try:
        rules = diagnostics.parallel_environments()
    except TryAgain as error:
        return _finding(
            check,
            State.BROKEN,
            str(error),
            "is sge_qmaster being restarted? Try again in a minute",
        )
    setting = "grid_engine.parallel_environment"
    fit = setting_of(setting).value or next(
        (name for name, rule in rules.items() if rule == PER_SLOT), ""
    )
    use = (
        f"; Cores(n) uses {fit}"
        if fit
        else f"; none has the allocation_rule {PER_SLOT}, which Cores(n) wants for n > 1"
    )
    words = listed(f"{name} ({rule})" for name, rule in rules.items())
    return check_names(_finding(check, State.OK, words + use), setting, rules)
