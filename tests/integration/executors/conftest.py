"""An executor on the processes that the tests of one file share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import gridengine


@pytest.fixture
def executor(scheduler: gridengine.ProcessScheduler) -> Iterator[gridengine.Executor]:
    with gridengine.Executor(scheduler=scheduler) as executor:
        yield executor
