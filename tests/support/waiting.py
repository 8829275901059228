"""Waiting for what comes about by itself."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil


def wait_until(condition: Callable[[], Any], seconds: float = 300) -> Any:
    """Return what the condition gives when that is true; fail when it is not in time."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.02)
    return result


def stop_process(pid: int) -> None:
    """Stop a process, and wait until each of its threads is stopped: that is not at once."""
    os.kill(pid, signal.SIGSTOP)

    def is_stopped(thread: Path) -> bool:
        with contextlib.suppress(OSError):  # it has ended
            return (thread / "stat").read_text().rpartition(")")[2][1] == "T"
        return True

    wait_until(lambda: all(map(is_stopped, Path(f"/proc/{pid}/task").iterdir())))


def kill_all(find: Callable[[], Iterable[psutil.Process]]) -> None:
    """Kill all processes that are found, until none is: one may just start another, or end."""

    def are_gone() -> bool:
        gone = True
        for process in find():
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.status() != psutil.STATUS_ZOMBIE:
                    process.kill()
                    gone = False
        return gone

    wait_until(are_gone)
