"""The dispatcher that the tests of one file share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import gridengine
from tests.support.standalone import Standalone


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    made = Standalone(tmp_path_factory.mktemp("runs"))
    yield made
    said = made.end()
    assert made.process.returncode == 0, said
    assert "Traceback" not in said


@pytest.fixture
def client(standalone: Standalone) -> Iterator[gridengine.Client]:
    with gridengine.Client(standalone.path) as client:
        yield client
