"""Many small calls: what handing out, answering and starting take."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Set
from pathlib import Path

import psutil

from benchmarks.catalogue import BY_TCP, LOCAL, MAPS, OVER_TCP
from benchmarks.figures import Column, Measured, Medians, Row
from benchmarks.peers.base import Peer
from benchmarks.workloads import GATE, gated, lasting, noop, skewed, timed_sleep

POOL, PROCESS_POOL = "multiprocessing.Pool", "ProcessPoolExecutor"
STEPS = (1, 10, 100, 1_000, 10_000, 100_000)
IDEAL_WORKERS = 2
SHORT_MILLISECONDS = (2, 5, 10, 20)
SETTLE_SECONDS = 0.5


def timed(call: Callable[[], list[object]], expected: list[object]) -> float:
    """Return the seconds that a call took.

    Raises:
        AssertionError: it did not return what was expected.
    """
    gc.collect()
    begin = time.perf_counter()
    got = call()
    seconds = time.perf_counter() - begin
    assert got == expected, "wrong results"
    return seconds


def map_noops(peer: Peer, calls: int) -> Measured:
    return {"seconds": timed(lambda: peer.map(noop, range(calls)), list(range(calls)))}


def submit_noops(peer: Peer, calls: int) -> Measured:
    return {
        "seconds": timed(
            lambda: peer.gather([peer.submit(noop, x) for x in range(calls)]), list(range(calls))
        )
    }


def await_noops(peer: Peer, calls: int) -> Measured:
    async def main() -> list[object]:
        return await asyncio.gather(*(peer.awaitable(noop, x) for x in range(calls)))

    return {"seconds": timed(lambda: asyncio.run(main()), list(range(calls)))}


def round_trips(peer: Peer, calls: int) -> Measured:
    taken = [timed_once(peer, number) for number in range(calls)]
    cpus = os.sched_getaffinity(0)
    keep_to({min(cpus)})
    alone = [timed_once(peer, number) for number in range(calls)]
    keep_to(cpus)
    return {
        "seconds": statistics.median(taken),
        "slow": statistics.quantiles(taken, n=20)[-1],
        "alone": statistics.median(alone),
    }


def keep_to(cpus: Set[int]) -> None:
    """Have all threads and processes of this peer run on these CPUs."""
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with contextlib.suppress(psutil.Error, ProcessLookupError):  # it has ended just now
            for thread in process.threads():
                os.sched_setaffinity(thread.id, cpus)


def timed_once(peer: Peer, number: int) -> float:
    begin = time.perf_counter()
    peer.gather([peer.submit(noop, number)])
    return time.perf_counter() - begin


def skew(peer: Peer, calls: int) -> Measured:
    work = skewed()[:calls]
    return {
        "ideal": timed(lambda: peer.map(lasting, work), list(work)) / (sum(work) / IDEAL_WORKERS)
    }


def short_calls(peer: Peer, calls: int) -> Measured:
    """Return for calls of several durations which part of the workers' time was not spent in calls;
    `calls` is for the shortest.
    """
    measured = {}
    for milliseconds in SHORT_MILLISECONDS:
        work = [milliseconds * 1e-3] * (calls * SHORT_MILLISECONDS[0] // milliseconds)
        gc.collect()
        begin = time.perf_counter()
        spent = sum(peer.map(timed_sleep, work))  # type: ignore[arg-type]
        measured[str(milliseconds)] = 1 - spent / peer.workers / (time.perf_counter() - begin)
    return measured


def queued(peer: Peer, calls: int) -> Measured:
    """Have calls wait, twice. What the second time leaves is left for good; the first time's may be
    the allocator's, to be used again.
    """
    before = private_bytes()
    waiting = while_waiting(peer, calls)
    once = private_bytes()
    while_waiting(peer, calls)
    return {"bytes": (waiting - before) / calls, "left": max(0, private_bytes() - once) / calls}


def while_waiting(peer: Peer, calls: int) -> int:
    """Hand in calls that wait for a file, see how much memory this process has, and let them go."""
    gate = Path(os.environ[GATE])
    gate.unlink(missing_ok=True)
    handles = [peer.submit(gated, number) for number in range(calls)]
    time.sleep(SETTLE_SECONDS)  # threads that hand calls on may still be at it
    waiting = private_bytes()
    gate.touch()
    assert peer.gather(handles) == list(range(calls)), "wrong results"
    return waiting


def private_bytes() -> int:
    """Return how much memory this process alone has, after giving back what it can."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def curve(peer: Peer, calls: int) -> Measured:
    """Map more and more noops. Each number of them is tried up to three times, as long as it is
    quick.
    """
    measured = {}
    for step in STEPS:
        if step <= calls:
            taken = [map_noops(peer, step)["seconds"]]
            while len(taken) < 3 and sum(taken) < 1:
                taken.append(map_noops(peer, step)["seconds"])
            measured[str(step)] = statistics.median(taken)
    return measured


def prepare() -> None:
    """Name a gate that opens for the calls of this process."""
    os.environ[GATE] = str(Path(tempfile.gettempdir(), f"gate.{os.getpid()}"))


