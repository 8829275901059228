"""One peer, one row, in a process of its own: `python -m benchmarks.child PLACE WORKERS ROW CALLS
TIMES OUT`. Writes its figures to OUT.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from pathlib import Path

from benchmarks import data, dispatch, graphs, onefile, runs, scale, standalone
from benchmarks.figures import Measured, Row
from benchmarks.peers.base import Absent, Peer
from benchmarks.workloads import small_array

ENOUGH_SECONDS = 1.0
FEW = 100


def measured(peer: Peer, row: Row, calls: int, times: int) -> list[Measured]:
    """Warm up, then measure up to so many times, fewer when each takes long."""
    assert row.measure is not None
    if row.warm:
        row.measure(peer, max(1, min(row.warm, calls if calls < FEW else calls // 10)))
    else:
        peer.map(small_array, range(FEW))
    begin = time.monotonic()
    figures = [row.measure(peer, calls)]
    while len(figures) < times and time.monotonic() - begin < ENOUGH_SECONDS:
        figures.append(row.measure(peer, calls))
    return figures


def main() -> None:
    place, workers, name, calls, times, out = sys.argv[1:]
    row = next(
        row
        for module in (dispatch, graphs, data, onefile, standalone, scale, runs)
        for row in (*module.ROWS, dispatch.CURVE)
        if row.name == name
    )
    dispatch.prepare()
    try:
        module, kind = place.split(":")
        peer = getattr(import_module(f"benchmarks.peers.{module}"), kind)(int(workers))
        answer: dict[str, object] = {"figures": measured(peer, row, int(calls), int(times))}
    except (Absent, NotImplementedError, ImportError) as error:
        answer = {
            "failure": f"not installed: {error}" if isinstance(error, ImportError) else str(error)
        }
    Path(out).write_text(json.dumps(answer))
    if "figures" in answer:
        peer.close()


if __name__ == "__main__":
    main()
