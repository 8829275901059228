"""What a worker measures, and how often it says so."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

import pytest

from gridengine.wire.messages import Beat, Measured
from gridengine.worker import meter
from gridengine.worker.meter import MOST_RUNNERS, Meter, processor_seconds, signs_of_life
from tests.support.manual_clock import ManualClock


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """How many seconds of a processor processes have had; 100 is the agent."""
    found = {7: 50.0, 8: 1.0, 100: 2.0}
    monkeypatch.setattr(meter, "processor_seconds", lambda pid: found.get(pid, 0.0))
    return found


def runner(*given: int) -> Any:
    status = SimpleNamespace(run=given[0] if given else 0, index=3)
    return SimpleNamespace(pid=os.getpid(), given=dict.fromkeys(given), status=status)


def test_call_and_memory_of_busy_runners_are_measured() -> None:
    measured = Meter([runner(7), runner()]).measure()
    assert measured is not None
    [figures] = measured.runners
    assert (figures.pid, figures.run, figures.index) == (os.getpid(), 7, 3)
    assert figures.memory > 1_000_000
    assert measured.load >= 0


def test_while_nothing_runs_nothing_is_measured() -> None:
    assert Meter([runner()]).measure() is None


def test_measurements_come_with_a_few_of_the_signs_of_life() -> None:
    signs = signs_of_life(Meter([runner(7)]), every=3)
    assert [type(next(signs)) for _ in range(6)] == [Beat, Beat, Measured] * 2


def test_a_process_that_is_gone_has_no_memory() -> None:
    one = runner(7)
    one.pid = 2**22 + 1
    measured = Meter([one]).measure()
    assert measured is not None
    assert measured.runners[0].memory == 0


def test_processor_use_counts_since_the_last_measurement(used: dict[int, float]) -> None:
    clock = ManualClock()
    runners = [runner(1), runner()]
    runners[0].pid, runners[1].pid = 7, 8
    meter = Meter(runners, lambda: used[100], clock)
    clock.advance(100)
    first = meter.measure()
    assert first is not None
    assert (first.processor, first.agent_processor) == (0.51, 0.0)
    used.update({7: 60.0, 8: 5.0, 9: 6.0, 100: 3.0})
    runners.append(runner())
    runners[2].pid = 9
    clock.advance(10)
    second = meter.measure()
    assert second is not None
    assert (second.processor, second.agent_processor) == (2.0, 0.1)


def test_a_process_that_has_the_number_of_one_that_is_gone_has_used_no_less_than_nothing(
    used: dict[int, float],
) -> None:
    clock, one = ManualClock(), runner(1)
    one.pid = 7
    meter = Meter([one], clock=clock)
    meter.measure()
    used[7] = 1.0
    clock.advance(1)
    measured = meter.measure()
    assert measured is not None
    assert measured.processor == 0.0


def test_too_many_runners_are_not_measured(used: dict[int, float]) -> None:
    clock = ManualClock()
    runners = [runner(1) for _ in range(MOST_RUNNERS + 1)]
    meter = Meter(runners, clock=clock)
    found = []
    for many in (MOST_RUNNERS + 1, 2, 2):
        del runners[many:]
        clock.advance(1)
        measured = meter.measure()
        assert measured is not None
        assert measured.agent_processor is None, "it is a part of the dispatcher's process"
        found.append(measured.processor)
    assert found == [None, None, 0.0]


def test_processor_time_is_that_of_the_process() -> None:
    before = processor_seconds(os.getpid())
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert processor_seconds(os.getpid()) >= before + 0.05
    assert processor_seconds(2**22 + 1) == 0.0
