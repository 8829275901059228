"""Tasks that wait as one, played on the core: they are as others are."""

from __future__ import annotations

from gridengine.dispatcher.core.events import (
    ClientJoined,
    Restored,
    RestoredRun,
    Send,
    SubmittedAlike,
)
from gridengine.dispatcher.core.status_views import find_calls, status_of
from gridengine.dispatcher.core.tasks import AlikeTasks, CallsFinished, Task
from gridengine.errors import UNNUMBERED
from gridengine.wire.messages import NUMBER_BITS, Assign
from tests.support.core_play import SQUARE, Play

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
    assert (state.blocks.tasks, state.calls_waiting, state.task_count) == (7, 8, 10)
    sends = [one for one in play.seen(Send) if isinstance(one.message, Assign)]
    assert [list(one.buffers) for one in sends] == [[b"calls 0"], [b"calls 1"]]
    assert [one.first for one in play.assigned()] == [7, 8]


def test_they_run_in_their_order_and_each_ends_by_itself() -> None:
    play, order = play_with(5, workers=1), []
    while play.core.state.runs:
        [one] = play.assigned()
        play.done(one, worker=b"0")
        order += ended(play)
    assert order == [0, 1, 2, 3, 4]
    assert not play.core.state.has_tasks
    assert not play.core.state.submitters


def test_what_is_submitted_later_comes_behind_them() -> None:
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


def test_what_a_dispatcher_before_had_settled_or_assigned_of_them_does_not_wait() -> None:
    play = play_with(6)
    run = RestoredRun(9, b"w", FIRST + 1, 0, 1)
    play.play(Restored(runs=[run]))
    assert not play.core.state.has_any(range(FIRST + 6, FIRST + 9))
    waiting = [task for block in play.core.state.blocks for task in block.numbers]
    assert waiting == []
    assert play.core.state.calls_waiting == 6  # nobody has the run's worker: it waits again


def test_they_are_counted_and_found_among_what_waits() -> None:
    play = play_with(6, first=100)
    state = play.core.state
    status = status_of(state, 0.0, play.now, most=10)
    assert (status.tasks, status.waiting) == (6, 6)
    [(one, index)] = find_calls(state, "104")
    assert (one.task.id, index) == (FIRST + 4, 0)
    [(one, index)] = find_calls(state, f"{FIRST + 2}.0")
    assert (one.task.id, index) == (FIRST + 2, 0)
    assert find_calls(state, "106") == []
