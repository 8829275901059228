"""The logs of workers: their last lines, for errors and people."""

from __future__ import annotations

import os
import re
from pathlib import Path

from gridengine.errors import GridEngineError
from gridengine.wire.connection_file import open_regular

TAIL_BYTES, TAIL_LINES = 4096, 20


def tail(path: Path, size: int) -> str:
    """Return at most this many bytes of the end of a text file; empty if it cannot be read, or is
    not a regular file, which might wait for a writer.
    """
    try:
        descriptor = open_regular(path)
    except OSError:
        return ""
    try:
        return os.pread(descriptor, size, max(0, os.fstat(descriptor).st_size - size)).decode(
            errors="replace"
        )
    except OSError:
        return ""
    finally:
        os.close(descriptor)


CANCELLED = re.compile(
    r"(slurmstepd\S*:|\[\S+\]) error: \*\*\* (JOB|STEP) \S+ ON \S+ CANCELLED AT \S+ "
    r"(DUE to SIGNAL \w+ )?\*\*\*\s*"
)
"""Slurm writes this into the log of a cancelled job, such as the workers at the end of a run; 26.05
begins with the time, and names the signal.
"""


def is_empty(path: Path) -> bool:
    """Return whether a log is empty, or only says that its job was cancelled: it may be removed."""
    try:
        size = path.stat().st_size
    except (OSError, ValueError):  # a worker may name anything
        return False
    text = tail(path, TAIL_BYTES) if size <= TAIL_BYTES else ""
    return not size or bool(text and not CANCELLED.sub("", text))


def add_log(error: GridEngineError, path: str) -> None:
    """Add a worker's log to an error, and quote its end, unless the log is empty."""
    error.log = path if path and not is_empty(Path(path)) else None
    error.log_tail = log_tail(error.log or "") or None


NO_ANSWER = "gets no answer of its dispatcher"


def unanswered(path: str) -> str:
    """Return, from a worker's log, the dispatcher's addresses that it tried in vain, and why."""
    found = re.search(f"{NO_ANSWER}: (.*?)(?:; it tries on)?$", log_tail(path), re.MULTILINE)
    return found[1] if found else ""


NOT_STARTED = re.compile(
    r"^gridengine: (?:the prologue failed with status \d+|the worker could not be started) on "
    r"([^\s;]+)",
    re.MULTILINE,
)
"""What the workers' script writes if it fails; group 1 is the host."""


def host_in_log(path: str) -> str:
    """Return the host on which a worker could not be started, if its log says so."""
    found = NOT_STARTED.search(log_tail(path))
    return found[1] if found else ""


def log_tail(path: str) -> str:
    """Return the last lines of a worker's log; empty if there is none."""
    return "\n".join(tail(Path(path), TAIL_BYTES).splitlines()[-TAIL_LINES:]) if path else ""
