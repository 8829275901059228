"""What a worker measures of its machine, itself and its runners, for who watches."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Iterator

from gridengine.wire.messages import Beat, Measured, RunnerFigures
from gridengine.worker.memory_limit import resident_bytes
from gridengine.worker.runner_handle import RunnerHandle

MOST_RUNNERS = 256
EVERY = 5
"""With each how many-th sign of life a worker elsewhere says what it measures: that of ten thousand
workers costs the dispatcher a hundredth of a processor.
"""


def signs_of_life(
    runners: Iterable[RunnerHandle], *, every: int = EVERY
) -> Iterator[Beat | Measured]:
    """Yield a worker's signs of life, without end: now and then what is measured, while something
    runs. `runners` are those that it has at the moment.
    """
    for count in itertools.count(1):
        yield (None if count % every else measure(runners)) or Beat()


def measure(runners: Iterable[RunnerHandle]) -> Measured | None:
    """Return what is measured; None when nothing runs."""
    busy = [one for one in runners if one.given]
    if not busy:
        return None
    return Measured(
        os.getloadavg()[0],
        resident_bytes(),
        [
            RunnerFigures(one.pid, one.status.run, one.status.index, resident_bytes(one.pid))
            for one in itertools.islice(busy, MOST_RUNNERS)
            if one.pid
        ],
        time.time(),
    )
