"""`gridengine ls`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from gridengine.cli.main import main
from gridengine.settings.values import settings


def test_an_obstacle_to_the_folder_of_sockets_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "watch"
    blocked.touch()
    monkeypatch.setenv("GRIDENGINE_WATCH_DIRECTORY", str(blocked))
    monkeypatch.setenv("GRIDENGINE_RUN_DIRECTORY", str(tmp_path / "runs"))
    settings.cache_clear()
    said = CliRunner().invoke(main, ["ls"])
    settings.cache_clear()
    assert f"runs on this machine cannot be watched: {blocked} is there" in said.output
    assert "no dispatcher runs" in said.output
    assert said.exit_code == 1
