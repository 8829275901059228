"""The ends of log files."""

from __future__ import annotations

import os
from pathlib import Path

TAIL_BYTES, TAIL_LINES = 4096, 20


def tail(path: Path, size: int) -> str:
    """Return the end of a text file; empty when it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def log_tail(path: str) -> str:
    """Return the last lines of a worker's log, for an error's text."""
    return "\n".join(tail(Path(path), TAIL_BYTES).splitlines()[-TAIL_LINES:]) if path else ""
