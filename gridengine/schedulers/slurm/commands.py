"""Slurm's commands: how each is called, and what may come of it."""

from __future__ import annotations

import logging
import os
import pwd
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gridengine.errors import ConfigurationError
from gridengine.schedulers.command import run_command
from gridengine.schedulers.detect import missing
from gridengine.schedulers.launcher import (
    BatchSystemError,
    Refused,
    Unavailable,
    Unreachable,
    compress,
)
from gridengine.schedulers.slurm.site import LATER, RETRYING, UNREACHABLE, Site, error_text, site_of
from gridengine.schedulers.slurm.states import (
    FORMAT,
    Row,
    parse_cancelled_by,
    parse_jobs,
    parse_squeue,
)
from gridengine.worker.environment import GRANTED, PLACE, matches

log = logging.getLogger("gridengine")

COMMAND_SECONDS = 20.0
"""How long a command may take: Slurm's own patience is some ten seconds with a master that does not
answer (MessageTimeout).
"""
PROBE_SECONDS = 10.0
MOST_CANCELLED = 100
"""How many arrays are named in one command."""


MEMORY_VARIABLES = ("SBATCH_MEM_PER_CPU", "SBATCH_MEM_PER_GPU", "SBATCH_MEM_PER_NODE")
"""The user says by these how much memory jobs have."""


