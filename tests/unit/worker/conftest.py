"""What tests of a runner's parts share: they are run in this very process."""

from __future__ import annotations

import pytest

from gridengine.call_context.current_call import GVAR


@pytest.fixture(autouse=True)
def process_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that was run here is over with its test: what comes after it is not inside a call."""
    for name, value in vars(GVAR).items():
        monkeypatch.setattr(GVAR, name, value)
