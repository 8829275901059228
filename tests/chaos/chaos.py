"""A run of many calls while faults are injected; prints, as JSON, what was injected and what came
of it.

    GRIDENGINE_LEASE_SECONDS=10 GRIDENGINE_BEAT_SECONDS=0.5 PYTHONPATH=tests/support
    python tests/chaos/chaos.py maps|graphs here|agents|grid_engine|slurm --calls 10000 --seed 1

`maps`: calls that need nothing of each other; `graphs`: calls that need the results of others, and
some are cancelled. `here`: three runners of a `ProcessScheduler`. `agents`: two agents over TCP,
through a proxy that cuts connections. `grid_engine`, `slurm`: four tasks of these, through one too.
Each call writes a line when it begins and one when it ends.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from pathlib import Path

import graphs
import maps
import psutil
from call_log import Tally, judge, read
from faults import Injector, injected
from places import PLACES

LEAVE_SECONDS = 120.0
KINDS = {"graphs": graphs.make_calls, "maps": maps.make_calls}


def durations(calls: int, seed: int) -> list[float]:
    """Return how long each call takes: most no time, some up to a fifth of a second."""
    chance = random.Random(seed)
    return [
        chance.choices([0.0, chance.uniform(0.005, 0.02), chance.uniform(0.05, 0.2)], [80, 15, 5])[
            0
        ]
        for _ in range(calls)
    ]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("where", choices=sorted(PLACES))
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pace", type=float, default=0.3, help="mean seconds between two faults")
    parser.add_argument(
        "--without", action="append", default=[], help="a fault that is not to be done"
    )
    options = parser.parse_args()
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "written")
        calls = [
            (index, seconds, str(path))
            for index, seconds in enumerate(durations(options.calls, options.seed))
        ]
        began = time.monotonic()
        place = PLACES[options.where]()
        with place.scheduler as scheduler:
            weights = {
                kind: weight
                for kind, weight in place.weights.items()
                if kind not in options.without
            }
            injector = Injector(
                place.workers, place.proxy, seed=options.seed, pace=options.pace, weights=weights
            )
            with injected(injector):
                KINDS[options.kind](scheduler, calls, tally, options.seed)
            seconds = time.monotonic() - began
        judged = judge(read(path), injector.struck)
    print(
        json.dumps(
            {
                "calls": options.calls,
                "seconds": round(seconds, 1),
                "injected": sum(injector.done.values()),
                "kinds": dict(injector.done),
                **judged,
                "cancelled": tally.cancelled,
                "lost": len(tally.expected - tally.given.keys()),
                "duplicated": sum(count > 1 for count in tally.given.values())
                + judged["run again for no fault"],
                "wrong": len(tally.wrong),
                "the first of these": tally.wrong[:5],
                "processes left": len(
                    psutil.wait_procs(
                        [one for worker in place.workers() for one in worker.processes],
                        LEAVE_SECONDS,
                    )[1]
                ),
            }
        )
    )
    return 0


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