def command_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which the commands do what their arguments say, and nothing else.

    A job has variables of its own, which must not pass for those of a job that is submitted from
    it; and users may have others that change what commands print or wait for. Nor has a job what
    belongs to this machine or login. Where Slurm is, and what the user wants of all jobs, stay.
    """
    kept = {"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT", "KRB5CCNAME"}
    ours = (
        "SBATCH_WAIT",
        "SBATCH_ARRAY_INX",
        "SBATCH_OUTPUT",
        "SBATCH_ERROR",
        "SBATCH_JOB_NAME",
        "SBATCH_REQUEUE",
        "SBATCH_NO_REQUEUE",
    )
    foreign = ("SLURM_", "SQUEUE_", "SCANCEL_", "SINFO_", "SCONTROL_", "SACCT_")
    clean = {
        name: value
        for name, value in environment.items()
        if name in kept
        or not (
            name.startswith((*foreign, *ours)) or matches(PLACE + b"|" + GRANTED, os.fsencode(name))
        )
    }
    # All numbers of an array, and times that can be compared.
    return {**clean, "SLURM_BITSTR_LEN": "0", "SLURM_TIME_FORMAT": "standard"}


def variables(environment: Mapping[str, str]) -> list[str]:
    """Return what the user says to sbatch by variables, for people, as `SBATCH_PARTITION=long`."""
    return sorted(
        f"{name}={value} (of the environment)"
        for name, value in environment.items()
        if name.startswith("SBATCH_")
    )


def sbatch_command(
    options: Sequence[str], *, name: str, count: int, log: Callable[[object], str], script: Path
) -> list[str]:
    """Return the command that submits an array of `count` tasks, or with 0 a single job.

    The options come before what is ours, so that they cannot change it; but after `--no-requeue`,
    which they may.

    Raises:
        ConfigurationError: the run directory's path cannot be said to Slurm.
    """
    if "\\" in str(script):
        raise ConfigurationError(
            f"the run directory {script.parent} has a backslash in its path, with which Slurm "
            "cannot name logs",
            hint="set GRIDENGINE_RUN_DIRECTORY to another",
        )
    output = log("\0").replace("%", "%%").replace("\0", "%a" if count else "1")
    array = [f"--array=1-{count}"] if count else []
    ours = [f"--job-name={name}", *array, f"--output={output}", f"--chdir={script.parent}"]
    return ["sbatch", "--parsable", "--no-requeue", *options, *ours, str(script)]


class Slurm:
    """Calls the commands of the Slurm that this environment names. `environment` is theirs."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = command_environment(environment)
        self._user = str(os.getuid())

    def run(self, *command: str, seconds: float = COMMAND_SECONDS) -> str:
        """Return a command's output.

        Raises:
            BatchSystemError: there is none.
        """
        configuration = self.environment.get("SLURM_CONF", "")
        if configuration and not Path(configuration).exists():
            # Its commands look for it for a minute.
            raise Unreachable(f"there is no configuration file SLURM_CONF={configuration}")
        try:
            done = run_command(command, self.environment, seconds, waiting=RETRYING)
        except FileNotFoundError as error:
            raise Unavailable(missing(command[0])) from error
        except OSError as error:
            raise Unreachable(f"{command[0]} cannot be run: {error}") from error
        except subprocess.TimeoutExpired as error:
            words = error_text((error.stderr or b"").decode(errors="replace"))
            if LATER.search(words):
                raise Refused(words) from error
            raise Unreachable(
                words or f"{command[0]} gave no answer within {seconds:g} s"
            ) from error
        if done.returncode == 0:
            return done.stdout.decode(errors="replace")
        words = (
            error_text(done.stderr.decode(errors="replace"))
            or f"{command[0]} ended with status {done.returncode}"
        )
        if UNREACHABLE.search(words) and not LATER.search(words):
            raise Unreachable(words)
        raise Refused(words)

    def site(self, partitions: str) -> Site:
        """Return what this Slurm allows in these partitions, or in the default one."""
        return site_of(
            self.run("scontrol", "show", "config"),
            self._shown("scontrol", "show", "partition", "--oneliner"),
            self._shown("sinfo", "--noheader", "--format=%R|%c|%m"),
            partitions,
        )

    def _shown(self, *command: str) -> str:
        """Return a command's output; empty where the site shows that to administrators alone
        (PrivateData in slurm.conf(5)).
        """
        try:
            return self.run(*command)
        except Refused as error:
            if "permission denied" not in str(error):
                raise
            log.info("this Slurm does not answer `%s`: %s", " ".join(command), error)
            return ""

    def submit(self, command: Sequence[str], count: int) -> list[str]:
        """Submit an array, or with 0 a single job; return the ids of its tasks, in order."""
        job = self.run(*command).strip().partition(";")[0]
        if not job.isdigit():
            raise Refused(f"sbatch gives no number of a job but {job!r}")
        return [f"{job}_{task}" for task in range(1, count + 1)] if count else [job]

    def probe(self, options: Sequence[str]) -> None:
        """Raise what a submission by this user would raise."""
        self.run("sbatch", "--test-only", *options, "--wrap=true", seconds=PROBE_SECONDS)

    def jobs(self, name: str) -> dict[str, Row]:
        """Return the tasks of all jobs of this name, those that have ended too for as long as Slurm
        remembers them.
        """
        which = ("--states=all", f"--user={self._user}", f"--name={name}")
        try:
            return parse_squeue(self.run("squeue", "--noheader", *which, f"--format={FORMAT}"))
        except ValueError as error:
            raise Unreachable(str(error)) from error

    def has_jobs(self) -> bool:
        """Return whether any job of this user waits or runs; True when Slurm does not say."""
        try:
            return bool(self.run("squeue", "--noheader", f"--user={self._user}", "--format=%F"))
        except BatchSystemError:
            return True

    def details(self, job: str) -> dict[str, dict[str, str]]:
        """Return all that Slurm knows of each task of an array, empty when it has forgotten it."""
        try:
            return parse_jobs(
                self.run("scontrol", "show", "job", job.partition("_")[0], "--oneliner")
            )
        except Refused:
            return {}

    def cancelled_by(self, job: str) -> str:
        """Return who cancelled a job, where accounts are kept; empty when they do not say."""
        number = parse_cancelled_by(
            self.run(
                "sacct",
                "--noheader",
                "--parsable2",
                "--allocations",
                f"--jobs={job}",
                "--format=State%40",
            )
        )
        try:
            return pwd.getpwuid(int(number)).pw_name if number else ""
        except KeyError:
            return f"user {number}"

    def cancel(self, jobs: Sequence[str]) -> None:
        """Cancel these tasks. Those that have ended are no error."""
        named = compress(jobs)
        for start in range(0, len(named), MOST_CANCELLED):
            self.run("scancel", "--quiet", *named[start : start + MOST_CANCELLED])

    def cancel_command(self, name: str) -> list[str]:
        """Return the command that cancels all jobs of this name."""
        return [
            shutil.which("scancel") or "scancel",
            "--quiet",
            f"--user={self._user}",
            f"--name={name}",
        ]
