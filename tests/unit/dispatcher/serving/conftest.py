"""What several modules of these tests begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.journaled_client import Process


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    """A dispatcher's journal with one client, that is written by `sync` alone."""
    with Process(tmp_path / "journal.sqlite", patient=True) as made:
        yield made


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Process]:
    """One that is written as a dispatcher's is."""
    with Process(tmp_path / "journal.sqlite") as made:
        yield made
