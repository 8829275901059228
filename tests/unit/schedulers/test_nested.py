"""The scheduler of a call, as the call has it."""

from __future__ import annotations

import pytest

from gridengine.client.connect import connect
from gridengine.errors import ConfigurationError
from gridengine.schedulers.nested import NestedScheduler


class Shared:
    def __init__(self) -> None:
        self.closed = 0

    def close(self, *, wait: bool = True) -> None:
        self.closed += 1


def test_it_can_be_closed_and_used_again() -> None:
    scheduler, shared = NestedScheduler(), Shared()
    scheduler.close()
    assert scheduler._share(lambda: shared) is shared
    with scheduler:
        pass
    assert shared.closed == 1
    assert scheduler._share(Shared) is shared


def test_where_no_call_runs_it_is_of_no_use() -> None:
    with pytest.raises(ConfigurationError, match="no call runs here"):
        connect(NestedScheduler())
