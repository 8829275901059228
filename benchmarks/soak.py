"""Very many workers over real sockets, for as long as you like:

    python -m benchmarks.soak [--workers 10000] [--calls 1000000] [--hours 8] [--rest SECONDS]
                              [--out FOLDER]

The workers are `fake_workers`, a few thousand in each process; their dispatcher cannot tell them
from others. They connect, beat, take all calls, again and again (with a rest in between) until the
hours are over, and leave. Printed at the end, and written every ten seconds to `soak.csv` (drawn as
`soak.png` where matplotlib is installed): the dispatcher's memory, descriptors and processor time,
the round trip of one more call, and for how long the most neglected worker heard nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

import gridengine
from benchmarks.fake_workers import HOLD
from benchmarks.peers.ours import Ours
from benchmarks.peers.standalones import OurClient
from benchmarks.workloads import noop
from gridengine.dispatcher.standalone import background
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder, StartOptions

WORKERS_PER_PROCESS = 2500
SAMPLE_SECONDS = 10.0
LOOK_SECONDS = 5.0
IDLE_SECONDS = 20.0
BEATS_PER_SECOND, MOST_BEAT_SECONDS = 500, 5.0
"""A scheduler with so many workers has them beat so rarely (`beat_seconds` in `docs/settings.md`);
workers by hand beat as the setting says.
"""
COLUMNS = ("seconds", "memory_mb", "descriptors", "processor_percent", "round_trip_s", "silence_s")


class ByHand(OurClient):
    """A dispatcher whose workers are all started by others."""

    def make_scheduler(self) -> gridengine.schedulers.Scheduler:
        self.folder = DispatcherFolder(Path(tempfile.mkdtemp(prefix="gridengine-soak-")))
        background.write_options(self.folder, StartOptions("none", temporary=True))
        with contextlib.closing(self.folder.take_lock()) as lock:
            self._process = background.start(self.folder, lock)
        return gridengine.Client(str(self.folder.client_file))

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self._process.pid)

    def close(self) -> None:
        Ours.close(self)
        self._process.terminate()
        self._process.wait()


class Fakes:
    """Processes of fake workers."""

    def __init__(self, connection: Path, workers: int) -> None:
        self._folder = Path(tempfile.mkdtemp())
        self._processes = []
        for number, first in enumerate(range(0, workers, WORKERS_PER_PROCESS)):
            count = min(WORKERS_PER_PROCESS, workers - first)
            command = [sys.executable, "-m", "benchmarks.fake_workers", str(connection), str(count)]
            self._processes.append(subprocess.Popen([*command, str(self._folder / str(number))]))

    def check(self) -> None:
        assert all(one.poll() is None for one in self._processes), "fake workers have ended"

    def silence(self) -> float:
        """Return the longest time, of late, for which one of them has heard nothing."""
        told = [file.read_text() for file in self._folder.iterdir() if file.name.isdigit()]
        return max(map(float, told), default=0.0)

    def processor_seconds(self) -> float:
        """Return the processor time that they have taken."""
        return sum(processor_seconds(psutil.Process(one.pid)) for one in self._processes)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Have them answer nothing meanwhile."""
        (self._folder / HOLD).touch()
        try:
            yield
        finally:
            (self._folder / HOLD).unlink()

    def wait(self) -> None:
        for one in self._processes:
            one.wait()


def processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


class Sampler:
    """Looks at the dispatcher every `SAMPLE_SECONDS`, in a thread of its own."""

    def __init__(
        self, process: psutil.Process, client: gridengine.Client, fakes: Fakes, table: Path
    ) -> None:
        self.process, self._client, self._fakes, self._table = process, client, fakes, table
        self.rows: list[tuple[float, ...]] = []
        table.unlink(missing_ok=True)
        self._write(COLUMNS)
        self._done = threading.Event()
        self._begin = self._last = time.perf_counter()
        self._spent = self.processor_seconds()
        self._thread = threading.Thread(target=self._work)

    def processor_seconds(self) -> float:
        return processor_seconds(self.process)

    def sample(self) -> None:
        begin, spent = time.perf_counter(), self.processor_seconds()
        part = 100 * (spent - self._spent) / max(begin - self._last, 1e-6)
        self._last, self._spent = begin, spent
        gridengine.map(noop, [1], scheduler=self._client, progress=False, priority=1)
        trip = time.perf_counter() - begin
        memory, descriptors = self.process.memory_info().rss / 1e6, self.process.num_fds()
        silence = self._fakes.silence()
        self.rows.append((begin - self._begin, memory, descriptors, part, trip, silence))
        self._write(self.rows[-1])

    def _write(self, row: Iterable[object]) -> None:
        with self._table.open("a", newline="") as file:
            csv.writer(file).writerow(row)

    def _work(self) -> None:
        while not self._done.wait(SAMPLE_SECONDS):
            self.sample()

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._done.set()
            self._thread.join()


