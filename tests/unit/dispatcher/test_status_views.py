"""What a core tells of itself to who watches it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gridengine.dispatcher.core.events import Explained, Launched
from gridengine.dispatcher.core.state import MOST_FAILURES, MOST_FUNCTIONS, OTHER_FUNCTIONS
from gridengine.dispatcher.status_views import call_status, find_calls, status_of
from gridengine.requests import TasksCancelled
from gridengine.resources import Memory
from gridengine.resources.demand import Demand
from gridengine.schedulers.launcher import Handle, WorkerStatus
from gridengine.status.figures import MOST_SAMPLED, FunctionCounts
from gridengine.status.rows import Status
from gridengine.wire.messages import RAISED, Measured, Result, Results, RunnerFigures
from tests.support.core_play import CUBE, Play, function


def told(play: Play, most: int = 100) -> Status:
    return status_of(play.core.state, 100.0, play.now, most=most)


def test_calls_are_counted_by_the_names_of_their_functions() -> None:
    play = Play()
    one = play.running(2)
    play.done(one, seconds=2.0)
    [one] = play.assigned()
    play.say(Results([Result(one.run, 1, 2, RAISED, 4.0)]), b"exception")
    [square] = told(play).functions
    assert (square.name, square.done, square.failed) == ("square", 1, 1)
    assert square.mean_seconds == 3.0


def test_functions_beyond_the_limit_are_counted_together() -> None:
    play = Play()
    for number in range(MOST_FUNCTIONS + 5):
        play.submit(1, function=function(number))
    play.play(TasksCancelled(range(1, MOST_FUNCTIONS + 6), 15))
    counts = {one.name: one.cancelled for one in told(play).functions}
    assert len(counts) == MOST_FUNCTIONS + 1
    assert counts[OTHER_FUNCTIONS] == 5


@pytest.mark.parametrize("seconds", [0.003, 0.5, 7.0, 3600.0])
def test_the_95th_percentile_is_known_to_a_tenth(seconds: float) -> None:
    for longer, expected in ((4, seconds), (6, 100 * seconds)):
        counts = FunctionCounts("f", calls=100)
        counts.note_seconds(seconds, 100 - longer)
        counts.note_seconds(100 * seconds, longer)
        assert counts.p95_seconds == pytest.approx(expected, rel=0.1)


def test_calls_of_which_it_was_not_noted_are_quick() -> None:
    assert FunctionCounts("f", calls=10).p95_seconds == pytest.approx(0.001)
    assert FunctionCounts("f").p95_seconds is None


def test_a_call_that_runs_is_told_with_its_place_and_since_when() -> None:
    play = Play()
    play.running(3, retries=4)
    play.later(5, beats=[b"w"])
    [run] = told(play).runs
    assert (run.call, run.host, run.job, run.seconds) == ("call 0 of square", "node-w", "41", 5.0)
    assert (run.attempt, run.attempts, run.calls) == (1, 5, 1)


def test_earlier_attempts_of_a_call_are_told_and_counted() -> None:
    play = Play()
    play.crash(play.running(1), 0)
    [run] = told(play).runs
    assert run.attempt == 2
    assert run.history == [
        "on node-w (cluster job 41), after 0.0 s: its process was killed by SIGSEGV"
    ]
    assert told(play).functions[0].retried == 1


def test_calls_queued_at_a_worker_are_not_told_as_running() -> None:
    play = Play()
    play.learn(0.01)
    play.submit(40)
    status = told(play)
    assert status.run_count == 2
    assert len(status.runs) == 1


def test_a_worker_is_told_with_its_calls() -> None:
    play = Play(idle_seconds=100)
    one = play.running()
    [worker] = told(play).workers
    assert (worker.host, worker.job, worker.phase, worker.running) == ("node-w", "41", "busy", 1)
    play.done(one)
    assert told(play).workers[0].phase == "idle"
    play.later(30)
    assert told(play).workers[0].phase == "silent"


def test_many_workers_are_told_by_an_even_sample_and_their_number() -> None:
    play = Play()
    for number in range(100):
        play.hello(b"%03d" % number, pid=number)
    status = told(play, most=10)
    assert status.worker_count == 100
    assert [one.pid for one in status.workers] == list(range(0, 100, 10))


def test_a_queued_worker_s_reason_is_told_in_the_batch_systems_words() -> None:
    play = Play(pooled=True)
    play.submit(4, demand=Demand(Memory(200)))
    handle = Handle("41", "/runs/x/1.log")
    play.play(Launched([handle], Demand(Memory(200))))
    play.poll(handle, WorkerStatus.QUEUED)
    play.now += 20
    play.play(Explained(handle, "the queue is closed"))
    told_of = {one.request: one for one in told(play).launches}["Memory(200)"]
    assert (told_of.queued, told_of.starting, told_of.workers) == (1, 0, 0)
    assert (told_of.job, told_of.job_state, told_of.job_seconds) == ("41", "queued", 20.0)
    assert told_of.reason == "the queue is closed"
    assert told_of.waited_seconds == 20.0
    queue = {one.request: one for one in told(play).queues}["Memory(200)"]
    assert (queue.waiting, queue.slots, queue.launches) == (4, 0, "Memory(200)")


def test_calls_that_have_failed_are_told_with_their_errors() -> None:
    play = Play()
    one = play.running(1, retries=0)
    play.now += 3
    play.crash(one, 0)
    play.now += 2
    [failure] = told(play).failures
    assert failure.error.startswith("WorkerCrashed: the process that ran call 0 of square")
    assert (failure.host, failure.job, failure.seconds, failure.seconds_ago) == (
        "node-w",
        "41",
        3.0,
        2.0,
    )


def test_a_call_that_was_cancelled_before_it_began_has_an_age() -> None:
    play = Play()
    play.submit(1)
    play.play(TasksCancelled([1], 15))
    play.now += 2
    [failure] = told(play).failures
    assert (failure.seconds_ago, failure.seconds, failure.attempts) == (2.0, None, 0)


def test_the_last_failures_are_kept() -> None:
    play = Play()
    count = MOST_FAILURES + 10
    play.submit(*[1] * count)
    play.play(TasksCancelled(range(1, count + 1), 15))
    assert len(told(play, most=1000).failures) == MOST_FAILURES
    assert (told(play).cancelled, told(play).failed) == (count, 0)


def test_the_time_left_follows_from_the_durations_of_calls() -> None:
    play = Play()
    assert told(play).left_seconds is None
    one = play.running(10)
    play.done(one, seconds=4.0)
    assert told(play).left_seconds == pytest.approx(4.0 * 8.5)


def found(play: Play, word: str) -> list[tuple[int, int, str]]:
    state = play.core.state
    return [
        (one.id, index, call_status(state, one, index, play.now).state)
        for one, index in find_calls(state, word)
    ]


def test_calls_are_found_by_number_id_and_name_and_are_told_with_their_state() -> None:
    play = Play()
    one = play.running(3)
    play.submit(1, name="reader", watched=True)
    assert found(play, "0") == [(1, 0, "running")]
    assert found(play, "1.2") == [(1, 2, "waiting")]
    assert found(play, "reader") == [(2, 0, "waiting")]
    assert found(play, "3") == found(play, "1.3") == found(play, "nobody") == []
    play.done(one)
    assert found(play, "0") == [(1, 0, "ended")]


def test_the_number_of_awaited_results_is_told() -> None:
    play = Play()
    play.submit(1, after=(7, 8))
    [(one, index)] = find_calls(play.core.state, "0")
    assert call_status(play.core.state, one, index, play.now).missing == 2
    assert told(play).blocked


def test_measurements_are_told_with_workers_calls_and_functions() -> None:
    play = Play()
    one = play.running(2)
    play.say(Measured(2.5, 1_000, [RunnerFigures(99, one.run, 0, 5_000)]))
    play.say(Measured(1.5, 1_000, [RunnerFigures(99, one.run, 0, 3_000)]))
    status = told(play)
    [worker], [run], [square] = status.workers, status.runs, status.functions
    assert (worker.load, worker.memory, worker.runners) == (1.5, 4_000, 1)
    assert (run.memory, square.peak_memory) == (3_000, 5_000)


def test_calls_of_a_function_wait_or_run_and_those_of_a_worker_run_or_are_queued_there() -> None:
    play = Play(slots=2)
    play.learn(seconds=0.01)
    play.submit(30)
    play.submit(1, function=CUBE, after=(7, 8))
    status = told(play)
    [worker] = status.workers
    assert worker.running == 1
    assert worker.running + worker.queued == status.running > 1
    assert {one.name: (one.waiting, one.running) for one in status.functions} == {
        "square": (30 - status.running, status.running),
        "cube": (1, 0),
    }


def test_processor_use_of_a_busy_worker_is_told() -> None:
    play = Play()
    one = play.running()
    assert told(play).workers[0].processor is None
    play.say(Measured(1.0, 1_000, [], processor=1.5, agent_processor=0.25))
    [worker] = told(play).workers
    assert (worker.processor, worker.agent_processor) == (1.5, 0.25)
    play.done(one)
    [worker] = told(play).workers
    assert (worker.processor, worker.agent_processor) == (0.0, 0.0)
    play.submit()
    play.say(Measured(1.0, 1_000))
    [worker] = told(play).workers
    assert (worker.processor, worker.agent_processor) == (None, None)


def test_figures_of_a_run_that_has_ended_are_dropped() -> None:
    play = Play()
    one = play.running(1)
    play.done(one)
    play.say(Measured(2.5, 1_000, [RunnerFigures(99, one.run, 0, 5_000)]))
    assert told(play).functions[0].peak_memory == 0


def test_an_even_sample_of_ended_calls_is_kept() -> None:
    play = Play(checked=False, idle_seconds=1000)
    one = play.running(MOST_SAMPLED * 3)
    for _ in range(MOST_SAMPLED * 3):
        play.now += 1
        play.done(one, seconds=1.0)
        if assigned := play.assigned():
            [one] = assigned
    sample = play.core.state.sample
    gaps = {later - at for (at, _), (later, _) in pairwise(sample.calls)}
    assert sample.every == 4
    assert MOST_SAMPLED / 2 <= len(sample.calls) < MOST_SAMPLED
    assert max(gaps) <= 2 * sample.every


def test_quick_calls_are_not_sampled() -> None:
    play = Play()
    play.done(play.running(1), seconds=0.0005)
    assert play.core.state.sample.calls == []


def test_a_process_that_grows_and_a_clock_that_differs_are_told() -> None:
    play = Play()
    one = play.running(30)
    for call in range(20):
        memory = (call + 1) * 100_000_000
        play.say(Measured(1.0, 1_000, [RunnerFigures(99, one.run, call, memory)], play.now + 1060))
    status = status_of(play.core.state, 100.0, play.now, most=5, epoch=1000.0)
    assert status.functions[0].grown_memory == (16 - 5) * 100_000_000
    assert status.workers[0].clock_ahead == pytest.approx(60)
    assert told(play).workers[0].clock_ahead is None


def test_only_the_named_calls_are_told() -> None:
    play = Play()
    one = play.running(2)
    host, worker = told(play).workers[0].host, told(play).workers[0].id
    for name in (host, worker, "square"):
        status = status_of(play.core.state, 100.0, play.now, most=5, names=[name])
        assert len(status.workers) == len(status.runs) == 1
    status = status_of(play.core.state, 100.0, play.now, most=5, names=["nosuch"])
    assert (list(status.workers), list(status.runs), status.worker_count) == ([], [], 1)
    assert one.run


def test_no_failure_is_told_when_none_is_wanted() -> None:
    play = Play()
    play.submit(3)
    play.play(TasksCancelled([1], 15))
    assert (len(told(play, 0).failures), len(told(play).failures)) == (0, 1)
