"""Messages to the user: that a call has failed, and that calls have ended. A user's own command or
callable sends them.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gridengine.display import log, printable
from gridengine.errors import ConfigurationError, safe_repr
from gridengine.status.rows import Status

COMMAND_SECONDS = 20.0
"""How long a command may take."""
MOST_CHARACTERS = 1000
LEAST_SECONDS = 10.0
"""The setting `notify` sends nothing of calls that all went well in less time."""
FAILED, ENDED = "failed", "ended"
PREFIX = "GRIDENGINE_NOTICE_"


class Notice(Struct, frozen=True, kw_only=True):
    """One message.

    event: `failed`, at the first call that failed; or `ended`.
    name: of the function, or of the dispatcher.
    done, failed, cancelled, left: how many calls are.
    seconds: since the calls began.
    error: of the first call that failed; empty if none has.
    host, pid: of the process that makes the calls, or has the dispatcher.
    more: a command line that shows more.
    """

    event: str
    name: str
    done: int
    failed: int
    cancelled: int
    left: int
    seconds: float
    error: str
    host: str
    pid: int
    more: str

    def __str__(self) -> str:
        counts = [f"{self.done:,} done", f"{self.failed:,} failed"]
        counts += [f"{self.cancelled:,} cancelled"] * bool(self.cancelled)
        counts += [f"{self.left:,} left"] * bool(self.left)
        what = "has ended" if self.event == ENDED else "has its first failed call"
        why = f": {self.error}" if self.error else ""
        return f"{self.name} {what}, {', '.join(counts)}{why}"


def notice_of(event: str, status: Status, error: str, **who: Any) -> Notice:
    """Return the message that tells these counts of calls, and the error of the first that failed.
    `who` are the other fields of `Notice`.
    """
    return Notice(
        event=event,
        done=status.done,
        failed=status.failed,
        cancelled=status.cancelled,
        left=status.waiting + status.running,
        seconds=round(status.elapsed_seconds, 1),
        error=error,
        **who,
    )


Receiver: TypeAlias = str | Callable[[Notice], object]
"""A command line for the shell, or a callable."""


def check_receiver(value: Any) -> None:
    """Check a user's `notify=`.

    Raises:
        TypeError, ConfigurationError: it is neither a callable nor a command line.
    """
    if not (isinstance(value, str) or callable(value)):
        raise TypeError(f"notify must be a command line or a callable, not {safe_repr(value)}")
    if isinstance(value, str) and not value.strip():
        raise ConfigurationError("notify is an empty command line", hint="leave it out")


class Notifier:
    """Sends messages. One that cannot be sent harms nothing, and is told once, in the log."""

    def __init__(self, to: Receiver) -> None:
        self._to = to
        self._told = False

    def send(self, notice: Notice) -> None:
        """Send a message, and wait until it is sent."""
        notice = replace(notice, name=_one_line(notice.name), error=_one_line(notice.error))
        try:
            if isinstance(self._to, str):
                run_command(self._to, notice)
            else:
                self._to(notice)
        except (Exception, SystemExit) as error:
            if not self._told:
                log().warning("notify=%s has failed: %s", safe_repr(self._to), safe_repr(error))
            self._told = True


def _one_line(words: str) -> str:
    """Return words for a subject line or a variable: on one line, of bounded length."""
    return " ".join(printable(words[:MOST_CHARACTERS]).split())


def run_command(command: str, notice: Notice) -> None:
    """Run a command line in the shell. It finds a message in variables, and as JSON in its input.

    Raises:
        OSError: it ended with another status than 0, or was too slow.
    """
    facts = msgspec.to_builtins(notice)
    variables = {PREFIX + name.upper(): str(value) for name, value in facts.items()}
    variables[f"{PREFIX}TEXT"] = str(notice)
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            input=msgspec.json.encode(notice),
            env={**os.environ, **variables},
            capture_output=True,
            timeout=COMMAND_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"it took longer than {COMMAND_SECONDS:g} s") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise ChildProcessError(f"exit status {done.returncode}: {''.join(lines[-1:])}")
