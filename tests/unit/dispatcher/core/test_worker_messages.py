"""What becomes of calls when workers tell of them, played on the core."""

from __future__ import annotations

import pytest

from gridengine.dispatcher.core import worker_messages, workers_and_queues
from gridengine.dispatcher.core.events import Lost, Withdraw
from gridengine.errors import Cancelled, OutOfMemory, TimeoutError, WorkerCrashed, WorkerLost
from gridengine.requests import CallsFinished, TaskBegan, TaskMessage
from gridengine.schedulers.launcher import Handle
from gridengine.wire.messages import (
    CANCELLED,
    CRASH,
    MEMORY,
    PROCESS_LEFT,
    RAISED,
    RETRYABLE,
    TIMEOUT,
    VALUES,
    Assign,
    Beat,
    Crashed,
    Message,
    Pushed,
    Refuse,
    Result,
    Results,
    Returned,
    Started,
    Welcome,
)
from tests.support.core_play import Play, attempts_to_come, calls, chunk, exhausted


def test_values_are_settled_as_they_came() -> None:
    play = Play()
    play.done(play.running())
    assert play.seen(CallsFinished) == [
        CallsFinished(1, 0, 1, (b"values",), last=True, seconds=1.0)
    ]


def test_a_raised_exception_is_settled_as_such_and_not_retried() -> None:
    play = Play()
    one = play.running()
    play.say(Results([Result(one.run, 0, 1, RAISED, 0.1)]), b"exception")
    [settled] = play.seen(CallsFinished)
    [attempt] = settled.attempts
    assert settled == CallsFinished(
        1,
        0,
        1,
        (b"exception",),
        raised=True,
        exitcode=1,
        attempts=(attempt,),
        last=True,
        seconds=0.1,
    )
    assert (attempt.host, attempt.job) == ("node-w", "41")


def test_an_exception_to_be_retried_is_retried_and_arrives_itself_in_the_end() -> None:
    play = Play()
    one = play.running(retries=1)
    play.say(Results([Result(one.run, 0, 1, RETRYABLE, 0.1)]), b"exception")
    assert play.seen(CallsFinished) == []
    [again] = play.assigned()
    assert again.attempt == 2
    play.say(Results([Result(again.run, 0, 1, RETRYABLE, 0.1)]), b"exception")
    [settled] = play.seen(CallsFinished)
    assert (settled.payload, settled.raised) == ((b"exception",), True)


def test_a_retry_in_the_middle_of_a_run_leaves_the_rest_of_it_running() -> None:
    play = Play()
    play.learn(seconds=1e-3)
    play.submit(8)
    one = play.assigned()[0]
    play.say(
        Results([Result(one.run, 0, 1, VALUES, 0.1), Result(one.run, 1, 2, RETRYABLE, 0.1)]),
        b"values",
        b"exception",
    )
    assert play.values(one, 2, one.stop)[0] == CallsFinished(
        2, 2, one.stop, (b"values",), seconds=1.0
    )


def test_a_watched_calls_output_is_settled_with_it() -> None:
    play = Play()
    one = play.running(watched=True)
    play.say(Results([Result(one.run, 0, 1, VALUES, 0.1, 3, True)]), b"values", b"out", b"err")
    [settled] = play.seen(CallsFinished)
    assert (settled.payload, settled.stdout, settled.stderr) == ([b"values"], b"out", b"err")


def test_the_start_and_the_pushed_values_of_a_watched_task_are_told() -> None:
    play = Play()
    one = play.running(watched=True)
    assert play.say(Started(one.run, 99)) == [TaskBegan(1, 99, "node-w", 1)]
    assert play.say(Pushed(one.run), b"value") == [TaskMessage(1, (b"value",))]
    assert play.hello() == [], "a repeated greeting"


@pytest.mark.parametrize(
    "message",
    [
        Results([Result(99, 0, 1, VALUES, 0.1)]),
        Crashed(99, 0, -11, CRASH, 1),
        Returned([99]),
        Started(99, 1),
        Pushed(99),
        Welcome(),
    ],
)
def test_an_answer_to_no_run_is_dropped(message: Message) -> None:
    play = Play()
    play.running()
    assert play.say(message, b"", b"") == []


