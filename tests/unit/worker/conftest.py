"""What tests of a runner's parts share: they are run in this very process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from gridengine.worker.call_context import GVAR


@pytest.fixture(autouse=True)
def process_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that was run here is over with its test: what comes after it is not inside a call."""
    for name, value in vars(GVAR).items():
        monkeypatch.setattr(GVAR, name, value)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The ends of a pipe to read and to write; a test may close them."""
    ends = os.pipe()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):
            os.close(end)
