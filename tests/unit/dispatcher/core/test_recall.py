"""Calls that are taken back before they begin, played on the core."""

from __future__ import annotations

from typing import Any

import pytest

from gridengine.dispatcher.core.events import CancelRequested, RecallRequested
from gridengine.dispatcher.core.tasks import CallsFinished
from gridengine.errors import Cancelled
from gridengine.resources import Cores
from gridengine.wire.messages import CRASH, Crashed, Recall, Returned, Shortened
from tests.unit.dispatcher.core.test_state_machine import Play


def recalled(play: Play) -> list[tuple[int, int, int]]:
    """Return what was settled as taken back: the task, the first call and the one after the
    last.
    """
    assert all(isinstance(one.error, Cancelled) for one in play.seen(CallsFinished) if one.recalled)
    return [(one.task, one.start, one.stop) for one in play.seen(CallsFinished) if one.recalled]


def busy(**policy: Any) -> Play:
    """Return a core whose one worker is at task 1, the first of two calls."""
    play = Play(**policy)
    play.hello()
    play.submit(2)
    return play


@pytest.fixture(params=[None, Cores(1)], ids=["alike", "shared"])
def play(request: pytest.FixtureRequest) -> Play:
    return busy(resources=request.param)


def test_a_call_that_waits_is_taken_back(play: Play) -> None:
    play.submit(3)
    play.play(RecallRequested([(2, 1, 2)]))
    assert recalled(play) == [(2, 1, 2)]
    assert play.core.calls_waiting == 3


def test_a_call_that_was_handed_out_alone_is_not_taken_back(play: Play) -> None:
    play.play(RecallRequested([(1, 0, 1)]))
    assert play.effects == []


def test_all_that_waits_of_several_tasks_is_taken_back(play: Play) -> None:
    play.submit(3, 2)
    play.play(RecallRequested([(1, 0, 2), (2, 0, 3), (3, 0, 2)]))
    assert recalled(play) == [(1, 1, 2), (2, 0, 3), (3, 0, 2)]
    assert play.core.calls_waiting == 0


def test_what_has_settled_is_not_taken_back(play: Play) -> None:
    play.play(CancelRequested([1], 15))
    play.play(RecallRequested([(1, 0, 2), (9, 0, 1)]))
    assert recalled(play) == []


def test_a_worker_gives_back_what_it_has_not_begun() -> None:
    play = Play()
    play.learn(seconds=1e-3)
    task, *_ = play.submit(60)
    first, second = play.assigned()
    play.play(RecallRequested([(task.id, 0, 60)]))
    assert recalled(play) == [(task.id, second.stop, 60)]
    assert [message.runs for message in play.sent(Recall)] == [[first.run, second.run]]
    play.say(Returned([second.run]))
    assert recalled(play) == [(task.id, second.start, second.stop)]
    play.say(Shortened(first.run, 3))
    assert recalled(play) == [(task.id, 3, first.stop)]
    play.values(first, 0, 3)
    assert [(one.start, one.stop, one.last) for one in play.seen(CallsFinished)] == [(0, 3, True)]


def test_a_worker_gives_back_one_call_and_has_the_others_again() -> None:
    play = Play()
    play.learn(seconds=1e-3)
    task, *_ = play.submit(60)
    first, second = play.assigned()
    play.play(RecallRequested([(task.id, second.start + 4, second.start + 5)]))
    assert [message.runs for message in play.sent(Recall)] == [[first.run, second.run]]
    play.say(Returned([second.run]))
    assert recalled(play) == [(task.id, second.start + 4, second.start + 5)]
    one, *_ = play.assigned()
    assert (one.start, one.stop) == (second.start, second.start + 4)


def test_what_a_worker_gives_back_of_other_tasks_is_handed_out_again() -> None:
    play = Play()
    play.learn(seconds=1e-3)
    play.submit(60)
    _, second = play.assigned()
    play.say(Returned([second.run]))
    assert recalled(play) == []
    assert sum(one.stop - one.start for one in play.assigned()) > 0


def test_a_call_that_is_to_be_tried_again_is_not_taken_back(play: Play) -> None:
    one = next(iter(play.core.runs.values()))
    play.submit(1)
    play.play(RecallRequested([(1, 0, 2)]))
    assignment = one.number
    play.say(Crashed(assignment, 0, -11, CRASH, 1), b"", b"")
    play.play(RecallRequested([(1, 0, 2)]))
    assert recalled(play) == []
