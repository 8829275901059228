"""Runs with a name, in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.named_calls import Notes


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notes:
    return Notes(tmp_path, monkeypatch)
