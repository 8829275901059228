"""What several tests of schedulers need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gridengine.schedulers import detect


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None]) -> Path:
    """A folder below which runs would have theirs, on a machine without a Grid Engine."""
    monkeypatch.delenv("SGE_ROOT", raising=False)
    configure(run_directory=tmp_path, grid_engine_parallel_environment="threads")
    return tmp_path


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with neither commands nor libraries."""
    for name in ("SGE_ROOT", "DRMAA_LIBRARY_PATH", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(detect, "_linked", lambda environment: [])
