"""Calls that are taken back before they begin, played on the core."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from gridengine.dispatcher.core.events import Send
from gridengine.errors import Cancelled, WorkerLost
from gridengine.requests import CallsFinished, CallsRecalled, TasksCancelled
from gridengine.resources import Cores
from gridengine.wire.messages import (
    CANCELLED,
    CRASH,
    RETRYABLE,
    VALUES,
    Cancel,
    Crashed,
    Goodbye,
    Message,
    Recall,
    Result,
    Results,
    Returned,
    Shortened,
)
from tests.support.core_play import Play, chunk


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
    play.play(CallsRecalled([(2, 1, 2)]))
    assert recalled(play) == [(2, 1, 2)]
    assert play.core.state.calls_waiting == 3


def test_all_that_waits_of_several_tasks_is_taken_back(play: Play) -> None:
    play.submit(3, 2)
    play.play(CallsRecalled([(1, 0, 2), (2, 0, 3), (3, 0, 2)]))
    assert recalled(play) == [(1, 1, 2), (2, 0, 3), (3, 0, 2)]
    assert play.core.state.calls_waiting == 0


def test_a_worker_gives_back_calls_that_have_not_begun() -> None:
    play = Play()
    play.learn(seconds=1e-3)
    task, *_ = play.submit(60)
    first, second = play.assigned()
    play.play(CallsRecalled([(task.id, 0, 60)]))
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
    play.play(CallsRecalled([(task.id, second.start + 4, second.start + 5)]))
    assert [message.runs for message in play.sent(Recall)] == [[first.run, second.run]]
    play.say(Returned([second.run]))
    assert recalled(play) == [(task.id, second.start + 4, second.start + 5)]
    one, *_ = play.assigned()
    assert (one.start, one.stop) == (second.start, second.start + 4)


def test_a_call_that_is_to_be_tried_again_is_not_taken_back(play: Play) -> None:
    one = next(iter(play.core.state.runs.values()))
    play.submit(1)
    play.play(CallsRecalled([(1, 0, 2)]))
    assignment = one.number
    play.say(Crashed(assignment, 0, -11, CRASH, 1), b"", b"")
    play.play(CallsRecalled([(1, 0, 2)]))
    assert recalled(play) == []


# -------------------------------------------------------------------- calls that are cancelled


def cancelled(play: Play) -> list[tuple[int, int, int]]:
    """Return what was settled as cancelled: the task, the first call and the one after the last."""
    ended = [one for one in play.seen(CallsFinished) if isinstance(one.error, Cancelled)]
    assert not any(one.recalled for one in ended)
    return [(one.task, one.start, one.stop) for one in ended]


def test_one_call_of_a_task_that_waits_is_cancelled(play: Play) -> None:
    play.submit(5)
    play.play(TasksCancelled([], 9, [(2, 3, 4)]))
    assert cancelled(play) == [(2, 3, 4)]
    assert play.seen(CallsFinished)[0].exitcode == -9
    assert play.core.state.calls_waiting == 5


def test_a_call_that_waits_for_another_attempt_is_cancelled(play: Play) -> None:
    run = next(iter(play.core.state.runs))
    play.submit(1, submitter=2)
    play.say(Crashed(run, 0, -11, CRASH, 1), b"", b"")
    play.play(TasksCancelled([], 9, [(1, 0, 1)]))
    assert cancelled(play) == [(1, 0, 1)]


def batch() -> tuple[Play, int, int]:
    """Return a core whose worker has two runs of quick calls, and their numbers."""
    play = Play()
    play.learn(seconds=1e-3)
    play.submit(60, retries=1)
    first, second = play.assigned()
    return play, first.run, second.run


def test_cancelling_one_call_of_a_waiting_run_runs_the_others_again() -> None:
    play, _, run = batch()
    span = play.core.state.runs[run].span
    index = span.start + 2
    play.play(TasksCancelled([], 9, [(2, index, index + 1)]))
    assert [message.runs for message in play.sent(Cancel)] == [[run]]
    play.say(Crashed(run, -1, -9, CANCELLED, 0), b"", b"")
    assert cancelled(play) == [(2, index, index + 1)]
    one, *_ = play.assigned()
    assert (one.start, one.stop, one.attempt) == (span.start, index, 1)


def test_cancelling_one_call_of_a_run_under_way_runs_the_others_again_uncharged() -> None:
    play, run, _ = batch()
    play.play(TasksCancelled([], 9, [(2, 4, 5)]))
    play.say(Crashed(run, 1, -9, CANCELLED, 1), b"out", b"")
    assert cancelled(play) == [(2, 4, 5)]
    waiting = [span for queue in play.core.state.queues.values() for span in queue.waiting]
    held = [*waiting, *(run.rest for run in play.core.state.runs.values())]
    attempts = {call: one.attempt for one in held for call in range(one.start, one.stop)}
    assert attempts == {call: 1 for call in range(60) if call != 4}


def test_a_cancelled_call_that_ended_all_the_same_has_its_value() -> None:
    play, run, _ = batch()
    span = play.core.state.runs[run].span
    play.play(TasksCancelled([], 9, [(2, 0, 1)]))
    play.say(Results([Result(run, 0, span.stop, VALUES, 1e-3)]), b"values")
    assert [one.error for one in play.seen(CallsFinished)] == [None]


def test_a_cancelled_call_is_not_tried_again_when_its_worker_is_lost() -> None:
    play, _, _ = batch()
    play.play(TasksCancelled([], 9, [(2, 0, 1)]))
    play.say(Goodbye("bye"))
    assert (2, 0, 1) in cancelled(play)
    assert play.core.state.calls_waiting == 59


def test_a_cancelled_task_that_waits_never_runs_and_others_do() -> None:
    play = Play()
    play.submit(3, 1)
    play.play(TasksCancelled([1], signal.SIGTERM))
    [settled] = play.seen(CallsFinished)
    assert (type(settled.error), settled.stop, settled.exitcode) == (Cancelled, 3, -signal.SIGTERM)
    play.hello()
    assert [one.task for one in play.assigned()] == [2]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda run: Crashed(run, 0, -15, CANCELLED, 1), id="it was at it"),
        pytest.param(lambda run: Crashed(run, -1, -15, CANCELLED, 1), id="it had not begun"),
        pytest.param(lambda run: Crashed(run, 0, -15, CRASH, 1), id="its process died"),
        pytest.param(lambda run: Returned([run]), id="it gives the call back"),
        pytest.param(lambda run: Results([Result(run, 0, 1, RETRYABLE, 0.1)]), id="it raised"),
    ],
)
def test_a_cancelled_call_settles_and_is_not_retried_whatever_its_worker_says(
    answer: Callable[[int], Message],
) -> None:
    play = Play()
    one = play.running()
    play.play(TasksCancelled([1], signal.SIGTERM))
    play.say(answer(one.run), b"out", b"err")
    [settled] = play.seen(CallsFinished)
    assert play.assigned() == []
    outcome = type(settled.error), settled.exitcode, settled.payload
    assert outcome in [(Cancelled, -15, None), (type(None), 1, (b"out",))]


def test_a_cancelled_call_whose_worker_is_lost_settles_with_the_last_signal_asked_for() -> None:
    play = Play()
    one = play.running()
    for number in (signal.SIGTERM, signal.SIGKILL):
        play.play(TasksCancelled([1], number))
        assert play.effects == [Send(b"w", Cancel([one.run], number))]
    play.later(70)
    [settled] = play.seen(CallsFinished)
    assert (type(settled.error), settled.exitcode) == (Cancelled, -signal.SIGKILL)


def test_cancelled_calls_of_a_lost_worker_are_cancelled() -> None:
    play = Play()
    one = chunk(play, 6, retries=0)
    play.play(TasksCancelled([], signal.SIGINT, [(one.task, 2, 4)]))
    play.later(1000)
    assert cancelled(play) == [(one.task, 2, 4)]
    lost = [event for event in play.seen(CallsFinished) if isinstance(event.error, WorkerLost)]
    assert sorted((event.start, event.stop) for event in lost) == [(0, 2), (4, 6), (6, 9)]


def test_settled_calls_are_neither_cancelled_nor_taken_back() -> None:
    play = Play()
    play.done(play.running())
    assert play.play(TasksCancelled([1, 99], signal.SIGTERM)) == []
    assert play.play(CallsRecalled([(1, 0, 2), (9, 0, 1)])) == []


def test_recalled_calls_are_not_cancelled_with_one_of_them() -> None:
    play, _, run = batch()
    span = play.core.state.runs[run].span
    play.play(CallsRecalled([(2, span.start, span.stop)]))
    play.play(TasksCancelled([], 9, [(2, span.start, span.start + 1)]))
    play.say(Returned([run]))
    assert recalled(play) == [(2, span.start + 1, span.stop)]
    assert [one.start for one in play.seen(CallsFinished) if not one.recalled] == [span.start]
