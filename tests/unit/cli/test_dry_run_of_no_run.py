"""`gridengine up --dry` before a script runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from gridengine.cli.main import main
from gridengine.schedulers.command import CommandRunner
from gridengine.wire.connection_file import Connection


@pytest.fixture(autouse=True)
def no_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None]
) -> None:
    """A run directory without the runs of who runs the tests, and batch systems that need not be on
    this machine.
    """
    configure(run_directory=tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SGE_ROOT", raising=False)
    monkeypatch.setattr(CommandRunner, "answers", lambda runner, asked: [""] * len(asked))


@pytest.mark.parametrize("scheduler", ["processes", "grid_engine", "slurm"])
def test_a_dry_run_needs_no_run_under_way(scheduler: str) -> None:
    told = CliRunner().invoke(main, ["up", "--dry", "--scheduler", scheduler])
    assert told.exit_code == 0, told.output
    assert "RUN/connection.json" in told.output


def test_a_dry_run_for_a_run_on_slurm_shows_a_slurm_job(tmp_path: Path) -> None:
    words = dict.fromkeys(("run_id", "version", "python", "server_key"), "x")
    keys = {"worker_public": "x", "worker_secret": "x", "addresses": ("tcp://10.0.0.7:4711",)}
    numbers = {f"{name}_seconds": 1.0 for name in ("beat", "lease", "start", "grace")}
    connection = Connection(**words, **keys, **numbers, slots=1, output_bytes=0, scheduler="slurm")
    connection.save(tmp_path / "connection.json")
    told = CliRunner().invoke(main, ["up", str(tmp_path / "connection.json"), "--dry"])
    assert told.exit_code == 0, told.output
    assert "sbatch" in told.output
