"""The package in one file: its size, and how long the command line takes to start."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.catalogue import INSTALLED, ONE_FILE
from benchmarks.figures import Column, Measured, Row
from benchmarks.peers.base import Peer
from benchmarks.peers.commandlines import CommandLine


def starts(peer: Peer, calls: int) -> Measured:
    """Start it once with nothing unpacked, then so many times."""
    assert isinstance(peer, CommandLine)
    with tempfile.TemporaryDirectory() as cache:
        first = seconds_of(peer.file, cache)
        later = statistics.median(seconds_of(peer.file, cache) for _ in range(calls))
    size = {"bytes": float(peer.file.stat().st_size)} if peer.file.suffix == ".pyz" else {}
    return {"seconds": later, "first": first, **size}


def seconds_of(file: Path, cache: str) -> float:
    begin = time.perf_counter()
    subprocess.run(
        [file, "--version"], env={**os.environ, "PEX_ROOT": cache}, check=True, capture_output=True
    )
    return time.perf_counter() - begin


ROWS = (
    Row(
        "onefile",
        "`gridengine --version`, installed and from one file",
        (
            Column(
                "seconds",
                "time",
                "s",
                want="at most twice what it takes installed",
                limit=lambda medians: 2 * medians[INSTALLED],
            ),
            Column("first", "first start, which unpacks it", "s"),
            Column("bytes", "size", "MB", 1e-6),
        ),
        10,
        (INSTALLED, ONE_FILE),
        starts,
        warm=1,
        remark="What is unpacked takes 24 MB.",
    ),
)
