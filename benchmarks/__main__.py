"""Measure us and our peers side by side: `make bench`, or `python -m benchmarks --help`."""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
import time

from benchmarks import (
    cluster,
    data,
    dispatch,
    graphs,
    onefile,
    processes,
    report,
    runs,
    scale,
    session,
    simulated,
    standalone,
)
from benchmarks.catalogue import ALL, STANDARD
from benchmarks.figures import Outcome, Row, Table

ROWS: tuple[Row, ...] = (
    *dispatch.ROWS,
    *graphs.ROWS,
    *data.ROWS,
    *onefile.ROWS,
    *standalone.ROWS,
    *scale.ROWS,
    *runs.ROWS,
    *cluster.ROWS,
    dispatch.CURVE,
)
CORE = "core"
REPETITIONS = 5
QUICK = {
    "map": 2,
    "submit": 1,
    "round-trip": 2,
    "start": 5,
    "import": 1,
    "array": 1,
    "results": 2,
    "client-round-trip": 2,
    "client-results": 2,
    "core-graph": 1,
    "grid-engine-1": 2,
    "slurm-1": 2,
}
"""The rows of the quick form, and how often each is run: as often as three minutes allow."""


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [*(row.name for row in ROWS), CORE]
    parser.add_argument(
        "--quick",
        action="store_true",
        help="us and the standard library alone, as ratios, in three minutes",
    )
    parser.add_argument(
        "--rows", nargs="+", choices=names, metavar="ROW", help=f"only these: {', '.join(names)}"
    )
    parser.add_argument(
        "--peers",
        nargs="+",
        choices=list(ALL),
        metavar="PEER",
        help=f"only these: {', '.join(map(repr, ALL))}",
    )
    parser.add_argument(
        "--repetitions",
        type=int,
        help=f"how often each is run, in turn with all others (default {REPETITIONS})",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=2,
        help="worker processes of each on this machine (default 2)",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="write these rows to the table of benchmarks/README.md, and the plot if it is one",
    )
    options = parser.parse_args()
    if options.write and options.quick:
        parser.error("--write wants more turns than --quick makes")
    return options


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def measured(row: Row, options: argparse.Namespace) -> Table:
    peers = options.peers or (STANDARD if options.quick else tuple(ALL))
    reason = cluster.SYSTEMS[row.on].why_not() if row.on in cluster.SYSTEMS else ""
    if reason:
        return Table(
            row, [Outcome(row, name, failure=reason) for name in row.peers if name in peers]
        )
    repetitions = options.repetitions or (QUICK.get(row.name, 1) if options.quick else REPETITIONS)
    return session.run(row, peers, workers=options.workers, repetitions=repetitions, say=say)


def core_lines() -> list[str]:
    say("the core alone, simulated")
    return [simulated.timed(), "", *simulated.counted()]


def main() -> None:
    options = parsed()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit("terminated")
    )  # so that what was started is ended
    processes.adopt()
    os.environ.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # else what is imported from this folder is compiled at each start
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # peers that crash must not fill the disk
    names = options.rows or (QUICK if options.quick else [*(row.name for row in ROWS), CORE])
    tables = [measured(row, options) for row in ROWS if row.name in names]
    if options.quick:
        report.show(f"{report.ratios(tables)}\n\n{report.wants(tables)}\n")
        return
    core = core_lines() if CORE in names else []
    curve = next((table for table in tables if table.row.plotted), None)
    if options.write and curve:
        report.draw(curve)
    turns = options.repetitions or REPETITIONS
    report.show(report.document(tables, core=core, remark=f"At most {turns} turns each."))
    if options.write:
        report.write(tables)


if __name__ == "__main__":
    main()
