"""Processes that are measured. All that they start, in whatever session, stays below this process,
and so is found and ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
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


def bytes_in_use(pids: Iterable[int]) -> int:
    """Return how much memory these processes use together: a page that n processes map counts as an
    n-th for each, but what lies in memory that is shared without being mapped counts too.
    """
    own = shared = 0
    files: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            sizes = {line.split()[0]: int(line.split()[1]) for line in lines[1:]}
            own += 1024 * (sizes.get("Pss:", 0) - sizes.get("Pss_Shmem:", 0))
            shared += 1024 * sizes.get("Pss_Shmem:", 0)
            for fd in Path(f"/proc/{pid}/fd").iterdir():
                if str(fd.readlink()).startswith("/memfd:"):
                    files[fd.stat().st_ino] = 512 * fd.stat().st_blocks
    return own + max(shared, sum(files.values()))


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
            self._peak = max(self._peak, bytes_in_use(process.pid for process in found))

    def stop(self) -> int:
        self._ended.set()
        self._thread.join()
        return self._peak