def test_a_late_answer_of_an_earlier_attempt_is_dropped() -> None:
    play = Play()
    one = play.running()
    play.crash(one, 0)
    assert play.done(one) == []


def test_a_word_of_an_unknown_worker_has_its_connection_forgotten() -> None:
    assert Play().say(Beat(), worker=b"who") == [Lost(b"who")]


@pytest.mark.parametrize(
    ("start", "stop", "status", "seconds", "buffers", "output"),
    [
        (1, 2, VALUES, 0.1, 1, False),
        (0, 9, VALUES, 0.1, 1, False),
        (0, 1, 7, 0.1, 1, False),
        (0, 1, VALUES, float("nan"), 1, False),
        (0, 1, VALUES, float("inf"), 1, False),
        (0, 1, VALUES, 0.1, 0, False),
        (0, 1, VALUES, 0.1, 2, True),
    ],
)
def test_a_worker_whose_answer_does_not_fit_is_let_go_and_its_calls_run_elsewhere(
    start: int, stop: int, status: int, seconds: float, buffers: int, output: bool
) -> None:
    play = Play()
    one = play.running()
    play.hello(b"v", pid=8)
    play.say(
        Results([Result(one.run, start, stop, status, seconds, buffers, output)]), *[b"x"] * buffers
    )
    assert len(play.sent(Refuse, b"w")) == 1
    assert play.seen(Lost) == [Lost(b"w")]
    assert calls(play.assigned(b"v")) == [(1, 0, 1)]


def test_an_exception_is_of_one_call() -> None:
    play = Play()
    play.learn(seconds=1e-3)
    play.submit(8)
    one, *_ = play.assigned()
    play.say(Results([Result(one.run, 0, 2, RAISED, 0.1)]), b"exception")
    assert play.seen(Lost) == [Lost(b"w")]


@pytest.mark.parametrize(("index", "reason"), [(5, CRASH), (-2, CRASH), (0, "boredom")])
def test_a_worker_that_tells_of_an_impossible_crash_is_let_go(index: int, reason: str) -> None:
    play = Play()
    play.crash(play.running(), index, reason)
    assert play.seen(Lost) == [Lost(b"w")]


@pytest.mark.parametrize("done", [0, 2])
def test_a_crash_charges_the_culprit_only_and_results_before_are_kept(done: int) -> None:
    play = Play()
    one = chunk(play)
    if done:
        play.values(one, 0, done)
    play.crash(one, 2)
    left = {0: 1, 1: 1, 2: 2, 3: 1, 4: 1, 5: 1}
    assert attempts_to_come(play) == {call: left[call] for call in range(done, 6)}


def test_the_rest_of_a_batch_is_returned_uncharged() -> None:
    play = Play()
    play.learn(seconds=workers_and_queues.BATCH_SECONDS / 3)
    play.submit(*[1] * 10)
    first, second, third = play.sent(Assign)[0].assignments
    play.crash(first, 0)
    play.say(Returned([second.run, third.run]))
    assert {one.attempt for one in play.assigned()} == {1}


def test_a_call_that_crashes_each_time_fails_after_its_retries_and_has_its_attempts() -> None:
    settled = exhausted(Play())
    assert type(settled.error) is WorkerCrashed
    assert "that Python crashes too" in str(settled.error)
    assert (settled.exitcode, settled.stdout, settled.stderr) == (-11, b"out", b"err")
    assert settled.last
    assert [
        (one.host, one.job, one.exitcode, one.ended - one.started) for one in settled.attempts
    ] == [("node-w", "41", -11, 1.5)] * 3


def test_a_call_that_succeeds_at_last_has_the_attempts_before() -> None:
    play = Play()
    one = play.running()
    play.crash(one, 0)
    [again] = play.assigned()
    play.done(again)
    [settled] = play.seen(CallsFinished)
    assert (settled.error, len(settled.attempts)) == (None, 1)


