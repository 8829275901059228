"""The information that Grid Engine's own commands and its log have beyond DRMAA: why jobs wait and
fail, how long they may run, and the checks of `gridengine doctor`.

Nothing depends on the answers. If commands or files are missing, errors merely say less.
"""

from __future__ import annotations

import functools
import html
import logging
import math
import os
import pwd
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gridengine.schedulers.batch_words import clock_seconds
from gridengine.schedulers.checks import CheckState, Finding, check_names, listed, setting_of
from gridengine.schedulers.command import CommandOutput, ask
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
)
from gridengine.schedulers.launcher import TryAgain, Unavailable
from gridengine.schedulers.logs import tail
from gridengine.settings.values import settings

logger = logging.getLogger("gridengine")

NOWHERE = {"PATH": ""}
"""An environment in which there is no Grid Engine."""
STAMP = re.compile(r"^[\d/]+ [\d:]+ \[\d+:\d+\]: (error: )?")
"""The prefix of a reason: the time, and the user and process that wrote it."""
QUEUE_STATES = {
    "C": "a calendar suspends it",
    "D": "a calendar disables it",
    "S": "it is subordinate to a queue whose jobs suspend it",
}
"""The states of a queue that come and go by themselves (qstat(1))."""
LOG_BYTES = 256 * 1024
"""How much of the end of the master's log is read."""


@dataclass(frozen=True, slots=True)
class JobFailure:
    """Why a job failed, in Grid Engine's words, and on which host."""

    words: str
    host: str = ""


def parse_accounting(text: str, task: str) -> JobFailure | None:
    """Return why a task failed, from `qacct -j` (accounting(5)); None if it did not."""
    for record in re.split(r"^=+$", text, flags=re.MULTILINE):
        fields = dict(re.findall(r"^(\w+) +(.*?) *$", record, flags=re.MULTILINE))
        words = fields.get("failed", "").partition(":")[2]
        if fields.get("taskid") in (task, "undefined") and words:
            return JobFailure(words.strip(), fields.get("hostname", ""))
    return None


