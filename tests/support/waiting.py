"""Waiting for what comes about by itself."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def wait_until(condition: Callable[[], Any], seconds: float = 120) -> Any:
    """Return what the condition gives when that is true; fail when it is not in time."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.02)
    return result


def stop_process(pid: int) -> None:
    """Stop a process, and wait until each of its threads is stopped: that is not at once."""
    os.kill(pid, signal.SIGSTOP)
    threads = list(Path(f"/proc/{pid}/task").iterdir())
    wait_until(
        lambda: all((one / "stat").read_text().rpartition(")")[2][1] == "T" for one in threads)
    )