def connected(peer: ByHand, fakes: Fakes, workers: int) -> float:
    """Wait until all have connected; return the seconds that took."""
    begin = time.perf_counter()
    while peer.scheduler.describe()["workers"] < workers:  # type: ignore[attr-defined]
        fakes.check()
        time.sleep(LOOK_SECONDS)
    return time.perf_counter() - begin


def idle_percent(process: psutil.Process) -> float:
    """Return the share of a processor that a dispatcher with nothing to do takes."""
    spent = processor_seconds(process)
    time.sleep(IDLE_SECONDS)
    return 100 * (processor_seconds(process) - spent) / IDLE_SECONDS


def settled(client: Any, calls: int) -> None:
    """Wait until most calls wait, and no more are assigned."""
    before, waiting = 0, 0
    while waiting < calls / 2 or waiting != before:
        time.sleep(LOOK_SECONDS)
        before, waiting = waiting, client.describe()["waiting"]


def drawn(rows: list[tuple[float, ...]], file: Path) -> None:
    """Draw each column over the time."""
    import matplotlib  # not everybody who measures has it

    matplotlib.use("Agg")
    from matplotlib import pyplot

    times = [row[0] / 3600 for row in rows]
    figure, axes = pyplot.subplots(len(COLUMNS) - 1, sharex=True, figsize=(8, 10))
    for place, axis in enumerate(axes, 1):
        axis.plot(times, [row[place] for row in rows])
        axis.set_ylabel(COLUMNS[place])
        axis.set_ylim(bottom=0)
    axes[-1].set_xlabel("hours")
    figure.savefig(file)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--rest", type=float, default=0.0)
    parser.add_argument("--out", type=Path, default=Path("soak"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    beat = min(MOST_BEAT_SECONDS, max(2.0, options.workers / BEATS_PER_SECOND))
    os.environ["GRIDENGINE_BEAT_SECONDS"] = str(beat)
    peer = ByHand(0)
    client: Any = peer.scheduler
    spent = processor_seconds(peer.process)
    fakes = Fakes(peer.folder.path / "worker.json", options.workers)
    seconds = connected(peer, fakes, options.workers)
    took = processor_seconds(peer.process) - spent
    print(f"{options.workers} workers connected in {seconds:.1f} s", flush=True)
    theirs = fakes.processor_seconds()
    print(f"processor time: {took:.1f} s of the dispatcher, {theirs:.1f} s of the workers")
    sampler = Sampler(peer.process, client, fakes, options.out / "soak.csv")
    print(f"idle: {idle_percent(peer.process):.1f} % of a processor", flush=True)
    with gridengine.Executor(scheduler=client, progress=False) as executor:
        with fakes.holding():
            time.sleep(MOST_BEAT_SECONDS)
            values: Any = executor.map(noop, range(options.calls), chunksize=1)
            settled(client, options.calls)
            percent = idle_percent(peer.process)
            print(f"idle, and calls wait: {percent:.1f} % of a processor", flush=True)
        assert list(values) == list(range(options.calls)), "wrong results"
    end = time.monotonic() + 3600 * options.hours
    with sampler.running():
        for turn in range(sys.maxsize):
            begin, spent = time.perf_counter(), sampler.processor_seconds()
            values = gridengine.map(
                noop, range(options.calls), scheduler=client, progress=False, chunksize=1
            )
            assert values == list(range(options.calls)), "wrong results"
            took = time.perf_counter() - begin
            each = 1e6 * (sampler.processor_seconds() - spent) / options.calls
            print(f"turn {turn}: {took:.1f} s, {each:.0f} us of the dispatcher a call", flush=True)
            if time.monotonic() + options.rest >= end:
                break
            time.sleep(options.rest)
    sampler.sample()
    for place, column in enumerate(COLUMNS[1:], 1):
        column_of = [row[place] for row in sampler.rows]
        print(f"{column}: at first {column_of[0]:.4g}, most {max(column_of):.4g}")
    begin = time.perf_counter()
    peer.close()
    fakes.wait()
    print(f"all had left after {time.perf_counter() - begin:.1f} s")
    try:
        drawn(sampler.rows, options.out / "soak.png")
    except ImportError as error:
        print(f"not drawn: {error}")


if __name__ == "__main__":
    main()
