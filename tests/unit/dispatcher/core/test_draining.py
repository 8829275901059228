"""A dispatcher that is to end: what runs ends, nothing else begins."""

from __future__ import annotations

from typing import Any

import pytest

from gridengine.dispatcher.core.events import Drained, DrainHosts, Draining, Launch, Launched
from gridengine.requests import Submitted, Task
from gridengine.resources import Cores, Memory, Resource
from gridengine.resources.demand import Demand
from gridengine.schedulers.launcher import Handle
from gridengine.wire.messages import Waits
from tests.support.core_play import SQUARE, Play


def test_a_drained_worker_finishes_its_runs_and_begins_none() -> None:
    play = Play()
    play.hello()
    play.submit(1)
    [running] = play.assigned()
    play.play(Draining())
    assert not play.seen(Drained)
    play.submit(1)
    assert not play.assigned()
    play.done(running)
    assert play.seen(Drained)
    assert not play.assigned()
    play.later(1.0, beats=[b"w"])
    assert not play.assigned()
    assert not play.seen(Launch)


def test_a_running_call_gets_what_it_calls_itself() -> None:
    play = Play()
    play.hello()
    play.submit(1)
    [parent] = play.assigned()
    play.play(Draining())
    child = Task(play.last_task + 1, (b"calls",), submitter=100)
    play.play(Submitted(SQUARE, [child], parent=parent.run))
    play.say(Waits(3, parent.run))
    assert [one.task for one in play.assigned()] == [child.id]


def nested(play: Play, parent: int, **options: Any) -> int:
    """Have a running call make a call; return its task's number."""
    play.last_task += 1
    task = Task(play.last_task, (b"calls",), submitter=100, **options)
    play.play(Submitted(SQUARE, [task], parent=parent))
    return task.id


@pytest.mark.parametrize("other", [None, Memory(1)])
def test_nested_calls_of_other_resources_begin_while_an_outer_call_is_held(
    other: Resource | None,
) -> None:
    play = Play(resources=Cores(2) & Memory(4), max_workers=1)
    play.hello(slots=2)
    play.submit(1, demand=Demand(Cores(1)))
    [parent] = play.assigned()
    play.play(Draining())
    if other is not None:
        play.submit(1, demand=Demand(other))
    child = nested(play, parent.run, demand=Demand(Memory(1) & Cores(1)))
    assert [one.task for one in play.assigned()] == [child]


def test_an_open_nested_call_lets_no_outer_call_begin() -> None:
    play = Play(max_workers=1)
    play.hello(slots=3)
    play.submit(1)
    [parent] = play.assigned()
    play.play(Draining())
    play.submit(1)
    child = nested(play, parent.run)
    assert [one.task for one in play.assigned()] == [child]
    play.submit(1)
    assert play.assigned() == []


def test_a_worker_that_connects_while_the_dispatcher_drains_is_for_nested_calls() -> None:
    play = Play(max_workers=2)
    play.hello()
    play.submit(1)
    [parent] = play.assigned()
    play.submit(1)
    play.play(Draining())
    play.hello(b"v", pid=8)
    assert play.assigned() == []
    child = nested(play, parent.run)
    assert [one.task for one in play.assigned(b"v")] == [child]


def test_a_worker_is_requested_for_nested_calls_that_no_worker_holds_and_for_no_others() -> None:
    play = Play(pooled=True, max_workers=3)
    play.submit(1, demand=Demand(Cores(1)))
    play.later(1.0)
    play.play(Launched([Handle("7", "/r/7.log")], Demand(Cores(1))))
    play.hello(log="/r/7.log")
    [parent] = play.assigned()
    play.play(Draining())
    play.submit(1, demand=Demand(Cores(3)))
    nested(play, parent.run, demand=Demand(Cores(2)))
    asked = play.seen(Launch)
    for _ in range(3):
        play.later(1.0, beats=[b"w"])
        asked += play.seen(Launch)
    assert [one.demand for one in asked] == [Demand(Cores(2))]


def test_nested_calls_get_a_worker_beside_a_drained_one_whose_calls_wait_for_them() -> None:
    play = Play(max_workers=1)
    play.hello()
    play.submit(1)
    [parent] = play.assigned()
    play.play(DrainHosts({"node-w"}))
    nested(play, parent.run)
    play.say(Waits(3, parent.run))
    asked = play.seen(Launch)
    for _ in range(3):
        play.later(1.0, beats=[b"w"])
        asked += play.seen(Launch)
    assert [one.count for one in asked] == [1]
