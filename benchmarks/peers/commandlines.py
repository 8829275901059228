"""The command line of this package, installed and in one file. They have no workers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

from benchmarks.peers.base import Absent, Peer


class CommandLine(Peer):
    """`gridengine`, as it is installed beside this interpreter."""

    file: ClassVar[Path] = Path(sys.prefix, "bin", "gridengine")

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        if not self.file.exists():
            raise Absent(f"there is no {self.file.name}: make onefile")


class OneFile(CommandLine):
    """`gridengine.pyz`, as `make onefile` builds it."""

    file = Path(__file__).resolve().parents[2] / "dist" / "gridengine.pyz"
