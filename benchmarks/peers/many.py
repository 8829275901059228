"""This package with many workers on this machine."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import gridengine
from benchmarks.peers.base import Call
from benchmarks.peers.standalones import OurClient

LOOK_SECONDS = 0.05


class OurMany(OurClient):
    """`Client` of a dispatcher with one worker and many fake ones, which call by TCP; each call is
    handed in by itself.
    """

    count = 10

    def __init__(self, workers: int) -> None:
        super().__init__(1)
        file = Path(self.dispatcher.address)
        command = [sys.executable, "-m", "benchmarks.fake_workers"]
        worker_file = file.with_name("worker.json")
        self.fakes = subprocess.Popen([*command, str(worker_file), str(self.count)])
        assert isinstance(self.scheduler, gridengine.Client)
        while self.scheduler.describe()["workers"] < self.count:
            assert self.fakes.poll() is None, "the fake workers have ended"
            time.sleep(LOOK_SECONDS)

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        return gridengine.map(f, xs, scheduler=self.scheduler, progress=False, chunksize=1)

    def dispatcher_seconds(self) -> float:
        """Return for how long processors have worked for the dispatcher."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def close(self) -> None:
        super().close()
        self.fakes.kill()
        self.fakes.wait()


class OurHundred(OurMany):
    """The same with a hundred."""

    count = 100


class OurFiveHundred(OurMany):
    """The same with five hundred."""

    count = 500
