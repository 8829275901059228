"""Runs with a name: what it takes to keep results, and to find them again."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

from benchmarks.catalogue import OURS, WITH_A_NAME
from benchmarks.figures import Column, Measured, Row
from benchmarks.peers.base import Peer
from benchmarks.peers.ours import OurNamedRun
from benchmarks.workloads import noop

NUMBERS = itertools.count()


def kept(peer: Peer, calls: int) -> Measured:
    """Run a map of a new name, and run it again."""
    file = Path(f"run{next(NUMBERS)}.sqlite").absolute()
    if isinstance(peer, OurNamedRun):
        peer.file = file
    measured = {"seconds": seconds_of(peer, calls)}
    if isinstance(peer, OurNamedRun):
        measured |= {"again": seconds_of(peer, calls), "bytes": file.stat().st_size / calls}
        file.unlink()
    return measured


def seconds_of(peer: Peer, calls: int) -> float:
    begin = time.perf_counter()
    got = peer.map(noop, range(calls))
    seconds = time.perf_counter() - begin
    assert got == [*range(calls)], "wrong results"
    return seconds


ROWS = (
    Row(
        "named",
        "map of 100,000 noops with a name, whose results are kept",
        (
            Column(
                "seconds",
                "time",
                "s",
                want="at most 1.5 x without a name",
                limit=lambda medians: 1.5 * medians[OURS],
            ),
            Column("again", "again, all found", "s", want="at most 0.3 s", limit=lambda _: 0.3),
            Column(
                "bytes",
                "file, bytes per call",
                "B",
                want="at most 512 beside what is pickled",
                limit=lambda _: 512,
            ),
        ),
        100_000,
        (OURS, *WITH_A_NAME),
        kept,
        warm=10_000,
    ),
)
