"""The thread that all users of a scheduler share: whatever happens to it, nobody waits for ever."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import gridengine
from gridengine import state
from gridengine.events import Submitted


@pytest.mark.timeout(60)
def test_who_submits_while_the_scheduler_is_closed_is_told_and_does_not_wait() -> None:
    for _ in range(20):
        scheduler = gridengine.ProcessScheduler(1)
        ends: list[BaseException] = []
        started = threading.Barrier(5)

        def use(scheduler: gridengine.ProcessScheduler = scheduler, ends: list[BaseException] = ends, started: Any = started) -> None:
            started.wait()
            try:
                while True:
                    gridengine.map(abs, [-1], scheduler=scheduler)
            except gridengine.GridEngineError as error:
                ends.append(error)

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        started.wait()
        scheduler.close()
        for thread in threads:
            thread.join()
        assert {type(end) for end in ends} <= {gridengine.Cancelled, gridengine.ConfigurationError}
        assert len(ends) == 4


@pytest.mark.timeout(60)
def test_when_the_thread_itself_fails_every_call_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    with gridengine.ProcessScheduler(1) as scheduler:
        assert gridengine.map(abs, [-1], scheduler=scheduler) == [1]
        monkeypatch.setitem(state._HANDLERS, Submitted, fail)
        with pytest.raises(gridengine.Cancelled, match="a fault of ours"):
            gridengine.map(abs, [-1], scheduler=scheduler)
        with pytest.raises(gridengine.ConfigurationError, match="closed"):
            gridengine.map(abs, [-1], scheduler=scheduler)