def test_calls_that_may_run_only_once_and_whose_results_are_lost_have_failed() -> None:
    play = Play()
    one = chunk(play, retries=0)
    assert one.once
    play.values(one, 0, 1)
    play.crash(one, 3)
    settled = play.seen(CallsFinished)
    assert sorted((each.start, each.stop) for each in settled) == [(1, 3), (3, 4)]
    assert {type(each.error) for each in settled} == {WorkerCrashed}
    assert {call for call in attempts_to_come(play) if call < 6} == {4, 5}


def test_a_call_that_may_run_only_once_is_not_run_again_for_the_sake_of_another() -> None:
    play = Play()
    one = chunk(play, retries=0)
    play.values(one, 0, 1)
    play.crash(one, 1, CANCELLED, exitcode=-15)
    [settled] = play.seen(CallsFinished)
    assert (settled.start, settled.stop, type(settled.error)) == (1, 2, Cancelled)


def test_the_error_of_a_crash_names_the_step_of_calls_that_were_fused_into_one() -> None:
    play = Play()
    one = play.running(retries=0)
    play.say(Crashed(one.run, 0, -11, CRASH, 1, step=2), b"", b"")
    [settled] = play.seen(CallsFinished)
    assert isinstance(settled.error, WorkerCrashed)
    assert settled.error.step == 2


def test_going_over_the_time_is_never_retried() -> None:
    play = Play()
    play.crash(play.running(timeout=2.5), 0, TIMEOUT, exitcode=-15)
    [settled] = play.seen(CallsFinished)
    assert type(settled.error) is TimeoutError
    assert "limit of 2.5 s" in str(settled.error)


def test_going_over_the_memory_limit_each_time_is_out_of_memory() -> None:
    assert type(exhausted(Play(), MEMORY).error) is OutOfMemory


def test_the_peak_of_memory_is_told() -> None:
    play = Play()
    one = play.running(retries=0)
    play.say(Crashed(one.run, 0, -9, MEMORY, 1, 2_684_354_560), b"", b"")
    assert "2.50 GB" in str(play.seen(CallsFinished)[0].error)


def test_a_worker_whose_runners_cannot_run_is_let_go_after_a_few_tries() -> None:
    play = Play()
    one = play.running()
    for _ in range(worker_messages.MOST_FRUITLESS):
        play.say(Returned([one.run]))
        [one] = play.assigned()
    play.say(Returned([one.run]))
    assert play.seen(Lost) == [Lost(b"w")]
    assert play.seen(Withdraw) == [Withdraw((Handle("41", "/runs/x/1.log"),))]


def test_processes_that_have_made_all_their_calls_are_no_fault_of_their_worker() -> None:
    play = Play()
    one = play.running(retries=0)
    for _ in range(2 * worker_messages.MOST_FRUITLESS):
        play.say(Returned([one.run], PROCESS_LEFT))
        [one] = play.assigned()
    assert b"w" in play.core.state.workers
    assert one.attempt == 1


def test_workers_that_can_run_nothing_fail_the_calls_in_the_end() -> None:
    play = Play(max_workers=1)
    one = play.running(retries=1)
    for attempt in range(2):
        for _ in range(worker_messages.MOST_FRUITLESS + 1):
            assert one.attempt == attempt + 1
            play.say(
                Returned([one.run], "no process could be started: too many"),
                worker=b"wv"[attempt : attempt + 1],
            )
            one = (*play.assigned(), one)[0]
        if not attempt:
            play.hello(b"v", pid=8)
            [one] = play.assigned()
    error = play.seen(CallsFinished)[0].error
    assert type(error) is WorkerLost
    assert "could run nothing: no process could be started: too many" in str(error)


def test_a_successful_call_in_between_forgives_returned_calls() -> None:
    play = Play()
    one = play.running(20)
    for _ in range(2 * worker_messages.MOST_FRUITLESS):
        play.say(Returned([one.run]))
        play.done(play.assigned()[0])
        one, *_ = play.assigned()
    assert b"w" in play.core.state.workers