def parse_master_log(text: str, job: str) -> JobFailure | None:
    """Return the last failure of this job ("29.1") in the master's log.

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
    # "assumedly after job" only says that a signal ended the job, which is known.
    return JobFailure(f"{stage}: {cause}" if stage != "assumedly after job" else "", host)


def parse_error_reasons(text: str) -> list[str]:
    """Return why a job is in the error state, from the output of `qstat -j`."""
    return [
        STAMP.sub("", reason).strip()
        for reason in re.findall(r"^error reason +\d+: +(.*)$", text, flags=re.MULTILINE)
    ]


def parse_scheduling(text: str) -> list[str]:
    """Return why a job waits, from `qstat -j`, without queues that it does not request."""
    _, found, rest = text.partition("\nscheduling info:")
    if not found:
        return []
    asked = re.search(r"^hard_queue_list: +(\S+)", text, flags=re.MULTILINE)
    queues = [queue.partition("@")[0] for queue in asked[1].split(",")] if asked else []
    lines = [line.strip() for line in rest.splitlines() if line.strip()]
    return [line for line in lines if not queues or _concerns(line, queues)]


def parse_queues(text: str) -> dict[str, str]:
    """Return why queue instances run nothing, by their names, from `qstat -f -explain acAE -xml`:
    by their states, and by reasons of Grid Engine's own.
    """
    found = {}
    for row in re.findall(r"<Queue-List>.*?</Queue-List>", text, flags=re.DOTALL):
        fields = dict(re.findall(r"<(name|state|message)>([^<]*)</", row))
        words = [said for letter, said in QUEUE_STATES.items() if letter in fields.get("state", "")]
        words += [html.unescape(fields["message"])] if "message" in fields else []
        found[fields.get("name", "")] = "; ".join(words)
    return found


def _concerns(line: str, queues: list[str]) -> bool:
    named = re.search(r'queue(?: instance)? "([^"@]+)', line)
    is_pattern = any(mark in queue for queue in queues for mark in "*?[|")
    return named is None or named[1] in queues or is_pattern


class Limit(NamedTuple):
    """A number of seconds, infinite without a limit, and the limit in words."""

    seconds: float = math.inf
    words: str = ""


def parse_running(text: str) -> dict[str, str]:
    """Return the queue instance of each running task ("29.1"), from `qstat -xml -s r`."""
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
    """Return the shortest time limit in the output of `qconf -sq` (a limit a line), or in a list of
    requests. `h_cpu` counts too: each slot has as much of it as of time.
    """
    said = re.findall(r"(?:^|[\s,])(h_rt|h_cpu)(?:=|\s+)([\d:.]+)(?=[\s,]|$)", text)
    limits = [
        Limit(clock_seconds(value), f"{name}={value} of {whose}")
        for name, value in said
        if clock_seconds(value)
    ]
    return min(limits, default=Limit())


class Diagnostics:
    """Asks the commands and files of the Grid Engine that an environment names, if it names one."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        root, architecture = environment.get("SGE_ROOT"), environment.get("SGE_ARCH", "*")
        folders = sorted(Path(root, "bin").glob(architecture)) if root else []
        path = ":".join(filter(None, [environment.get("PATH", os.defpath), *map(str, folders)]))
        self._environment = {**environment, "LC_ALL": "C", "PATH": path}
        self._limit_of_queue = functools.cache(self._ask_queue)
        self._limit_of_job = functools.cache(self._ask_job)

    def failure(self, job: str) -> JobFailure | None:
        """Return why a job failed, if known: the log knows at once, the accounts 15 s later."""
        number, _, task = job.partition(".")
        task = task or "1"
        return self.logged_failure(job) or parse_accounting(
            self._output("qacct", "-j", number, "-t", task), task
        )

    def logged_failure(self, job: str) -> JobFailure | None:
        """Return why a job failed, if the master's log can be read here and says so."""
        path = self._master_log
        return parse_master_log(tail(path, LOG_BYTES), job) if path is not None else None

    def error_state(self, job: str) -> str:
        """Return why a job is in the error state, empty if it is not."""
        return "; ".join(parse_error_reasons(self._qstat(job)))

    def waiting(self, job: str) -> str:
        """Return the reason why a job waits, empty if unknown."""
        output = self._qstat(job)
        errors = parse_error_reasons(output)
        return "; ".join(errors or self._with_states(parse_scheduling(output)))

    def _with_states(self, reasons: list[str]) -> list[str]:
        """Return reasons, those on queues that run nothing with more words of Grid Engine's."""
        named = [
            re.search(r'instance "(\S+)" dropped because it is (temp|disab)', one)
            for one in reasons
        ]
        if not any(named):
            return reasons
        states = parse_queues(self._output("qstat", "-f", "-explain", "acAE", "-xml"))
        more = [states.get(one[1], "") if one else "" for one in named]
        return [": ".join(filter(None, pair)) for pair in zip(reasons, more, strict=True)]

    def lacks(self, job: str) -> bool:
        """Return whether Grid Engine's master says that it has no such job."""
        return "do not exist" in self.ask("qstat", "-j", job.partition(".")[0]).failure

    def _qstat(self, job: str) -> str:
        return self._output("qstat", "-j", job.partition(".")[0])

    def parallel_environments(self) -> dict[str, str]:
        """Return the allocation_rule of each parallel environment; empty if there is none, or no
        qconf here.

        Raises:
            TryAgain: qconf is here, and Grid Engine's master does not answer it.
        """
        names = self._output("qconf", "-spl").split()
        # If it names no environment: does it name a host?
        if not names and self.find("qconf") and not self._output("qconf", "-sh"):
            raise TryAgain(
                "qconf, which is asked for the parallel environments, has no answer of Grid "
                "Engine's master"
            )
        return parse_environments(self._output("qconf", "-sp", name) for name in names)

    @functools.cached_property
    def parallel_environment(self) -> str:
        """The parallel environment for `Cores`.

        Raises:
            ConfigurationError: there is none.
            TryAgain: Grid Engine's master does not answer.
        """
        return first_environment(self.parallel_environments())

    def _output(self, name: str, *arguments: str) -> str:
        return self.ask(name, *arguments).output

    def ask(self, name: str, *arguments: str) -> CommandOutput:
        """Return the answer of a command of Grid Engine's, in English; empty if it is not here."""
        command = self.find(name)
        if not command:
            return CommandOutput("")
        answer = ask([command, *arguments], self._environment, settings().command_timeout)
        if answer.failure:
            logger.debug("%s", answer.failure)
        return answer

    def find(self, name: str) -> str:
        """Return the path of one of Grid Engine's commands, empty if there is none."""
        return shutil.which(name, path=self._environment["PATH"]) or ""

    def limits(self, ids: Collection[str]) -> dict[str, Limit]:
        """Return how long each of these running tasks may run from its start, by the limits of the
        site: those of its queue, and those that default requests (sge_request(5), a JSV) give its
        job. That takes one question for all tasks, and one for each new job and queue.
        """
        user = pwd.getpwuid(os.getuid()).pw_name
        return {
            id: min(self._limit_of_job(id.partition(".")[0]), self._limit_of_queue(queue))
            for id, queue in parse_running(
                self._output("qstat", "-xml", "-s", "r", "-u", user)
            ).items()
            if id in ids
        }

    def _ask_job(self, number: str) -> Limit:
        told = self._output("qstat", "-j", number)
        requests = re.findall(r"^hard resource_list: +(.*)$", told, flags=re.MULTILINE)
        return parse_limit(",".join(requests), f"job {number}")

    def _ask_queue(self, queue: str) -> Limit:
        return parse_limit(self._output("qconf", "-sq", queue), f"queue {queue}")

    @functools.cached_property
    def _master_log(self) -> Path | None:
        root, cell = self._environment.get("SGE_ROOT"), self._environment.get("SGE_CELL", "default")
        bootstrap = tail(Path(root, cell, "common", "bootstrap"), LOG_BYTES) if root else ""
        folder = re.search(r"^qmaster_spool_dir\s+(\S+)", bootstrap, flags=re.MULTILINE)
        return Path(folder[1], "messages") if folder else None


