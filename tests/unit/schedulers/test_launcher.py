"""What launchers tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gridengine.schedulers.launcher import LaunchPlan
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


def test_a_plan_reads_as_lines_with_the_script_below() -> None:
    assert str(
        LaunchPlan(2, {"argv": ["sbatch", "a b"], "joinFiles": True}, "#!/bin/bash\ntrue\n")
    ) == ("count: 2\nargv: sbatch 'a b'\njoinFiles: True\n\n#!/bin/bash\ntrue")
