"""Whose turn it is."""

from __future__ import annotations

from typing import Any

import pytest

from gridengine.dispatcher.core import fair_queue
from gridengine.dispatcher.core.events import Rebalance
from gridengine.wire.messages import Recall
from tests.support.core_play import Play, assignment_of
from tests.unit.dispatcher.core.test_clients import ClientPlay


@pytest.mark.parametrize("option", ["submitter", "priority"])
def test_a_batch_is_of_one_submitter_and_one_priority(option: str) -> None:
    play = Play()
    play.learn(seconds=1e-3)
    for value in (1, 2):
        options: Any = {option: value}
        play.submit(*[1] * 3, **options)
    owners: dict[int, set[int]] = {}
    for run in play.core.state.runs.values():
        owners.setdefault(id(run.batch), set()).add(getattr(run.span.open_task.options, option))
    assert owners
    assert all(len(those) == 1 for those in owners.values())


def test_calls_that_come_back_wait_before_those_of_their_own_submitter() -> None:
    play = ClientPlay("submitters", slots=1)
    play.hand_in(1, 3, retries=2)
    play.hand_in(2, 3)
    run = next(iter(play.core.state.runs.values()))
    play.crash(assignment_of(run), 0)
    assert play.running_clients() == {2: 1}
    play.end_first()
    assert [(run.span.start, run.span.attempt) for run in play.core.state.runs.values()] == [(0, 2)]


def test_with_more_submitters_than_are_compared_all_have_turns() -> None:
    many = 3 * fair_queue.MOST_COMPARED
    play = ClientPlay("submitters", slots=2)
    for submitter in range(many):
        play.hand_in(submitter, 5)
    seen = play.served(2 * many)
    assert set(seen) == set(range(many))
    assert max(seen.values()) <= 3


def test_calls_that_waited_at_their_worker_are_not_late_for_it() -> None:
    play = ClientPlay(slots=1)
    play.submit(1)
    play.end_first(seconds=0.01)
    play.submit(100)
    first, second = play.core.state.runs.values()
    one = assignment_of(first)
    for call in range(one.stop):
        play.now += 0.01
        play.values(one, call, call + 1, seconds=0.01)
    play.play(Rebalance())
    assert play.sent(Recall) == []
    assert second.span.open_task.pace.seconds == pytest.approx(0.01)
    play.now += 0.06
    play.play(Rebalance())
    assert second.number in play.sent(Recall)[0].runs


def test_a_result_is_not_late_before_its_message_can_have_come() -> None:
    play = ClientPlay(slots=1, message_seconds=0.1)
    play.submit(1)
    play.end_first(seconds=0.01)
    play.submit(100)
    [first, *_] = play.core.state.runs.values()
    play.now += 0.4
    play.play(Rebalance())
    assert play.sent(Recall) == []
    play.now += 0.1
    play.play(Rebalance())
    assert play.sent(Recall) != []
    assert first.span.open_task.pace.seconds == pytest.approx(0.3)
