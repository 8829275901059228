"""A stand-alone dispatcher with workers of this machine, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import wait_until


class Standalone:
    """Such a dispatcher, below this folder: as the command line starts it, or by a module."""

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "night",
        max_workers: int = 2,
        module: str = "",
        **settings: str,
    ) -> None:
        self.folder = folder / "dispatchers" / name
        self.path = self.folder / "client.json"
        self.path.unlink(missing_ok=True)
        words = [module, name]
        if not module:
            words = ["gridengine", "dispatcher", "start", name, "--foreground"]
            words += ["--scheduler", "processes"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", *words, "--max-workers", str(max_workers)],
            env={**os.environ, "GRIDENGINE_RUN_DIRECTORY": str(folder), **settings},
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_until(lambda: self.path.exists() or self.process.poll() is not None)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> str:
        """End it, and return what it has written to its standard error."""
        self.process.terminate()
        return self.process.communicate(timeout=60)[1]
