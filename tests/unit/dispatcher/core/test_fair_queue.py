"""Submitters that share a scheduler take turns, played on the core."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from gridengine.dispatcher.core import fair_queue
from gridengine.dispatcher.core.events import Rebalance
from gridengine.dispatcher.core.model import Run
from gridengine.resources import Cores
from gridengine.wire.messages import Assignment, Recall, Returned, Shortened
from tests.support.core_play import Play, function

SHARED = [None, Cores(4)]


def play_with(shared: Any, slots: int = 4) -> Play:
    play = Play(resources=shared, slots=slots)
    play.hello(slots=slots)
    return play


def running(play: Play) -> dict[int, int]:
    """Return how many batches of each submitter workers have."""
    return dict(Counter(run.span.open_task.task.submitter for run in play.core.state.runs.values()))


def end_first(play: Play, submitter: int | None = None, seconds: float = 1.0) -> None:
    """End the run that was handed out first, of this submitter."""
    run = next(
        one
        for one in play.core.state.runs.values()
        if submitter in (None, one.span.open_task.task.submitter)
    )
    play.done(assignment_of(run), seconds=seconds)


def assignment_of(run: Run) -> Assignment:
    """Return what the worker was told of a run."""
    task = run.span.open_task.task
    return Assignment(
        run.number, task.id, b"square", run.span.start, run.span.stop, run.span.attempt, task.form
    )


@pytest.mark.parametrize("shared", SHARED, ids=["alike", "shared"])
def test_who_comes_second_has_an_even_share_at_once(shared: Any) -> None:
    play = play_with(shared)
    play.submit(100, submitter=1)
    play.submit(100, submitter=2, function=function(2))
    assert running(play) == {1: 4}
    end_first(play)
    end_first(play)
    assert running(play) == {1: 2, 2: 2}
    for _ in range(20):
        end_first(play)
        assert running(play) == {1: 2, 2: 2}


@pytest.mark.parametrize("shared", SHARED, ids=["alike", "shared"])
def test_what_one_does_not_want_the_others_have(shared: Any) -> None:
    play = play_with(shared)
    play.submit(100, submitter=1)
    play.submit(1, submitter=2)
    for _ in range(8):
        end_first(play)
    assert running(play) == {1: 4}


def test_the_share_is_of_workers_and_not_of_batches() -> None:
    """Calls of one take a hundred times as long: they get no more workers for that."""
    play = play_with(None)
    play.submit(1000, submitter=1)
    play.submit(1000, submitter=2, function=function(2))
    end_first(play)
    end_first(play)
    for _ in range(100):
        end_first(play, 2)
        assert running(play) == {1: 2, 2: 2}


def test_with_one_slot_they_alternate() -> None:
    play = play_with(None, slots=1)
    for submitter in (1, 2, 3):
        play.submit(10, submitter=submitter)
    order = []
    for _ in range(9):
        order += list(running(play))
        end_first(play)
    assert order == [1, 2, 3] * 3


def test_a_batch_is_of_one_submitter() -> None:
    play = Play()
    play.learn(seconds=1e-3)
    for submitter in (1, 2):
        play.submit(*[1] * 3, submitter=submitter)
    owners: dict[int, set[int]] = {}
    for run in play.core.state.runs.values():
        owners.setdefault(id(run.batch), set()).add(run.span.open_task.task.submitter)
    assert owners
    assert all(len(those) == 1 for those in owners.values())


def test_calls_that_come_back_wait_before_those_of_their_own_submitter() -> None:
    play = play_with(None, slots=1)
    play.submit(3, submitter=1, retries=2)
    play.submit(3, submitter=2)
    run = next(iter(play.core.state.runs.values()))
    play.crash(assignment_of(run), 0)
    assert running(play) == {2: 1}
    end_first(play)
    assert [(run.span.start, run.span.attempt) for run in play.core.state.runs.values()] == [(0, 2)]


def test_with_more_submitters_than_are_compared_all_have_turns() -> None:
    many = 3 * fair_queue.MOST_COMPARED
    play = play_with(None, slots=2)
    for submitter in range(many):
        play.submit(5, submitter=submitter)
    seen: Counter[int] = Counter()
    for _ in range(2 * many):
        run = next(iter(play.core.state.runs.values()))
        seen[run.span.open_task.task.submitter] += 1
        end_first(play)
    assert set(seen) == set(range(many))
    assert max(seen.values()) <= 3


@pytest.mark.parametrize("shared", [None, Cores(1)], ids=["alike", "shared"])
def test_workers_make_way_for_who_has_no_share_yet(shared: Any) -> None:
    play = play_with(shared, slots=1)
    play.submit(1, submitter=1)
    end_first(play, seconds=1e-3)
    play.submit(1000, submitter=1)
    first, second = play.core.state.runs.values()
    play.submit(5, submitter=2)
    assert [message.runs for message in play.sent(Recall)] == [[first.number, second.number]]
    play.submit(5, submitter=3)
    assert play.sent(Recall) == [], "just now they were asked"
    play.say(Returned([second.number]))
    play.say(Shortened(first.number, 1))
    end_first(play, seconds=1e-3)
    assert set(running(play)) - {1}


def test_calls_that_waited_at_their_worker_are_not_late_for_it() -> None:
    play = play_with(None, slots=1)
    play.submit(1)
    end_first(play, seconds=0.01)
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


def test_a_submitter_without_tasks_is_forgotten() -> None:
    play = play_with(None)
    play.submit(1, submitter=7)
    assert set(play.core.state.submitters) == {7}
    end_first(play)
    assert not play.core.state.submitters
