"""`gridengine up --dry` before a script runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from gridengine.cli.main import main


@pytest.mark.parametrize("scheduler", ["processes", "grid_engine", "slurm"])
def test_what_would_be_submitted_is_shown_though_no_run_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheduler: str
) -> None:
    monkeypatch.setenv("GRIDENGINE_RUN_DIRECTORY", str(tmp_path))
    told = CliRunner().invoke(main, ["up", "--dry", "--scheduler", scheduler])
    assert told.exit_code == 0, told.output
    assert "RUN/connection.json" in told.output
