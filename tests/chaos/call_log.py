"""What calls write when they begin and when they end, what that says of them, and what has come of
them.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

RETRIES = 1000
JOB = "JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_JOB_ID"
TASK = "SGE_TASK_ID", "SLURM_ARRAY_TASK_ID"
"""The variables that name a worker's job, and its task of that; a cluster has its own."""
LARGE = 300_000
"""The bytes of a large result."""
LINE_BYTES = 128
"""The length of each written line: a page holds a whole number of them. A process that is killed
while it writes stops between two pages, and a line that lay on both would be written in part.
"""


@dataclass
class Tally:
    """Which results were to come, how often each has, and which were not as they had to be."""

    expected: set[int] = field(default_factory=set)
    given: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    cancelled: int = 0
    failed: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, index: int) -> None:
        """Note that a result has come, in any thread."""
        with self._lock:
            self.given[index] += 1


def raised_by(act: Callable[[], object]) -> list[BaseException]:
    """Return what a function raises."""
    try:
        act()
    except BaseException as error:
        return [error]
    return []


def first_of(names: Iterable[str], environment: Mapping[str, str]) -> str:
    """Return the first of these variables that there is."""
    return next((environment[name] for name in names if name in environment), "")


def write(path: str, what: str, index: int) -> None:
    """Append a line, in one piece or not at all."""
    job, task = first_of(JOB, os.environ), first_of(TASK, os.environ)
    line = f"{what} {index} {os.getpid()} {os.getppid()} {job}.{task} {time.monotonic()}"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, line.ljust(LINE_BYTES - 1).encode() + b"\n")
    os.close(descriptor)


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
