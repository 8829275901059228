"""What Grid Engine itself says of a job, beyond DRMAA: its commands' output and its log, parsed by
pure functions.

Nothing depends on it: where the commands or files are missing, there are fewer words, and that is
all.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gridengine.schedulers.command import Answer, ask
from gridengine.schedulers.grid_engine.options import first_environment, parse_environments
from gridengine.schedulers.launcher import TryAgain
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
