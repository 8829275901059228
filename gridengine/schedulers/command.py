"""Run commands of a batch system: now, with a time limit, or when this process is gone."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gridengine.schedulers import cleanup_process
from gridengine.schedulers.batch_commands import Argv, BatchCommands
from gridengine.schedulers.detect import missing
from gridengine.schedulers.launcher import Refused, Unavailable, Unreachable
from gridengine.settings.values import settings
from gridengine.worker.environment import GRANTED, PLACE, matches

log = logging.getLogger("gridengine")

LOOK_SECONDS = 0.5
"""How often we look whether a command only waits."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command wrote to its standard output; `failure` is empty when it did what it was
    asked.
    """

    output: str
    failure: str = ""


def run_command(
    command: Sequence[str], environment: Mapping[str, str], seconds: float, *, waiting: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end, in a session of its own.

    `waiting` is what it writes to its standard error when it only waits for something to change.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: its time is over, or it says that it only waits; with what it
        said so far. It was killed with all processes of its group: a wrapper script of a site
        starts the command as a child.
    """
    until = time.monotonic() + seconds
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        while True:
            try:
                output, errors = process.communicate(
                    timeout=min(LOOK_SECONDS, max(0.0, until - time.monotonic()))
                )
                return subprocess.CompletedProcess(command, process.returncode, output, errors)
            except subprocess.TimeoutExpired as error:
                if (waiting and waiting in (error.stderr or b"")) or time.monotonic() >= until:
                    raise
    except BaseException:
        _abandon(process)
        raise


def _abandon(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, unless it has been waited for, and the others of the group that it leads.

    A command that runs as another user (OAR's) cannot be killed: it is left alone, since it may
    wait for ever.
    """
    if process.returncode is None:  # else another group may have its number
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(LOOK_SECONDS)


def ask(command: Sequence[str], environment: Mapping[str, str], seconds: float) -> Answer:
    """Return what a command says within this time, in English."""
    try:
        done = run_command(command, {**environment, "LC_ALL": "C"}, seconds)
    except subprocess.TimeoutExpired:
        return Answer("", f"{command[0]} gives no answer within {seconds:g} s")
    except OSError as error:
        return Answer("", f"{command[0]}: {error.strerror}")
    output = done.stdout.decode(errors="replace")
    if done.returncode == 0:
        return Answer(output)
    words = " ".join((done.stderr.decode(errors="replace").strip() or output.strip()).split())
    return Answer(output, words or f"{command[0]} ended with status {done.returncode}")


def error_text(text: str) -> str:
    """Return what a command says, in one line, without its own name before each."""
    lines = [
        re.sub(r"^\w+: (error: |fatal: )?", "", line.strip()).strip() for line in text.splitlines()
    ]
    return "; ".join(dict.fromkeys(line for line in lines if line and not line.startswith("Try ")))


def command_environment(system: BatchCommands, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which a system's commands do what their arguments say, and nothing
    else.

    A job has variables of its own, which must not pass for those of a job that is submitted from
    it; and users may have others that change what commands print or wait for. Nor has a job what
    belongs to this machine or login. Where the system is, and what the user wants of all jobs,
    stay.
    """
    clean = {
        name: value
        for name, value in environment.items()
        if system.kept.fullmatch(name)
        or not (
            name.startswith(system.foreign) or matches(PLACE + b"|" + GRANTED, os.fsencode(name))
        )
    }
    return {**clean, **system.variables}


class CommandRunner:
    """Runs commands of a batch system in the environment that they want, made of this one."""

    def __init__(self, system: BatchCommands, environment: Mapping[str, str]) -> None:
        self.environment = command_environment(system, environment)
        self._system = system

    def run(self, command: Argv, seconds: float | None = None) -> str:
        """Return what a command prints, within this time or that of the settings. "There is no such
        job" is no error.

        Raises:
            Unreachable: the system does not answer, or not in time; nothing is known.
            Refused: the answer is no.
            Unavailable: the command is not here.
        """
        try:
            return self.submit(command, seconds)
        except Refused as error:
            if self._system.gone.search(str(error)):
                return error.output
            raise

    def submit(self, command: Argv, seconds: float | None = None) -> str:
        """Return what a command prints that submits jobs: to it any failure is one.

        Raises:
            Unreachable, Refused, Unavailable: as `run`.
        """
        limit = settings().command_timeout if seconds is None else seconds
        try:
            self._check_configuration()
            done = run_command(command, self.environment, limit, waiting=self._system.retrying)
        except FileNotFoundError as error:
            raise Unavailable(missing(command[0])) from error
        except OSError as error:
            raise Unreachable(f"{command[0]} cannot be run: {error}") from error
        except subprocess.TimeoutExpired as error:
            words = error_text((error.stderr or b"").decode(errors="replace"))
            if self._system.later.search(words):
                raise Refused(words) from error
            silence = f"{command[0]} gave no answer within {limit:g} s"
            raise Unreachable(words or silence) from error
        output = done.stdout.decode(errors="replace")
        if done.returncode == 0:
            return output
        words = (
            error_text(done.stderr.decode(errors="replace"))
            or error_text(output)
            or f"{command[0]} ended with status {done.returncode}"
        )
        if self._system.away.search(words) and not self._system.later.search(words):
            raise Unreachable(words)
        raise Refused(words, output)

    def _check_configuration(self) -> None:
        name = self._system.configuration
        path = self.environment.get(name, "")
        if path and not Path(path).exists():
            raise Unreachable(f"there is no configuration file {name}={path}")

    def answers(self, commands: Sequence[Argv]) -> list[str]:
        """Return the outputs of these commands, empty for those that are refused: a site may show
        some to administrators alone.

        Raises:
            Unreachable, Unavailable: as `run`.
        """
        outputs = []
        for command in commands:
            try:
                outputs.append(self.run(command))
            except Refused as error:
                log.info(
                    "%s has no answer to `%s`: %s", self._system.title, " ".join(command), error
                )
                outputs.append("")
        return outputs

    def whole(self, command: Argv) -> list[str]:
        """Return a command with its path, for a process that may not have ours."""
        name, *arguments = command
        return [shutil.which(name, path=self.environment.get("PATH")) or name, *arguments]

    def said_by_variables(self) -> list[str]:
        """Return what the user requests by variables, for people, as `SBATCH_PARTITION=long`."""
        begin = self._system.request_variables
        return sorted(
            f"{name}={value} (of the environment)"
            for name, value in self.environment.items()
            if begin and name.startswith(begin)
        )


logger = logging.getLogger("gridengine")


class Guard:
    """Has a command run and files removed when this process is gone, however it ended.

    Args:
        command: what is run, until it succeeds, for a minute at most.
        files: what is removed.
        environment: of the command.
    """

    def __init__(
        self, command: Sequence[str], files: Sequence[Path], environment: Mapping[str, str]
    ) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                cleanup_process.__file__,
                str(os.getpid()),
                *command,
                "--",
                *map(str, files),
            ],
            stdin=subprocess.PIPE,
            bufsize=0,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            start_new_session=True,
        )

    def add(self, word: str) -> None:
        """Have the command end with this word, too, which holds no blank."""
        self._say(word.encode())

    def dismiss(self) -> None:
        """There is nothing left to clean up: end it."""
        self._say(cleanup_process.DONE)
        self._end()
        self._process.wait()

    def leave(self) -> int:
        """Have it clean up now, for as long as it takes; return the number of its process."""
        self._end()
        return self._process.pid

    def _say(self, word: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(word + b"\n")
        except BrokenPipeError:
            logger.warning("the process that was to clean up after this one was killed")

    def _end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
