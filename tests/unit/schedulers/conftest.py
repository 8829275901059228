"""What several tests of schedulers need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gridengine.schedulers import detect
from gridengine.settings.values import settings


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder below which runs would have theirs, on a machine without a Grid Engine."""
    with monkeypatch.context() as patch:
        patch.setenv("GRIDENGINE_RUN_DIRECTORY", str(tmp_path))
        patch.setenv("GRIDENGINE_GRID_ENGINE_PARALLEL_ENVIRONMENT", "threads")
        patch.delenv("SGE_ROOT", raising=False)
        settings.cache_clear()
        yield tmp_path
    settings.cache_clear()


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with neither commands nor libraries."""
    for name in ("SGE_ROOT", "DRMAA_LIBRARY_PATH", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(detect, "_linked", lambda environment: [])
