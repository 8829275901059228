"""What a scheduler does, as its own process sees it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

import gridengine
from gridengine.errors import Cancelled, ConfigurationError
from gridengine.settings.values import settings
from tests.support.waiting import wait_until


def hold(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.01)


def test_a_scheduler_tells_its_status(tmp_path: Path) -> None:
    with gridengine.ProcessScheduler(1) as scheduler:
        assert scheduler.status() is None
        with gridengine.Executor(scheduler=scheduler) as executor:
            futures = [executor.submit(hold, str(tmp_path / "over")) for _ in range(3)]
            status = scheduler.status()
            (tmp_path / "over").touch()
            assert isinstance(status, gridengine.Status)
            assert status.slots == 1
            assert [future.result() for future in futures] == [None] * 3
        assert scheduler.status().done == 3
    with pytest.raises(ConfigurationError, match="has been closed"):
        scheduler.status()


def done_of(seen: list[gridengine.Status]) -> int:
    """Return how many calls have ended, of all that was told of."""
    events = [event for status in seen for event in status.events]
    return sum(one.count for one in events if one.kind == "call done")


def test_a_client_tells_the_status_and_events_of_its_dispatcher(tmp_path: Path) -> None:
    with gridengine.LocalDispatcher(n_workers=1) as dispatcher:
        with gridengine.Client(dispatcher.address) as client:
            futures = [client.submit(hold, str(tmp_path / "over")) for _ in range(3)]
            client.flush()
            wait_until(lambda: client.status().running == 1)
            with gridengine.Client(dispatcher.address) as other:
                seen: list[gridengine.Status] = []
                with gridengine.watch(seen.append, other, interval=0.05):
                    wait_until(lambda: len(seen) > 1)
                    assert isinstance(seen[-1], gridengine.Status)
                    assert (seen[-1].running, seen[-1].waiting, seen[-1].slots) == (1, 2, 1)
                    (tmp_path / "over").touch()
                    assert [future.result() for future in futures] == [None] * 3
                    wait_until(lambda: done_of(seen) == 3)
            assert client.status().done == 3
        with pytest.raises(Cancelled, match="has disconnected"):
            client.status()


def test_a_watching_function_is_called_with_the_status_of_a_scheduler(tmp_path: Path) -> None:
    seen, full = [], threading.Event()

    def look(status: gridengine.Status) -> None:
        seen.append(status.running)
        if len(seen) == 3:
            full.set()
            (tmp_path / "over").touch()

    with gridengine.ProcessScheduler(1) as scheduler:
        with gridengine.watch(look, scheduler, interval=0.05):
            gridengine.map(hold, [str(tmp_path / "over")], scheduler=scheduler)
            assert full.wait(60)
        count = len(seen)
        gridengine.map(abs, range(3), scheduler=scheduler)
        assert len(seen) == count


def test_a_function_that_raises_is_called_once_and_that_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with gridengine.ProcessScheduler(1) as scheduler:
        watch = gridengine.watch(lambda status: 1 / 0, scheduler, interval=0.01)
        watch._thread.join(60)
        watch.close()
        watch.close()
    assert (
        "the watching function is not called any more: it raised ZeroDivisionError" in caplog.text
    )


def test_when_the_scheduler_is_closed_it_is_watched_no_more() -> None:
    with gridengine.ProcessScheduler(1) as scheduler:
        watch = gridengine.watch(print, scheduler, interval=0.01)
    watch._thread.join(60)
    assert not watch._thread.is_alive()


def test_an_unwatchable_scheduler_is_an_error() -> None:
    with pytest.raises(TypeError, match="not callable"):
        gridengine.watch(1)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="interval"):
        gridengine.watch(print, interval=0)


def test_a_closed_dispatcher_leaves_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRIDENGINE_METRICS_FILE", str(tmp_path / "metrics-{pid}.prom"))
    settings.cache_clear()
    file = tmp_path / f"metrics-{os.getpid()}.prom"
    with gridengine.ProcessScheduler(1) as scheduler:
        gridengine.map(abs, range(5), scheduler=scheduler)
    assert 'outcome="done"} 5' in file.read_text()
