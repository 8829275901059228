"""What the dispatcher's thread is not asked to do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gridengine.dispatcher.core.events import Event, Scaled
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.io_thread import DispatcherThread
from gridengine.errors import ConfigurationError


def test_who_starts_no_workers_cannot_have_more_of_them() -> None:
    thread: Any = SimpleNamespace(_policy=Policy(max_workers=0, run_id="run"), name="mine")
    with pytest.raises(ConfigurationError, match="starts no workers") as raised:
        DispatcherThread.scale(thread, 2, 4)
    assert raised.value.hint == "start some by hand: gridengine worker mine"


@pytest.mark.parametrize(
    "bounds", [(5, None), (None, -1), (3, 2), ("1", 2), (1, 2.5), (float("nan"), None)]
)
def test_bounds_that_are_none_are_refused_to_who_asks(bounds: tuple[Any, Any]) -> None:
    posted: list[Event] = []
    policy = Policy(max_workers=4, version="1", python="3.11", run_id="run", pooled=True)
    thread: Any = SimpleNamespace(_policy=policy, _post=posted.append)
    with pytest.raises(ConfigurationError, match="there cannot be from"):
        DispatcherThread.scale(thread, *bounds)
    assert posted == []
    assert DispatcherThread.scale(thread, 2, None) == (2, 4)
    assert posted == [Scaled(2, None)]
