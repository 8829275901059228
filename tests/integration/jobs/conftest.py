"""The processes that the tests of one file share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import gridengine


@pytest.fixture(scope="module")
def scheduler() -> Iterator[gridengine.ProcessScheduler]:
    with gridengine.ProcessScheduler(max_workers=2) as scheduler:
        yield scheduler
