"""What a worker measures, and how often it says so."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from gridengine.wire.messages import Beat, Measured
from gridengine.worker.figures import measure, signs_of_life


def runner(*given: int) -> Any:
    status = SimpleNamespace(run=given[0] if given else 0, index=3)
    return SimpleNamespace(pid=os.getpid(), given=dict.fromkeys(given), status=status)


def test_of_runners_that_run_something_the_call_and_the_memory_are_measured() -> None:
    measured = measure([runner(7), runner()])
    assert measured is not None
    [figures] = measured.runners
    assert (figures.pid, figures.run, figures.index) == (os.getpid(), 7, 3)
    assert figures.memory > 1_000_000
    assert measured.load >= 0


def test_while_nothing_runs_nothing_is_measured() -> None:
    assert measure([runner()]) is None


def test_one_of_several_signs_of_life_says_what_is_measured() -> None:
    signs = signs_of_life([runner(7)], every=3)
    assert [type(next(signs)) for _ in range(6)] == [Beat, Beat, Measured] * 2


def test_a_process_that_is_gone_has_no_memory() -> None:
    one = runner(7)
    one.pid = 2**22 + 1
    measured = measure([one])
    assert measured is not None
    assert measured.runners[0].memory == 0
