"""A dispatcher that stands on its own with very many workers, or calls."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path

from benchmarks.catalogue import MANY_WORKERS, WITH_A_JOURNAL
from benchmarks.dispatch import SETTLE_SECONDS, timed
from benchmarks.figures import Column, Measured, Row
from benchmarks.peers.base import Peer
from benchmarks.peers.many import OurMany
from benchmarks.peers.standalones import OurClient, start_again
from benchmarks.workloads import GATE, gated, noop

FIRST_RESULTS = 100
"""Any of so many calls may bring the first result: those that ran are not at once seen to be
lost.
"""


def many_noops(peer: Peer, calls: int) -> Measured:
    """Map noops, each of which is handed in by itself; see for how long the dispatcher worked."""
    before = peer.dispatcher_seconds() if isinstance(peer, OurMany) else 0.0
    measured = {"seconds": timed(lambda: peer.map(noop, range(calls)), list(range(calls))) / calls}
    if isinstance(peer, OurMany):
        measured["processor"] = (peer.dispatcher_seconds() - before) / calls
    return measured


def waiting(peer: Peer, calls: int) -> Measured:
    """Have calls wait that are on disk; see what memory the dispatcher has for them, and how large
    its journal is.
    """
    assert isinstance(peer, OurClient)
    gate = Path(os.environ[GATE])
    gate.unlink(missing_ok=True)
    memory, size = private_bytes(peer.process.pid), journal_bytes(peer)
    begin = time.perf_counter()
    futures = peer.hand_in(gated, range(calls))
    seconds = time.perf_counter() - begin
    time.sleep(SETTLE_SECONDS)
    measured = {
        "memory": (private_bytes(peer.process.pid) - memory) / calls,
        "journal": (journal_bytes(peer) - size) / calls,
        "seconds": seconds / calls,
    }
    gate.touch()
    assert peer.gather(futures) == list(range(calls)), "wrong results"
    return measured


def restart(peer: Peer, calls: int) -> Measured:
    """Have calls wait that are on disk, kill the dispatcher, and start it again: how long it takes
    until the first new result.
    """
    assert isinstance(peer, OurClient)
    gate, done = Path(os.environ[GATE]), threading.Event()
    gate.unlink(missing_ok=True)
    futures = peer.hand_in(gated, range(calls))
    for future in futures[:FIRST_RESULTS]:
        future.add_done_callback(lambda _: done.set())  # type: ignore[attr-defined]
    gc.collect()
    begin = time.perf_counter()
    start_again(peer.dispatcher)
    gate.touch()
    done.wait()
    seconds = time.perf_counter() - begin
    assert peer.gather(futures) == list(range(calls)), "wrong results"
    return {"seconds": seconds}


def private_bytes(pid: int) -> int:
    """Return how much memory a process alone has."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def journal_bytes(peer: OurClient) -> int:
    """Return of how many bytes the journal's files are."""
    folder = Path(peer.dispatcher.address).parent
    return sum(file.stat().st_size for file in folder.glob("journal*"))


ROWS = (
    Row(
        "many-workers",
        "noops handed in one by one, on fake workers over TCP",
        (
            Column("seconds", "per call", "us", 1e6),
            Column(
                "processor",
                "the dispatcher's processor time per call",
                "us",
                1e6,
                want="at most 1.25 x that with 10 workers",
                limit=lambda medians: 1.25 * medians[MANY_WORKERS[2]],
            ),
        ),
        20_000,
        MANY_WORKERS,
        many_noops,
        warm=2_000,
        remark="Fake workers answer at once, all from one process.",
    ),
    Row(
        "waiting",
        "100,000 calls that wait at a dispatcher and are on disk",
        (
            Column(
                "memory",
                "the dispatcher's memory per call",
                "KB",
                1e-3,
                want="at most 0.3 KB",
                limit=lambda _: 300,
            ),
            Column(
                "journal",
                "journal per call",
                "KB",
                1e-3,
                want="at most 0.5 KB and the arguments",
                limit=lambda _: 500,
            ),
            Column("seconds", "handing in, per call", "us", 1e6),
        ),
        100_000,
        WITH_A_JOURNAL,
        waiting,
        warm=100,
    ),
    Row(
        "restart",
        "restart of a dispatcher with 1,000,000 waiting calls",
        (
            Column(
                "seconds",
                "until the first new result",
                "s",
                want="at most 5 s",
                limit=lambda _: 5.0,
            ),
        ),
        1_000_000,
        WITH_A_JOURNAL,
        restart,
        warm=100,
    ),
)
