"""The user's side of the process that cleans up when this one is gone."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gridengine.schedulers import cleanup_process

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
