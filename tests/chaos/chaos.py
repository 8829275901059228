"""A run of many calls while faults are injected; prints, as JSON, what was injected and what came
of it.

    GRIDENGINE_LEASE_SECONDS=10 GRIDENGINE_BEAT_SECONDS=0.5 PYTHONPATH=tests/support
    python tests/chaos/chaos.py here|agents|cluster --calls 10000 --seed 1

`here`: three runners of a `ProcessScheduler`. `agents`: two agents over TCP, through a proxy that
cuts connections. `cluster`: four tasks of the Grid Engine, through one too. Each call writes a line
when it begins and one when it ends. Half of the calls are made by one `map`, the others by one
`imap_unordered` of another thread, by the same workers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from faults import Injector, injected
from places import PLACES

import gridengine

RETRIES = 1000
LARGE = 300_000
LEAVE_SECONDS = 30.0


def work(index: int, seconds: float, path: str) -> tuple[int, Any]:
    """Say that it begins, take its time, say that it ends; some results are large."""
    write(path, "begun", index)
    if seconds:
        time.sleep(seconds)
    result = bytes([index % 256]) * LARGE if index % 500 == 0 else index * index
    write(path, "ended", index)
    return index, result


def write(path: str, what: str, index: int) -> None:
    """Append a line, in one piece."""
    job, task = os.environ.get("JOB_ID", ""), os.environ.get("SGE_TASK_ID", "")
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(
        descriptor,
        f"{what} {index} {os.getpid()} {os.getppid()} {job}.{task} {time.monotonic()}\n".encode(),
    )
    os.close(descriptor)


def is_right(index: int, result: Any) -> bool:
    """Say whether that is what the call of this index returns."""
    return bool(result == (bytes([index % 256]) * LARGE if index % 500 == 0 else index * index))


# ------------------------------------------------------------------ the run


def durations(calls: int, seed: int) -> list[float]:
    """Return how long each call takes: most no time, some up to a fifth of a second."""
    chance = random.Random(seed)
    return [
        chance.choices([0.0, chance.uniform(0.005, 0.02), chance.uniform(0.05, 0.2)], [80, 15, 5])[
            0
        ]
        for _ in range(calls)
    ]


def make_calls(
    scheduler: Any, calls: list[tuple[int, float, str]], given: Counter[int], wrong: list[int]
) -> None:
    """Make half of the calls by `map`, the others by `imap_unordered`; count how often each one's
    result is given.
    """
    half = len(calls) // 2

    def take(results: Iterator[tuple[int, Any]] | list[tuple[int, Any]]) -> None:
        for index, result in results:
            given[index] += 1
            if not is_right(index, result):
                wrong.append(index)

    def one_by_one() -> None:
        with gridengine.imap_unordered(
            work, *zip(*calls[half:], strict=True), scheduler=scheduler, retries=RETRIES
        ) as results:
            take(results)

    failed: list[BaseException] = []
    other = threading.Thread(target=lambda: failed.extend(raised_by(one_by_one)))
    other.start()
    take(
        gridengine.starmap(work, calls[:half], scheduler=scheduler, retries=RETRIES, progress=False)
    )
    other.join()
    if failed:
        raise failed[0]


def raised_by(act: Any) -> list[BaseException]:
    """Return what a function raises."""
    try:
        act()
    except BaseException as error:
        return [error]
    return []


@dataclass(frozen=True, slots=True)
class Written:
    """One of the lines that calls wrote."""

    what: str
    runner: str
    fork_server: str
    job: str
    when: float

    def struck_at(self, struck: dict[str, float]) -> float | None:
        """Return when the worker of this line was struck, None when it was not."""
        times = [
            struck[one]
            for one in (self.runner, self.fork_server, self.job, self.job.partition(".")[0])
            if one in struck
        ]
        return min(times) if times else None


def read(path: Path) -> dict[int, list[Written]]:
    """Return what each call wrote."""
    found: dict[int, list[Written]] = defaultdict(list)
    for text in path.read_text().splitlines():
        what, index, runner, fork_server, job, when = text.split()
        found[int(index)].append(Written(what, runner, fork_server, job, float(when)))
    return found


def judge(written: dict[int, list[Written]], struck: dict[str, float]) -> dict[str, float]:
    """Return how many calls ran again because their worker was struck, and how many though it was
    not.

    A call may end and run again all the same, when its worker was struck before the result had left
    it: hence for how long before it had ended, at most.
    """
    counts = Counter[str]()
    longest = 0.0
    for lines in written.values():
        begun = [line for line in lines if line.what == "begun"]
        ended = [line for line in lines if line.what == "ended"]
        counts["retried"] += len(begun) > 1
        counts["runs more than one"] += len(begun) - 1
        counts["ended and run again"] += len(ended) > 1
        counts["run again for no fault"] += (
            len(begun) > 1 and sum(line.struck_at(struck) is None for line in begun) > 1
        )
        vain = [line for line in ended if line.when < begun[-1].when]
        longest = max(
            [
                longest,
                *(at - line.when for line in vain if (at := line.struck_at(struck)) is not None),
            ]
        )
    return {**counts, "ended before that, seconds at most": round(longest, 3)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("where", choices=sorted(PLACES))
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pace", type=float, default=0.3, help="mean seconds between two faults")
    parser.add_argument(
        "--without", action="append", default=[], help="a fault that is not to be done"
    )
    options = parser.parse_args()
    given, wrong = Counter[int](), list[int]()
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
                make_calls(scheduler, calls, given, wrong)
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
                "lost": options.calls - len(given),
                "duplicated": sum(count > 1 for count in given.values())
                + judged["run again for no fault"],
                "wrong": len(wrong),
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
