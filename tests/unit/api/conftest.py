"""Schedulers whose dispatchers run calls in this process, or not at all."""

from __future__ import annotations

import pytest

from tests.support.fake_dispatcher import FakeDispatcher, FakeScheduler


@pytest.fixture
def scheduler() -> FakeScheduler:
    return FakeScheduler()


@pytest.fixture
def silent() -> FakeScheduler:
    """A scheduler on which nothing ever runs by itself."""
    return FakeScheduler(FakeDispatcher(on_submit=lambda dispatcher: None))
