"""Runs rows: every peer in turn, and that so many times, so that a machine's moods fall on all
alike.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import cluster, processes
from benchmarks.catalogue import ALL, Entry
from benchmarks.figures import Outcome, Row, Table

MOST_SECONDS = 240.0
FEW_FROM = 1_000
TIMES = 5
TURNS = ((30.0, 1), (5.0, 2))
"""Whoever takes longer than so many seconds, start and warm-up included, has no more turns than
that: noise decides nothing there.
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the children of a row run: their environment, and for `subprocess.Popen` as whom and in
    which folder.
    """

    environment: dict[str, str]
    options: dict[str, Any]
    scratch: Path
    workers: int

    @classmethod
    @contextmanager
    def of(cls, row: Row, workers: int) -> Iterator[Place]:
        system = cluster.SYSTEMS.get(row.on)
        if system is not None:
            owner = cluster.user()
            identity = (
                {}
                if os.getuid()
                else {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
            )
            with system.folder() as folder:
                yield cls(system.login(folder), {"cwd": folder, **identity}, folder, system.slots)
            return
        with tempfile.TemporaryDirectory(prefix="gridengine-bench.") as scratch:
            # Not in the checkout: the package that is installed is measured, as a user would have
            # it, not the folder of its source.
            Path(scratch, "benchmarks").symlink_to(Path(__file__).resolve().parent)
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            plain = {
                name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
            }
            environment = {
                **plain,
                "PATH": path,
                "PYTHONPATH": scratch,
                "PYTHONSAFEPATH": "1",
                "TMPDIR": scratch,
            }
            yield cls(environment, {"cwd": scratch}, Path(scratch), workers)


def run(
    row: Row, peers: Iterable[str], *, workers: int, repetitions: int, say: Callable[[str], None]
) -> Table:
    """Measure a row with these peers; one that fails once is not tried again."""
    outcomes = [Outcome(row, name, calls_of(row, ALL[name])) for name in row.peers if name in peers]
    with Place.of(row, workers) as place:
        for repetition in range(repetitions):
            for outcome in outcomes:
                entry = ALL[outcome.peer]
                if outcome.failure or repetition >= turns(outcome.seconds):
                    continue
                begin = time.monotonic()
                _measure(outcome, entry, place)
                outcome.seconds = time.monotonic() - begin
                say(
                    f"{row.title}: {outcome.peer}, {repetition + 1} of {repetitions}: "
                    f"{outcome.failure or f'in {outcome.seconds:.1f} s'}"
                )
    return Table(row, outcomes)


def turns(seconds: float) -> float:
    """Return how many turns at most whoever took so long has."""
    return next((most for limit, most in TURNS if seconds > limit), math.inf)


def calls_of(row: Row, entry: Entry) -> int:
    """Return how many calls a peer makes in a row: a slow one a tenth of many."""
    return row.calls // entry.share if row.calls >= FEW_FROM else row.calls


def _measure(outcome: Outcome, entry: Entry, place: Place) -> None:
    row = outcome.row
    figures, _ = _child(outcome, entry, place, times=TIMES)
    if row.sampled and not outcome.failure:
        _, peak = _child(outcome, entry, place, times=1, sampled=True)
        figures.append({"pss": float(peak)})
    if not outcome.failure:
        outcome.figures += figures


def _child(
    outcome: Outcome, entry: Entry, place: Place, *, times: int, sampled: bool = False
) -> tuple[list[dict[str, float]], int]:
    """Run one child; return its figures and peak memory, or say in the outcome why there are
    none.
    """
    row = outcome.row
    if row.on in cluster.SYSTEMS:
        cluster.SYSTEMS[row.on].clear(place.scratch)
    out = place.scratch / "figures.json"
    out.unlink(missing_ok=True)
    subject = [entry.place, str(place.workers)]
    if row.first:
        arguments = [
            "benchmarks.first",
            *subject,
            str(outcome.calls),
            str(time.monotonic()),
            str(out),
        ]
    else:
        arguments = [
            "benchmarks.child",
            *subject,
            row.name,
            str(outcome.calls),
            str(times),
            str(out),
        ]
    command = [entry.python, "-m", *arguments]
    environment = {**place.environment, **dict(entry.environment)}
    ended = processes.run(
        command, environment, seconds=MOST_SECONDS, sampled=sampled, options=place.options
    )
    answer: dict[str, Any] = (
        json.loads(out.read_text()) if out.exists() else {"failure": _why(ended)}
    )
    outcome.failure = answer.get("failure", "")
    return answer.get("figures", []), ended.peak_bytes


def _why(ended: processes.Ended) -> str:
    if ended.status is None:
        return f"no result within {MOST_SECONDS:.0f} s"
    lines = [line.strip() for line in ended.errors.splitlines() if line.strip()]
    return f"failed: {lines[-1][:160]}" if lines else f"failed with status {ended.status}"