# What `gridengine doctor` checks.

_finding = functools.partial(Finding, "grid_engine")
_ok = functools.partial(_finding, state=CheckState.OK)
_broken = functools.partial(_finding, state=CheckState.BROKEN)


def findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check the environment, the DRMAA library, and the system that it speaks to."""
    root, libraries = environment.get("SGE_ROOT"), library_paths(environment)
    diagnostics = Diagnostics(environment)
    if not root and not libraries:
        has_command = diagnostics.find("qconf")
        more = "" if has_command else ", and there is neither qconf nor a DRMAA library"
        yield _finding(
            "environment",
            CheckState.ABSENT,
            f"SGE_ROOT is not set{more}",
            "source your site's settings.sh, or export SGE_ROOT, where there is a Grid Engine",
        )
        return
    absent = _absent_library(environment, libraries)
    if absent:
        remedy = (
            "install Grid Engine's DRMAA library (Debian: gridengine-drmaa1.0), or set "
            "DRMAA_LIBRARY_PATH to where libdrmaa.so is"
        )
        yield _broken("library", text=absent, remedy=remedy)
        return
    try:
        system = named_system(libraries[0], environment)
    except Unavailable as error:
        system = GRID_ENGINE_UNNAMED
        remedy = (
            "is it a DRMAA library, for this machine's architecture? A Grid Engine's wants "
            "SGE_ROOT and SGE_CELL to be right"
        )
        yield _broken("library", text=str(error), remedy=remedy)
    else:
        yield _ok("library", text=f"{libraries[0]}, which speaks to {system}")
    if system.kind != GRID_ENGINE:
        better = system.kind == SLURM and not why_no_command("sbatch", environment)
        hint = ": SlurmScheduler needs no DRMAA library" if better else ""
        yield _ok("system", text=f"{system.name}, and no Grid Engine{hint}")
    elif root:
        yield from _master(environment, root, diagnostics)


def _absent_library(environment: Mapping[str, str], libraries: list[str]) -> str:
    """Return a text that says that there is no DRMAA library; empty if there is one."""
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
    """Check Grid Engine's commands, its master, queues and parallel environments."""
    command = diagnostics.find("qconf")
    if not command:
        remedy = "correct SGE_ROOT, or add the folder of Grid Engine's commands to PATH"
        text = f"qconf is neither in PATH nor below {root}/bin"
        yield _broken("commands", text=text, remedy=remedy)
        return
    answer = diagnostics.ask("qconf", "-sql")
    if answer.failure:
        place = f"{root}/{environment.get('SGE_CELL', 'default')}/common/act_qmaster"
        remedy = f"is sge_qmaster running? It is looked for where {place} says"
        yield _broken("master", text=answer.failure, remedy=remedy)
        return
    yield _ok("master", text=f"answers ({command})")
    queues = answer.output.split()
    yield check_names(_ok("queues", text=listed(queues)), "grid_engine.queue", queues)
    yield _parallel_environments(diagnostics)


def _parallel_environments(diagnostics: Diagnostics) -> Finding:
    check, setting = "parallel environments", "grid_engine.parallel_environment"
    try:
        rules = diagnostics.parallel_environments()
    except TryAgain as error:
        remedy = "is sge_qmaster being restarted? Try again in a minute"
        return _broken(check, text=str(error), remedy=remedy)
    one_machine = (name for name, rule in rules.items() if rule == PER_SLOT)
    fit = setting_of(setting).value or next(one_machine, "")
    nothing = f"none has the allocation_rule {PER_SLOT}, which Cores(n) wants for n > 1"
    words = listed(f"{name} ({rule})" for name, rule in rules.items())
    spread = setting_of("grid_engine.mpi_environment").value
    text = f"{words}; {f'Cores(n) uses {fit}' if fit else nothing}"
    text += f", Ranks(n) {spread}" if spread else ""
    found = check_names(_ok(check, text=text), setting, rules)
    return check_names(found, "grid_engine.mpi_environment", rules) if spread else found
