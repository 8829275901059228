"""Processes that are measured. All that they start, in whatever session, stays below this process,
and so is found and ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

SAMPLE_SECONDS = 0.005
KILL_SECONDS = 5.0
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended. `peak_bytes` is the most memory that it and its descendants had; 0 when
    nobody looked.
    """

    status: int | None
    errors: str
    peak_bytes: int


def adopt() -> None:
    """Have orphans among the descendants of this process become its children, see prctl(2)."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    seconds: float,
    sampled: bool,
    options: Mapping[str, Any],
) -> Ended:
    """Run a command to its end, or for so many seconds; what it left running is killed. `status` is
    None when time ran out.

    `sampled`: its memory is looked at. `options` are for `subprocess.Popen`. One at a time, since
    all descendants are taken for its own.
    """
    with tempfile.TemporaryFile() as errors:
        files = {"stdin": subprocess.DEVNULL, "stdout": errors, "stderr": errors}
        process = subprocess.Popen(
            command, env=environment, start_new_session=True, **files, **options
        )  # type: ignore[call-overload]
        watch = Watch() if sampled else None
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            peak = watch.stop() if watch else 0
            end_descendants()
            process.wait()
        errors.seek(0)
        return Ended(status, errors.read().decode(errors="replace"), peak)


def end_descendants() -> None:
    """Kill what a measurement left, until nothing is found: what is killed may have been starting
    more.
    """
    while found := psutil.Process().children(recursive=True):
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(found, timeout=KILL_SECONDS)


def proportional_bytes(pid: int) -> int:
    """Return a process's share of the memory in use, where a page that n processes map counts as an
    n-th for each; 0 when it has ended.
    """
    try:
        with open(f"/proc/{pid}/smaps_rollup") as lines:
            return next(
                (1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0
            )
    except OSError:
        return 0


class Watch:
    """Looks at the memory of all descendants, again and again, in a thread."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._peak = 0
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            found = psutil.Process().children(recursive=True)
            self._peak = max(self._peak, sum(proportional_bytes(process.pid) for process in found))

    def stop(self) -> int:
        self._ended.set()
        self._thread.join()
        return self._peak