def imports(peer: Peer, calls: int) -> Measured:
    """Measure the time that an import of the peer adds to an interpreter's start: the difference
    of two medians, of `calls` starts with and without the import, in turn.
    """
    if not peer.module:
        raise NotImplementedError("not imported by a module of its own")
    taken: dict[str, list[float]] = {"pass": [], f"import {peer.module}": []}
    for statement, seconds in itertools.chain.from_iterable(
        itertools.repeat(tuple(taken.items()), calls)
    ):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True)
        seconds.append(time.perf_counter() - begin)
    bare, imported = map(statistics.median, taken.values())
    return {"seconds": imported - bare}


def times(factor: float, peer: str) -> Callable[[Medians], float]:
    """Make the limit of a column: the peer's figure, multiplied by `factor`."""
    return lambda medians: factor * medians[peer]


SECONDS = "s"
START = 1.5 if sys.version_info < (3, 14) else 0.8
"""From Python 3.14 on ProcessPoolExecutor starts a fork server, as we do; before, it forks."""
ROWS = (
    Row(
        "map",
        "map of 100,000 noops",
        (
            Column(
                "seconds",
                "time",
                SECONDS,
                want="at most 1.15 x Pool.map",
                limit=times(1.15, POOL),
                scaled=True,
            ),
        ),
        100_000,
        ("serial", *MAPS),
        map_noops,
        warm=10_000,
    ),
    Row(
        "submit",
        "100,000 single submits, all gathered",
        (
            Column(
                "seconds",
                "time",
                SECONDS,
                want="half of Pool.apply_async, a sixth of ProcessPoolExecutor",
                limit=lambda medians: min(medians[POOL] / 2, medians[PROCESS_POOL] / 6),
                scaled=True,
            ),
        ),
        100_000,
        LOCAL,
        submit_noops,
        warm=10_000,
    ),
    Row(
        "await",
        "1,000 awaits of a noop at once, in one event loop",
        (
            Column(
                "seconds",
                "time",
                "ms",
                1e3,
                want="half of run_in_executor on ProcessPoolExecutor",
                limit=times(0.5, PROCESS_POOL),
            ),
        ),
        1_000,
        ("gridengine", PROCESS_POOL, "loky"),
        await_noops,
        warm=100,
    ),
    Row(
        "queued",
        "client memory per queued submit (20,000 waiting)",
        (
            Column(
                "bytes",
                "per submit",
                "KB",
                1e-3,
                want="under 1 KB beside the Future and the argument",
                limit=lambda medians: 1000 + medians["Future and argument alone"],
            ),
            Column(
                "left",
                "left after",
                "KB",
                1e-3,
                want="nothing left after (under 0.1 KB)",
                limit=lambda medians: 100,
            ),
        ),
        20_000,
        ("Future and argument alone", *LOCAL),
        queued,
        warm=1_000,
        remark="Private memory of the process that submits. What is left is what a second time "
        "adds to the first.",
    ),
    Row(
        "round-trip",
        "round trip of one call",
        (
            Column(
                "seconds",
                "median",
                "ms",
                1e3,
                want="at most ProcessPoolExecutor's",
                limit=times(1.0, PROCESS_POOL),
            ),
            Column("slow", "19 of 20 within", "ms", 1e3),
            Column(
                "alone",
                "median on one CPU",
                "ms",
                1e3,
                want="at most 0.9 x ProcessPoolExecutor's",
                limit=times(0.9, PROCESS_POOL),
            ),
        ),
        2_000,
        LOCAL,
        round_trips,
        warm=200,
        remark="The last column is the work alone: where all threads and processes share a CPU, no "
        "other has to be woken from its sleep.",
    ),
    Row(
        "start",
        "interpreter start to first result",
        (
            Column(
                "seconds",
                "time",
                SECONDS,
                want=f"at most {START} x ProcessPoolExecutor's",
                limit=times(START, PROCESS_POOL),
            ),
        ),
        1,
        LOCAL,
        first=True,
    ),
    Row(
        "import",
        "import, over a bare interpreter's start",
        (Column("seconds", "time", "ms", 1e3, want="at most 12 ms", limit=lambda medians: 12e-3),),
        15,
        LOCAL,
        imports,
    ),
    Row(
        "skew",
        "skewed work: 190 calls of 5 ms and ten neighbours of 500 ms",
        (
            Column(
                "ideal",
                "makespan",
                "x ideal",
                want="at most 1.05 x ideal",
                limit=lambda medians: 1.05,
            ),
        ),
        200,
        MAPS,
        skew,
    ),
    Row(
        "grid-engine-map",
        "real Grid Engine, 4 slots: map of 100,000 noops",
        (Column("seconds", "time", SECONDS, scaled=True),),
        100_000,
        OVER_TCP,
        map_noops,
        warm=10_000,
        on="grid-engine",
        remark="Workers are warm.",
    ),
    Row(
        "short-calls",
        "what is lost of the workers' time with calls of some milliseconds",
        tuple(
            Column(
                str(duration),
                f"{duration} ms",
                "%",
                100,
                want="at most 2 %",
                limit=lambda medians: 0.02,
            )
            for duration in SHORT_MILLISECONDS
        ),
        2_000,
        (*MAPS, *BY_TCP),
        short_calls,
        warm=200,
    ),
)
CURVE = Row(
    "curve",
    "time over the number of tasks (map of noops)",
    tuple(Column(str(step), f"{step:,}", SECONDS) for step in STEPS),
    STEPS[-1],
    ("serial", *MAPS),
    curve,
    warm=1,
    plotted=True,
)
