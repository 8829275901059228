"""Whose turn it is, and tasks that wait as one."""

from __future__ import annotations

from typing import Any

import pytest

from gridengine.dispatcher.core import fair_queue
from gridengine.dispatcher.core.events import (
    ClientJoined,
    Rebalance,
    Restored,
    RestoredRun,
    Send,
    SubmittedAlike,
)
from gridengine.dispatcher.core.tasks import AlikeTasks, CallsFinished, Task
from gridengine.dispatcher.status_views import find_calls, status_of
from gridengine.errors import UNNUMBERED
from gridengine.wire.messages import NUMBER_BITS, Assign, Recall
from tests.support.core_play import SQUARE, Play, assignment_of
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
        owners.setdefault(id(run.batch), set()).add(getattr(run.span.open_task.task, option))
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


CLIENT = 5 << NUMBER_BITS
FIRST = CLIENT | 1020
"""Not all of them have the same first bits."""


def play_with(count: int, first: int = UNNUMBERED, workers: int = 0) -> Play:
    """Return a play in which a client has handed in tasks that are alike."""
    play = Play()
    for number in range(workers):
        play.hello(b"%d" % number, pid=number)
    play.play(ClientJoined(5))
    payloads = [b"calls %d" % place for place in range(count)]
    task = Task(FIRST, (), first=first, submitter=CLIENT)
    play.play(SubmittedAlike(SQUARE, AlikeTasks(task, list(payloads))))
    return play


def ended(play: Play) -> list[int]:
    return [one.task - FIRST for one in play.seen(CallsFinished)]


def test_only_those_are_open_whose_turn_has_come_and_each_has_its_own_payload() -> None:
    play = play_with(10, first=7, workers=2)
    state = play.core.state
    assert sorted(state.open_tasks) == [FIRST, FIRST + 1, FIRST + 2]  # and the one that is next
    assert (state.bundles.tasks, state.calls_waiting, state.task_count) == (7, 8, 10)
    sends = [one for one in play.seen(Send) if isinstance(one.message, Assign)]
    assert [list(one.buffers) for one in sends] == [[b"calls 0"], [b"calls 1"]]
    assert [one.first for one in play.assigned()] == [7, 8]


def test_bundled_calls_run_in_order_and_end_one_by_one() -> None:
    play, order = play_with(5, workers=1), []
    while play.core.state.runs:
        [one] = play.assigned()
        play.done(one, worker=b"0")
        order += ended(play)
    assert order == [0, 1, 2, 3, 4]
    assert not play.core.state.has_tasks
    assert not play.core.state.submitters


def test_later_submissions_come_behind_restored_calls() -> None:
    play = play_with(3)
    play.last_task = FIRST + 10
    [later] = play.submit(1, submitter=CLIENT)
    order = []
    play.hello()
    while play.core.state.runs:
        [one] = play.assigned()
        order.append(one.task)
        play.done(one)
    assert order == [FIRST, FIRST + 1, FIRST + 2, later.id]


def test_restored_calls_that_are_settled_or_assigned_do_not_wait() -> None:
    play = play_with(6)
    run = RestoredRun(9, b"w", FIRST + 1, 0, 1)
    play.play(Restored(runs=[run]))
    assert not play.core.state.has_any(range(FIRST + 6, FIRST + 9))
    waiting = [task for block in play.core.state.bundles for task in block.numbers]
    assert waiting == []
    assert play.core.state.calls_waiting == 6  # nobody has the run's worker: it waits again


def test_bundled_calls_are_counted_and_found_among_waiting_calls() -> None:
    play = play_with(6, first=100)
    state = play.core.state
    status = status_of(state, 0.0, play.now, most=10)
    assert (status.tasks, status.waiting) == (6, 6)
    [(one, index)] = find_calls(state, "104")
    assert (one.task.id, index) == (FIRST + 4, 0)
    [(one, index)] = find_calls(state, f"{FIRST + 2}.0")
    assert (one.task.id, index) == (FIRST + 2, 0)
    assert find_calls(state, "106") == []
