"""The ends of log files."""

from __future__ import annotations

import os
from pathlib import Path

from gridengine.security import open_regular

TAIL_BYTES, TAIL_LINES = 4096, 20


def tail(path: Path, size: int) -> str:
    """Return at most so many bytes of the end of a text file; empty when it is none, or cannot be read. Never waits for a writer."""
    try:
        descriptor = open_regular(path)
    except OSError:
        return ""
    try:
        return os.pread(descriptor, size, max(0, os.fstat(descriptor).st_size - size)).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def log_tail(path: str) -> str:
    """Return the last lines of a worker's log, for an error's text."""
    return "\n".join(tail(Path(path), TAIL_BYTES).splitlines()[-TAIL_LINES:]) if path else ""
