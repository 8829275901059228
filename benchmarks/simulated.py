"""The core alone, simulated: what `core.py` tells and, since machines are noisy, how many function
calls the core makes for each task.
"""

from __future__ import annotations

import cProfile
import pstats
import subprocess
import sys
from pathlib import Path
from typing import Any

WORKERS, CALLS = 1_000, 100_000
STEPS = (100, 10)


class Counted:
    """A core whose function calls are counted, those of the simulation around it left out."""

    def __init__(self, core: Any) -> None:
        self._core = core
        self._profile = cProfile.Profile()

    def handle(self, event: object, now: float) -> Any:
        self._profile.enable()
        try:
            return self._core.handle(event, now)
        finally:
            self._profile.disable()

    @property
    def state(self) -> Any:
        return self._core.state

    def calls(self) -> int:
        return int(pstats.Stats(self._profile).total_calls)  # type: ignore[attr-defined]


def timed() -> str:
    """Return what `core.py` prints, or why it failed."""
    command = [sys.executable, "-m", "benchmarks.core"]
    place = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    return (
        done.stdout.rstrip()
        if done.returncode == 0
        else f"failed: {done.stderr.strip().splitlines()[-1]}"
    )


def counted() -> list[str]:
    """Return a line for each kind of work: the function calls for each task, and the same with ten
    times the tasks and workers.
    """
    from benchmarks.core import Cluster, kinds

    numbers: dict[str, list[float]] = {}
    for step in STEPS:
        for work in kinds(CALLS // step):
            cluster = Cluster(WORKERS // step)
            core = Counted(cluster.core)
            cluster.core = core  # type: ignore[assignment]
            cluster.run(work)
            numbers.setdefault(work.title, []).append(core.calls() / work.calls)
    head = "  ".join(f"{CALLS // step:>7,} on {WORKERS // step:>3}" for step in STEPS)
    return [f"{'function calls of the core for each call':42} {head}"] + [
        f"{title:42} " + "  ".join(f"{number:>14.2f}" for number in found)
        for title, found in numbers.items()
    ]
