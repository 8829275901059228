"""Runs scripts as a user would, and sees what they leave behind."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import pty
import re
import subprocess
import termios
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import gridengine

ROOT = Path(gridengine.__file__).parents[1]
MARK = "GRIDENGINE_TEST_MARK"
LEAVE_SECONDS = 40


@dataclass(frozen=True)
class Script:
    """A user's script, its environment marked so that all its processes can be found."""

    command: list[str]
    folder: Path
    mark: str
    temporary: Path

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        others = {
            name: value
            for name, value in os.environ.items()
            if name not in ("SGE_ROOT", "XDG_RUNTIME_DIR")
        }
        # From Python 3.13 on tracebacks are coloured on a terminal.
        return {
            **others,
            "PYTHONPATH": path,
            "PYTHON_COLORS": "0",
            "TERM": "xterm",
            "TMPDIR": str(self.temporary),
            MARK: self.mark,
        }

    def run(self, *, seconds: float = 150, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command,
            cwd=self.folder,
            env={**self.environment(), "GRIDENGINE_PROGRESS": "no"},  # it may take long
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            **options,
        )

    def start(self, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command, cwd=self.folder, env=self.environment(), text=True, **options
        )

    def processes(self) -> list[psutil.Process]:
        """Return its processes that are left."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if (
                    process.environ().get(MARK) == self.mark
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    found.append(process)
        return found

    def leftovers(self) -> list[object]:
        """Return the processes and files that are left when they have had time to go."""
        _, left = psutil.wait_procs(self.processes(), LEAVE_SECONDS)
        return [*left, *self.temporary.iterdir()]


MakeScript = Callable[..., Script]


@contextlib.contextmanager
def at_terminal(script: Script) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a script as the foreground process of a terminal of its own; yield it and the
    terminal's other end.
    """
    ours, theirs = pty.openpty()
    try:
        take_terminal = functools.partial(fcntl.ioctl, theirs, termios.TIOCSCTTY, 0)
        process = script.start(
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=take_terminal,
        )
    finally:
        os.close(theirs)
    try:
        yield process, ours
    finally:
        os.close(ours)
        process.kill()
        process.wait()


def read_until(words: str, terminal: int) -> str:
    """Return what is written on a terminal up to these words."""
    written = b""
    while words.encode() not in written:
        written += os.read(terminal, 4096)
    return written.decode()


def read_all(terminal: int) -> str:
    """Return what is written on a terminal until nobody holds it any more."""
    written = b""
    with contextlib.suppress(OSError):  # that is how its end is told
        while piece := os.read(terminal, 4096):
            written += piece
    return written.decode()


def screen(written: str) -> list[str]:
    """Return what stands on a terminal that has no end after this has been written, up to the row
    of the cursor.
    """
    rows, row, column = [""], 0, 0
    for piece in re.findall(r"\x1b\[2K|\x1b\[1A|\n|\r|[^\r\n\x1b]+", written):
        if piece == "\n":
            row, column = row + 1, 0
            rows[row:] = rows[row:] or [""]
        elif piece == "\r":
            column = 0
        elif piece == "\x1b[2K":
            rows[row] = ""
        elif piece == "\x1b[1A":
            row -= 1
        else:
            rows[row] = f"{rows[row][:column]:{column}}{piece}{rows[row][column + len(piece) :]}"
            column += len(piece)
    return rows[: row + 1]
