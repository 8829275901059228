"""Workers of this machine, without any."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gridengine.schedulers import ProcessScheduler
from gridengine.schedulers.worker_command import interpreter_flags
from gridengine.settings.values import settings


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with monkeypatch.context() as patch:
        patch.setenv("GRIDENGINE_RUN_DIRECTORY", str(tmp_path))
        patch.setenv("GRIDENGINE_GRID_ENGINE_PARALLEL_ENVIRONMENT", "threads")
        patch.delenv("SGE_ROOT", raising=False)
        settings.cache_clear()
        yield tmp_path
    settings.cache_clear()


def test_a_dry_run_of_processes_shows_their_command_line() -> None:
    (argv,) = ProcessScheduler(2).dry_run().request.values()
    assert isinstance(argv, list)
    assert argv[1:] == [
        *interpreter_flags(),
        "-P",
        "-m",
        "gridengine.worker.forkserver_main",
        "SOCKET",
    ]
