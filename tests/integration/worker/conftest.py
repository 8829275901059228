"""Agents that these tests drive: with one runner, and with two."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.agent_driver import Dispatcher, start


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    made = start()
    yield made
    made.agent.close()


@pytest.fixture
def two() -> Iterator[Dispatcher]:
    made = start(slots=2)
    yield made
    made.agent.close()
