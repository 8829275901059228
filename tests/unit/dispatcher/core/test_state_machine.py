"""Submissions, closing and the event table of the core, event by event."""

from __future__ import annotations

import pytest

from gridengine.dispatcher.core.events import (
    Closing,
    Launch,
    Launched,
    Submitted,
    Withdraw,
)
from gridengine.dispatcher.core.tasks import CallsFinished, Task
from gridengine.errors import (
    Cancelled,
)
from gridengine.schedulers.launcher import Handle
from gridengine.wire.messages import (
    Stop,
)
from tests.support.core_play import SQUARE, Play, chunk


def test_a_submission_asks_for_a_worker_for_each_call() -> None:
    play = Play()
    play.submit(1, 1, 1)
    assert play.effects == [Launch(3, label="square")]


def test_no_more_workers_are_asked_for_than_allowed() -> None:
    play = Play(max_workers=2)
    play.submit(1, 1, 1)
    assert play.effects == [Launch(2, label="square")]


def test_a_worker_is_asked_for_as_many_calls_as_it_has_slots() -> None:
    play = Play(slots=4)
    play.submit(9)
    assert play.effects == [Launch(3, label="square")]


def test_workers_are_asked_for_once() -> None:
    play = Play()
    play.submit(1)
    play.submit(1)
    assert play.effects == []


def test_what_was_submitted_meanwhile_is_asked_for_when_the_first_have_started() -> None:
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


def test_closing_settles_of_a_run_what_has_not_settled() -> None:
    play = Play()
    one = chunk(play)
    play.values(one, 0, 4)
    play.play(Closing())
    assert min(effect.start for effect in play.seen(CallsFinished)) == 4


def test_what_is_submitted_after_closing_settles_at_once() -> None:
    play = Play()
    play.play(Closing())
    play.submit(2)
    assert [type(effect) for effect in play.effects] == [CallsFinished]


def test_a_worker_that_comes_after_closing_is_told_to_leave() -> None:
    play = Play()
    play.play(Closing())
    play.hello()
    assert play.sent(Stop) == [Stop()]


def test_workers_that_start_after_closing_are_withdrawn() -> None:
    play = Play()
    play.submit(1)
    play.play(Closing())
    play.play(Launched([Handle("1")]))
    assert play.seen(Withdraw) == [Withdraw((Handle("1"),))]


def test_answers_after_closing_are_dropped() -> None:
    play = Play()
    one = play.running()
    play.play(Closing())
    assert play.done(one) == []


def test_closing_twice_is_as_closing_once() -> None:
    play = Play()
    play.running()
    play.play(Closing())
    assert play.play(Closing()) == []
