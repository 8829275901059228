"""Runs commands of a batch system: now, with a time limit, or when this process is gone."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from gridengine.call_context.environment import GRANTED, matches, place_variables
from gridengine.schedulers import cleanup_process
from gridengine.schedulers.batch_commands import Argv, BatchCommands
from gridengine.schedulers.detect import missing
from gridengine.schedulers.launcher import (
    BatchSystemError,
    BatchSystemRefusal,
    Unavailable,
    Unreachable,
)
from gridengine.settings.values import settings

logger = logging.getLogger("gridengine")

LOOK_SECONDS = 0.5
"""How often to check whether a command only waits."""


class CommandOutput(Struct, frozen=True):
    """The standard output of a command, and why it failed; `failure` is empty if it did not.
    `is_silent` is whether it gave no answer: it cannot be run, was too slow, or only waits.
    """

    output: str
    failure: str = ""
    is_silent: bool = False


def run_command(
    command: Sequence[str], environment: Mapping[str, str], seconds: float, *, waiting: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end, in a session of its own.

    waiting: the text that the command writes to standard error when it only waits and retries.

    Raises:
        OSError: the command cannot be started.
        subprocess.TimeoutExpired: its time is over, or it only waits; with its output so far. All
            processes of its group were killed: a site's wrapper script starts the real command as a
            child.
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
    """Kill a process, unless it has been waited for, and all others of its group.

    A command that runs as another user (OAR's) cannot be killed: it is left alone, since waiting
    for it may take for ever.
    """
    if process.returncode is None:  # else another group may have its number
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(LOOK_SECONDS)


def ask(
    command: Sequence[str], environment: Mapping[str, str], seconds: float, *, waiting: bytes = b""
) -> CommandOutput:
    """Return a command's answer within this time; `waiting` as for `run_command`.

    Raises:
        FileNotFoundError: there is no such command.
    """
    try:
        done = run_command(command, environment, seconds, waiting=waiting)
    except subprocess.TimeoutExpired as error:
        words = error_text((error.stderr or b"").decode(errors="replace"))
        return CommandOutput("", words or f"{command[0]} gave no answer within {seconds:g} s", True)
    except FileNotFoundError:
        raise
    except OSError as error:
        return CommandOutput("", f"{command[0]} cannot be run: {error.strerror}", True)
    output = done.stdout.decode(errors="replace")
    if done.returncode == 0:
        return CommandOutput(output)
    errors = done.stderr.decode(errors="replace")
    ended = f"{command[0]} ended with status {done.returncode}"
    return CommandOutput(output, error_text(errors) or error_text(output) or ended)


def error_text(text: str) -> str:
    """Return a command's error messages on one line, without the command's name before each."""
    lines = [
        re.sub(r"^\w+: (error: |fatal: )?", "", line.strip()).strip() for line in text.splitlines()
    ]
    return "; ".join(dict.fromkeys(line for line in lines if line and not line.startswith("Try ")))


def command_environment(system: BatchCommands, environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which a system's commands do exactly what their arguments say.

    It lacks the variables of the batch job that this process may run in, those of this machine and
    login, and those that change what commands print or wait for. It has the variables that say
    which system to use, and those by which the user requests something for all jobs.
    """
    elsewhere = place_variables() + b"|" + GRANTED
    clean = {
        name: value
        for name, value in environment.items()
        if system.kept.fullmatch(name)
        or not (name.startswith(system.foreign) or matches(elsewhere, os.fsencode(name)))
    }
    return {**clean, **system.variables}


class CommandRunner:
    """Runs a batch system's commands, in `command_environment` of the given environment."""

    def __init__(self, system: BatchCommands, environment: Mapping[str, str]) -> None:
        self.environment = command_environment(system, environment)
        self._system = system

    def run(self, command: Argv, seconds: float | None = None) -> str:
        """Return a command's output, within this time or that of the settings. "There is no such
        job" is not an error.

        Raises:
            Unreachable: the system does not answer, or not in time; nothing is known.
            Refused: the answer is no.
            Unavailable: the command is not here.
        """
        try:
            return self.submit(command, seconds)
        except BatchSystemRefusal as error:
            if self._system.gone.search(str(error)):
                return error.output
            raise

    def submit(self, command: Argv, seconds: float | None = None) -> str:
        """Return the output of a command that submits jobs: any failure is an error.

        Raises:
            Unreachable, Refused, Unavailable: as `run`.
        """
        system, limit = self._system, settings().command_timeout if seconds is None else seconds
        path = self.environment.get(system.configuration, "")
        if path and not Path(path).exists():
            raise Unreachable(f"there is no configuration file {system.configuration}={path}")
        try:
            answer = ask(command, self.environment, limit, waiting=system.retrying)
        except FileNotFoundError as error:
            raise Unavailable(missing(command[0])) from error
        if not answer.failure:
            return answer.output
        is_limit = system.later.search(answer.failure)
        if not is_limit and (answer.is_silent or system.away.search(answer.failure)):
            raise Unreachable(answer.failure)
        raise BatchSystemRefusal(answer.failure, answer.output)

    def answer(self, command: Argv) -> CommandOutput:
        """Return a command's answer; its `failure` is the error that `run` would raise."""
        try:
            return CommandOutput(self.run(command))
        except BatchSystemError as error:
            return CommandOutput("", str(error))

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
            except BatchSystemRefusal as error:
                logger.info(
                    "%s has no answer to `%s`: %s", self._system.title, " ".join(command), error
                )
                outputs.append("")
        return outputs

    def whole(self, command: Argv) -> list[str]:
        """Return a command with its path, for a process that may have another PATH."""
        import shutil  # it takes milliseconds to import

        name, *arguments = command
        return [shutil.which(name, path=self.environment.get("PATH")) or name, *arguments]

    def said_by_variables(self) -> list[str]:
        """Return the user's requests by variables, for people, such as `SBATCH_PARTITION=long`."""
        begin = self._system.request_variables
        return sorted(
            f"{name}={value} (of the environment)"
            for name, value in self.environment.items()
            if begin and name.startswith(begin)
        )


class Guard:
    """Another process that runs a command and removes files when this process is gone, however it
    ended (`cleanup_process`).

    Args:
        command: is run until it succeeds, for at most a minute.
        files: are removed.
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
        """Append this word, which holds no blank, to the command."""
        self._say(word.encode())

    def dismiss(self) -> None:
        """End that process: there is nothing left to clean up."""
        self._say(cleanup_process.DONE)
        self._end()
        self._process.wait()

    def leave(self) -> int:
        """Have that process clean up now, however long it takes; return its number."""
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
