"""The workers that the tests of one file share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import gridengine


@pytest.fixture(scope="module")
def one() -> Iterator[gridengine.ProcessScheduler]:
    """One slot: a call that did not give it back would wait for ever."""
    with gridengine.ProcessScheduler(1) as scheduler:
        yield scheduler


@pytest.fixture(scope="module")
def two() -> Iterator[gridengine.ProcessScheduler]:
    with gridengine.ProcessScheduler(2) as scheduler:
        yield scheduler
