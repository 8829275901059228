"""How much a client may have open."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gridengine.calls.outstanding import ClientLimits
from gridengine.calls.remote import RemoteDispatcher
from gridengine.dispatcher.unsettled import UnsettledTasks
from gridengine.errors import ConfigurationError
from gridengine.requests import CallsFinished, Task
from gridengine.wire.messages import Finished, FinishedItem


def test_more_calls_than_may_be_open_are_an_error_with_the_numbers() -> None:
    limits = ClientLimits(10, None)
    limits.enter([Task(1, [b""], 6)])
    limits.check(4)
    with pytest.raises(ConfigurationError, match=r"6 calls open, .* 10 \(max_calls\): 5 more"):
        limits.check(5)
    with pytest.raises(ConfigurationError):
        limits.enter([Task(2, [b""], 3), Task(3, [b""], 2)])
    limits.enter([Task(2, [b""], 4)])


def test_calls_that_have_ended_make_room() -> None:
    limits = ClientLimits(4, 100)
    limits.enter([Task(1, [b"x" * 60, b"y" * 40], 4)])
    with pytest.raises(ConfigurationError, match="max_bytes"):
        limits.enter([Task(2, [b"z"], 0)])
    limits.leave(CallsFinished(1, 0, 2, None))
    with pytest.raises(ConfigurationError, match="100 bytes"):
        limits.enter([Task(2, [b"z"])])
    limits.leave(CallsFinished(1, 2, 4, None, last=True))
    limits.enter([Task(2, [b"z" * 100], 4)])


def test_an_outcome_that_comes_twice_makes_room_once() -> None:
    limits, unsettled = ClientLimits(2, None), UnsettledTasks()
    tasks = [Task(id, [b""]) for id in (1, 2)]
    limits.enter(tasks)
    unsettled.add(tasks, SimpleNamespace(daemon=True, settled=lambda event: None))  # type: ignore[arg-type]
    client: Any = object.__new__(RemoteDispatcher)
    client._limits, client._unsettled, client._repeats = limits, unsettled, True
    client._number = 0
    for _ in range(2):
        client._finished(Finished(0, [FinishedItem(1, 0, 1, last=True)]), [])
    limits.check(1)
    with pytest.raises(ConfigurationError):
        limits.check(2)
