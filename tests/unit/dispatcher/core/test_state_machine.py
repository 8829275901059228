"""Submissions, closing and the event table of the core, event by event."""

from __future__ import annotations

import pytest

from gridengine.dispatcher.core.events import Closing, Launch, Launched, Withdraw
from gridengine.errors import Cancelled
from gridengine.requests import CallsFinished, Submitted, Task
from gridengine.schedulers.launcher import Handle
from gridengine.wire.messages import Stop
from tests.support.core_play import SQUARE, Play


@pytest.mark.parametrize(
    ("policy", "counts", "asked"),
    [({}, [1, 1, 1], 3), ({"max_workers": 2}, [1, 1, 1], 2), ({"slots": 4}, [9], 3)],
)
def test_a_submission_asks_for_a_slot_for_each_call_up_to_the_most_workers(
    policy: dict[str, int], counts: list[int], asked: int
) -> None:
    play = Play(**policy)
    play.submit(*counts)
    assert play.effects == [Launch(asked, label="square")]


def test_workers_are_asked_for_once() -> None:
    play = Play()
    play.submit(1)
    play.submit(1)
    assert play.effects == []


def test_workers_for_later_calls_are_asked_for_when_the_first_have_started() -> None:
    play = Play()
    play.submit(1)
    play.submit(1, 1)
    play.play(Launched([Handle("1")]))
    assert play.seen(Launch) == [Launch(2, label="square")]


def test_demand_is_gathered_before_workers_are_asked_for() -> None:
    play = Play(gather_seconds=0.1)
    play.submit(1)
    assert play.effects == []
    play.submit(1)
    assert play.later(0.2) == [Launch(2, label="square")]


def test_a_task_submitted_twice_is_a_fault_and_changes_nothing() -> None:
    play = Play()
    task = Task(1, (b"calls",))
    play.play(Submitted(SQUARE, [task]))
    with pytest.raises(ValueError, match="twice"):
        play.play(Submitted(SQUARE, [Task(2, (b"calls",)), task]))
    assert play.core.state.calls_waiting == 1


def test_a_task_without_calls_is_a_fault() -> None:
    with pytest.raises(ValueError, match="no calls"):
        Play().submit(0)


def test_a_submission_of_nothing_leaves_no_function_behind() -> None:
    play = Play()
    play.play(Submitted(SQUARE, []))
    assert not play.core.state.objects


def test_closing_settles_everything_and_stops_everybody() -> None:
    play = Play()
    play.running(5)
    play.play(Launched([Handle("42")]))
    play.play(Closing())
    assert sum(effect.stop - effect.start for effect in play.seen(CallsFinished)) == 5
    assert {type(effect.error) for effect in play.seen(CallsFinished)} == {Cancelled}
    assert play.sent(Stop) == [Stop()]
    assert play.seen(Withdraw) == [Withdraw((Handle("42"),))]


def test_after_closing_nothing_begins_any_more() -> None:
    play = Play()
    one = play.running()
    play.play(Closing())
    assert play.play(Closing()) == []
    assert play.done(one) == []
    play.submit(2)
    assert [type(effect) for effect in play.effects] == [CallsFinished]
    play.hello(b"v", pid=8)
    assert play.sent(Stop) == [Stop()]
    play.play(Launched([Handle("1")]))
    assert play.seen(Withdraw) == [Withdraw((Handle("1"),))]
