"""Run a command of a batch system, for so long and no longer."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        while True:
            try:
                output, errors = process.communicate(
                    timeout=min(LOOK_SECONDS, max(0.0, until - time.monotonic()))
                )
                return subprocess.CompletedProcess(command, process.returncode, output, errors)
            except subprocess.TimeoutExpired as error:
                if (waiting and waiting in (error.stderr or b"")) or time.monotonic() >= until:
                    _kill_group(process)
                    raise
            except BaseException:
                _kill_group(process)
                raise


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, unless it has been waited for, and the others of the group that it leads."""
    if process.returncode is None:  # else another group may have its number
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


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
