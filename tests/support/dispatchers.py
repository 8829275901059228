"""`gridengine dispatcher` as a user has it: from shells that see what is one's own alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from tests.support.processes import completed
from tests.support.waiting import kill_all


class Shell:
    """Runs `gridengine`, with the run directory below a folder, and so the sockets by which runs
    are watched: other tests may have dispatchers of the same name at the same time.

    python, environment, identity: the interpreter, what it finds besides, and as whom it runs.
    """

    def __init__(
        self,
        folder: Path,
        *,
        python: str = sys.executable,
        environment: Mapping[str, str] = os.environ,
        identity: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.folder, self._python, self._identity = folder, python, identity
        self.dispatchers = folder / "runs" / "dispatchers"
        self.environment: Mapping[str, str] = {
            **environment,
            "GRIDENGINE_RUN_DIRECTORY": str(folder / "runs"),
            "GRIDENGINE_WATCH_DIRECTORY": str(folder / "watch"),
        }

    def command(self, *words: str) -> list[str]:
        return [self._python, "-m", "gridengine", *words]

    def begin(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command; what it writes, errors included, is to be read."""
        return subprocess.Popen(
            self.command(*words),
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **self._identity,
            **options,
        )

    def run(self, *words: str) -> tuple[int, str]:
        """Run a command; return its exit status and what it wrote, errors included."""
        process = self.begin(*words)
        output, _ = process.communicate(timeout=120)
        return process.returncode, output

    def done(self, *words: str) -> str:
        """Run a command that must succeed, and return what it wrote."""
        status, output = self.run(*words)
        assert status == 0, output
        return output

    def python(self, code: str, *words: str) -> str:
        """Run a script that must succeed, and return what it printed."""
        done = completed(
            [self._python, "-c", code, *words],
            env=self.environment,
            cwd=self.folder,
            **self._identity,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def status(self, name: str) -> dict[str, Any]:
        """Return what is told of a dispatcher."""
        found: dict[str, Any] = json.loads(self.run("dispatcher", "status", name, "--json")[1])
        return found

    def processes(self) -> list[psutil.Process]:
        """Return the processes of dispatchers below this folder."""
        found = []
        for process in psutil.process_iter():
            try:
                line = process.cmdline()
            except psutil.Error:
                continue
            if any(word.startswith(str(self.dispatchers)) for word in line):
                found.append(process)
        return found

    def kill_all(self) -> None:
        """Kill what is left."""
        kill_all(self.processes)
