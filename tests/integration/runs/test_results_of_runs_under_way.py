"""Results of a run that somebody reads while its calls run."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import gridengine
from tests.support.waiting import wait_until


def when_there(path: str) -> str:
    wait_until(Path(path).exists)
    return "done"


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRIDENGINE_RUN_DIRECTORY", str(tmp_path / "runs"))
    return tmp_path / "gate"


def test_results_of_calls_that_run_are_waited_for_up_to_a_timeout(gate: Path) -> None:
    path = gate.with_name("sweep.run")
    with gridengine.Executor(max_workers=1, name="sweep", journal=path) as executor:
        future = executor.submit(when_there, str(gate))
        wait_until(future.running)
        run = wait_until(lambda: found if (found := run_of(path)).left else None)
        assert [type(one) for one in run.results(timeout=0)] == [gridengine.Pending]
        threading.Timer(0.1, gate.touch).start()
        assert run.results() == ["done"]


def run_of(path: Path) -> gridengine.api.named_runs.NamedRun:
    return gridengine.run_named("sweep", journal=path)
