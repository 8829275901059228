"""Measure a worker's machine, its agent and its runners, for watchers."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Collection, Iterator

from gridengine.system import resident_bytes
from gridengine.system.machine import processor_seconds
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.messages import Beat, Measured, RunnerFigures
from gridengine.worker.runner_handle import RunnerHandle

MOST_RUNNERS = 256
EVERY = 5
"""A worker on another machine sends measurements with every `EVERY`th sign of life. Those of ten
thousand workers cost the dispatcher a hundredth of a processor.
"""


def signs_of_life(meter: Meter, *, every: int = EVERY) -> Iterator[Beat | Measured]:
    """Yield a worker's signs of life without end; during runs, a measurement now and then."""
    for count in itertools.count(1):
        yield (None if count % every else meter.measure()) or Beat()


class Meter:
    """Measures a worker.

    Args:
        runners: the present runners.
        agent_seconds: returns the agent's processor time, if the agent is a process of its own.
        clock: measures the time between two measurements.
    """

    def __init__(
        self,
        runners: Collection[RunnerHandle],
        agent_seconds: Callable[[], float] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._runners = runners
        self._agent_seconds = agent_seconds
        self._clock = clock
        self._looked_at = clock.monotonic()
        self._agent_used = 0.0 if agent_seconds is None else agent_seconds()
        self._used: dict[int, float] | None = {}
        """Each runner's processor time at the last measurement; None if there were too many."""

    def measure(self) -> Measured | None:
        """Return a measurement; None when no run is in progress."""
        processor, agent_processor = self._processors()
        busy = [one for one in self._runners if one.given]
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
            processor,
            agent_processor,
        )

    def _processors(self) -> tuple[float | None, float | None]:
        """Return how many processors the runners, and the agent, have used since the last call;
        None where that is unknown. A runner that was not there at the last call has begun since.
        """
        now = self._clock.monotonic()
        seconds, self._looked_at = max(now - self._looked_at, 1e-3), now
        before, self._used = self._used, None
        runners, agent = None, None
        if len(self._runners) <= MOST_RUNNERS:
            self._used = {one.pid: processor_seconds(one.pid) for one in self._runners if one.pid}
        if before is not None and self._used is not None:
            used = [max(0.0, had - before.get(pid, 0.0)) for pid, had in self._used.items()]
            runners = sum(used) / seconds
        if self._agent_seconds is not None:
            had, self._agent_used = self._agent_used, self._agent_seconds()
            agent = (self._agent_used - had) / seconds
        return runners, agent
