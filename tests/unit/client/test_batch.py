"""Single calls that are handed over as one task."""

from __future__ import annotations

from typing import Any

import pytest

import gridengine
from gridengine.serialize import pickling
from tests.support.fake_dispatcher import FakeScheduler
from tests.support.held_dispatcher import HeldDispatcher, give


@pytest.fixture
def dispatcher() -> HeldDispatcher:
    return HeldDispatcher()


@pytest.mark.parametrize(
    "calls", [[1], [1, "two", None, 3.5], [[1], {"a": (2,)}], [1, [2], lambda x: x]]
)
def test_each_call_arrives_as_it_was_given(calls: list[Any], dispatcher: HeldDispatcher) -> None:
    with gridengine.Executor(scheduler=FakeScheduler(dispatcher)) as executor:
        futures = [executor.submit(give, call) for call in calls]
        dispatcher.run_all(until=lambda: all(future.done() for future in futures))
        for future, call in zip(futures, calls, strict=True):
            [found], kwargs = future.result()
            assert kwargs == {}
            assert found == call or found(3) == call(3)


def test_waiting_calls_become_one_task_and_keep_their_arguments(
    dispatcher: HeldDispatcher,
) -> None:
    with gridengine.Executor(scheduler=FakeScheduler(dispatcher)) as executor:
        given: list[list[int]] = [[number] for number in range(100)]
        futures = [executor.submit(give, one) for one in given]
        for one in given:
            one.append(-1)  # after it was submitted
        dispatcher.run_all(until=lambda: all(future.done() for future in futures))
        assert [future.result()[0] for future in futures] == [([n],) for n in range(100)]
    sizes = [entry.task.count for entry in dispatcher.entries]
    assert sum(sizes) == 100
    assert max(sizes) > 1
    for entry in dispatcher.entries:
        assert len(pickling.load(entry.task.payload)) == entry.task.count
