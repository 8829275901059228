"""Workers that are lost, silent, suspended, not needed or out of time, played on the core."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from gridengine.dispatcher.core import worker_lifecycle
from gridengine.dispatcher.core.events import (
    Closing,
    DrainHosts,
    Launch,
    Launched,
    Lost,
    Tick,
    Withdraw,
)
from gridengine.dispatcher.core.policy import spare_of
from gridengine.dispatcher.core.worker_lifecycle import FEW_WORKERS
from gridengine.errors import JobDeleted, TimeoutError, WorkerLost
from gridengine.requests import CallsFinished
from gridengine.resources import Memory
from gridengine.resources.demand import Demand
from gridengine.schedulers.launcher import Handle, WorkerStatus
from gridengine.wire.messages import Beat, Goodbye, Stop
from tests.support.core_play import (
    Play,
    attempts_to_come,
    calls,
    chunk,
    failing_starts,
    lost_for_good,
    two_demands,
)

HANDLE = Handle("41", "/runs/x/1.log")


def test_a_lost_worker_gives_its_tasks_back() -> None:
    play = Play(max_workers=1)
    play.running()
    play.later(60)
    assert play.seen(Lost) == []
    play.later(10)
    assert play.seen(Lost) == [Lost(b"w")]
    assert play.seen(Withdraw) == [Withdraw((HANDLE,))]
    assert play.seen(Launch) == [Launch(1, label="square")]
    assert play.core.state.calls_waiting == 1
    play.hello(b"v", pid=8)
    assert [one.attempt for one in play.assigned()] == [2]


def test_a_tick_looks_at_some_of_many_workers_and_a_few_ticks_at_all() -> None:
    play = Play(checked=False, max_workers=1200)
    for number in range(1200):
        play.hello(b"%d" % number, pid=number + 1)
    play.now += 70
    lost = [sum(isinstance(one, Lost) for one in play.play(Tick())) for _ in range(5)]
    assert lost[0] == FEW_WORKERS
    assert sum(lost) == 1200


def test_the_time_in_which_the_dispatcher_was_stopped_is_no_silence_of_its_workers() -> None:
    play = Play()
    play.running()
    play.later(5)
    play.now += 600
    play.play(Tick(late=600))
    assert play.seen(Lost) == []
    assert play.core.state.workers[b"w"].heard_at == play.now - 5
    play.later(70)
    assert play.seen(Lost) == [Lost(b"w")]


def test_a_worker_that_may_have_written_is_not_lost() -> None:
    play = Play()
    play.running()
    play.now += 600
    play.play(Tick(unread=590))
    assert play.seen(Lost) == []
    play.play(Tick(unread=500))
    assert play.seen(Lost) == [Lost(b"w")]


def test_a_leaving_worker_whose_results_may_have_come_is_not_sent_away() -> None:
    play = Play()
    play.running()
    state = play.core.state
    worker_lifecycle.stop(state, state.workers[b"w"])
    late = worker_lifecycle.LEAVE_SECONDS + 50
    play.now += late
    play.play(Tick(unread=late - 5))
    assert play.seen(Lost) == []
    play.play(Tick(unread=5))
    assert play.seen(Lost) == [Lost(b"w")]


def test_calls_of_a_lost_worker_wait_in_order_and_earlier_results_are_kept() -> None:
    play = Play()
    one = chunk(play)
    play.values(one, 0, 4)
    play.later(70)
    assert list(attempts_to_come(play, below=12)) == list(range(4, 12))


@pytest.mark.parametrize("word", [None, Goodbye("terminated"), Beat()])
def test_a_silent_worker_is_given_nothing_until_it_is_heard_again(
    word: Goodbye | Beat | None,
) -> None:
    play = Play(idle_seconds=100)
    play.learn(seconds=1.0)
    play.later(7)
    play.submit(1)
    if word is not None:
        assert play.assigned() == []
        play.say(word)
    assert calls(play.assigned()) == ([(2, 0, 1)] if word == Beat() else [])


def test_messages_that_an_ended_worker_sent_before_are_taken() -> None:
    play = Play()
    one = play.running()
    play.poll(HANDLE, WorkerStatus.ENDED)
    play.done(one)
    assert len(play.seen(CallsFinished)) == 1


def test_a_worker_that_the_scheduler_lost_sight_of_may_live_as_long_as_its_lease() -> None:
    play = Play()
    one = play.running()
    play.poll(HANDLE, WorkerStatus.FAILED, "its node failed", uncertain=True)
    play.later(50)
    assert play.seen(Lost) == []
    play.say(Beat())
    play.later(50)
    play.done(one)
    assert len(play.seen(CallsFinished)) == 1
    play.later(100)
    assert play.seen(Lost) == [Lost(b"w")]


@pytest.mark.parametrize(("deleted", "kind"), [(False, WorkerLost), (True, JobDeleted)])
def test_a_call_whose_workers_are_lost_fails_after_its_retries(
    deleted: bool, kind: type[WorkerLost]
) -> None:
    settled = lost_for_good(Play(), deleted=deleted)
    assert type(settled.error) is kind
    assert settled.exitcode == -signal.SIGKILL


def test_a_goodbye_charges_the_calls_under_way_and_no_others() -> None:
    play = Play()
    one = chunk(play)
    play.values(one, 0, 1)
    play.say(Goodbye("terminated"))
    assert play.seen(Lost) == [Lost(b"w")]
    assert attempts_to_come(play) == {1: 2, 2: 1, 3: 1, 4: 1, 5: 1}


def test_a_batch_that_has_brought_results_is_under_way_before_one_assigned_earlier() -> None:
    play = Play()
    play.submit(1)
    play.hello(slots=2)
    [one] = play.assigned()
    play.done(one, seconds=1e-3)
    play.submit(1000)
    first, second, third, fourth = play.assigned()
    play.done(second, seconds=0.1)
    play.values(fourth, fourth.start, fourth.start + 1)
    play.say(Goodbye("terminated"))
    attempts = attempts_to_come(play, below=1000)
    assert attempts[first.start] == attempts[fourth.start + 1] == 2
    assert attempts[third.start] == 1


def test_a_call_that_outlives_each_workers_wall_time_fails_in_the_end() -> None:
    play = Play(max_workers=1)
    play.submit(1, retries=1)
    for name in (b"a", b"b"):
        play.hello(name)
        play.say(Goodbye("walltime"), worker=name)
    assert type(play.seen(CallsFinished)[0].error) is WorkerLost


def terminated(retries: int = 0, **options: Any) -> Play:
    """A worker of a cluster that somebody ended in the second of five calls."""
    play = Play(pooled=True, **options)
    one = play.running(5, retries=retries)
    play.values(one, 0, 1)
    play.say(Goodbye("terminated", sorted(play.core.state.workers[b"w"].under_way())))
    return play


def test_the_scheduler_judges_the_end_of_a_worker_that_somebody_ended() -> None:
    play = terminated()
    assert play.effects == []
    play.poll(HANDLE, WorkerStatus.FAILED, "was cancelled", deleted=True)
    play.later(1)
    assert [type(settled.error) for settled in play.seen(CallsFinished)] == [JobDeleted]
    assert play.core.state.calls_waiting == 3


def test_calls_whose_worker_made_room_for_another_job_run_again_at_no_charge() -> None:
    play = terminated(retries=1)
    play.poll(HANDLE, WorkerStatus.FAILED, "was preempted", blameless=True)
    play.later(1)
    assert play.seen(CallsFinished) == []
    assert set(attempts_to_come(play).values()) == {1}


def test_a_call_that_may_run_only_once_fails_with_a_worker_that_made_room() -> None:
    play = terminated()
    play.poll(HANDLE, WorkerStatus.FAILED, "was preempted", blameless=True)
    play.later(1)
    [settled] = play.seen(CallsFinished)
    assert (settled.stop - settled.start, type(settled.error)) == (1, WorkerLost)
    assert "raise retries=" in str(settled.error)
    assert play.core.state.calls_waiting == 3


def test_single_run_calls_that_may_have_begun_do_not_run_again() -> None:
    for said in ([], [Goodbye("terminated")]):
        play = Play()
        one = chunk(play, retries=0)
        play.values(one, 0, 2)
        held = sum(run.rest.calls for run in play.core.state.runs.values())
        waiting = play.core.state.calls_waiting
        settled = [each for message in said for each in play.say(message)] or play.later(90)
        failed = [each for each in settled if isinstance(each, CallsFinished)]
        assert sum(each.stop - each.start for each in failed) == held
        assert play.core.state.calls_waiting == waiting


def test_single_run_calls_of_a_relieved_worker_go_on_to_their_end() -> None:
    play = Play(pooled=True, walltime=1000.0, max_workers=1)
    play.learn(1.0)
    play.submit(2, retries=0)
    [one, *_] = play.assigned()
    play.later(1000 - spare_of(1000.0), beats=[b"w"])
    assert play.sent(Stop)
    assert play.seen(CallsFinished) == []
    play.say(Goodbye("told to stop", [one.run]))
    [settled] = play.seen(CallsFinished)
    assert (settled.start, settled.stop) == (0, 1)
    assert type(settled.error) is TimeoutError
    assert "had to leave: its walltime was nearly over" in str(settled.error)
    assert play.core.state.calls_waiting == 1


def test_a_worker_that_was_ended_is_waited_for_no_longer_than_for_one_that_leaves() -> None:
    play = terminated()
    play.later(5)
    assert play.seen(Lost) == []
    play.later(6)
    assert play.seen(Withdraw) == [Withdraw((HANDLE,))]
    assert [type(settled.error) for settled in play.seen(CallsFinished)] == [WorkerLost]


def test_a_closing_dispatcher_does_not_wait_for_the_scheduler_s_word() -> None:
    play = terminated()
    play.play(Closing())
    assert play.seen(Lost) == [Lost(b"w")]
    assert play.core.state.workers == {}


def test_workers_that_make_room_before_they_start_are_no_failures() -> None:
    play = Play()
    play.submit(1)
    failing_starts(play, 9, blameless=True)
    assert play.seen(CallsFinished) == []
    assert play.core.state.calls_waiting == 1


def test_a_suspended_worker_is_given_nothing() -> None:
    play = Play(idle_seconds=100)
    play.learn(seconds=1.0)
    play.poll(HANDLE, WorkerStatus.SUSPENDED)
    play.later(1)
    play.submit(1)
    assert play.assigned() == []


def test_a_suspended_worker_is_not_dead_and_finishes_its_work() -> None:
    play = Play()
    one = play.running()
    play.poll(HANDLE, WorkerStatus.SUSPENDED)
    play.later(1000)
    play.later(1000)
    assert play.seen(Lost) == []
    play.poll(HANDLE, WorkerStatus.RUNNING)
    play.later(10)
    play.done(one)
    assert len(play.seen(CallsFinished)) == 1


@pytest.mark.parametrize("why", ["busy", "nobody waits for its place", "kept"])
def test_a_worker_is_not_stopped_while_it_is_of_use(why: str) -> None:
    play = Play(idle_seconds=5, pooled=why.startswith("nobody"), keeps_others=why == "kept")
    if why == "kept":
        play.hello()
    elif (one := play.running()) and why != "busy":
        play.done(one)
    for _ in range(2 if play.core.state.policy.pooled else 10):
        play.later(1.0, beats=[b"w"])
        assert play.sent(Stop) == []


def test_an_idle_worker_is_told_to_stop_and_when_it_stays_is_done_without() -> None:
    play = Play(idle_seconds=5, max_workers=1)
    play.learn(seconds=1.0)
    play.later(4, beats=[b"w"])
    assert play.sent(Stop) == []
    play.later(2, beats=[b"w"])
    assert play.sent(Stop) == [Stop()]
    play.submit(1)
    assert play.assigned() == []
    play.later(worker_lifecycle.LEAVE_SECONDS + 1, beats=[b"w"])
    assert play.seen(Lost) == [Lost(b"w")]
    assert play.seen(Withdraw) == [Withdraw((HANDLE,))]
    assert play.seen(Launch) == [Launch(1, label="square")]


@pytest.mark.parametrize("most", [10, 1])
def test_a_worker_with_nothing_to_do_leaves_where_calls_of_another_demand_wait_for_its_place(
    most: int,
) -> None:
    play = two_demands(max_workers=most)
    if most > 1:
        play.play(Launched([Handle("42", "/runs/x/2.log")], Demand(Memory(1))))
        play.later(0.3, beats=[b"w"])
        assert play.sent(Stop) == []
    play.later(0.6 if most == 1 else 0.3, beats=[b"w"])
    assert play.sent(Stop) == [Stop()]


@pytest.mark.parametrize("idle", [False, True])
def test_a_worker_whose_host_is_drained_finishes_its_calls_and_leaves(idle: bool) -> None:
    play = Play(idle_seconds=100)
    one = play.running(1 if idle else 3)
    if idle:
        play.done(one)
    play.play(DrainHosts(frozenset({"elsewhere"})))
    assert play.sent(Stop) == []
    play.play(DrainHosts(frozenset({"node-w"})))
    if not idle:
        assert play.sent(Stop) == []
        play.done(one)
    assert play.assigned() == []
    assert len(play.sent(Stop)) == 1


def test_a_worker_that_was_silent_while_its_host_is_drained_is_assigned_nothing() -> None:
    play = Play()
    play.running(3)
    play.play(DrainHosts(frozenset({"node-w"})))
    play.later(30)
    play.say(Beat())
    assert play.assigned() == []


RUNS, ENDED = WorkerStatus.RUNNING, WorkerStatus.FAILED
HOUR = 3600.0


def running(limit: float = HOUR, *, retries: int = 1) -> Play:
    """Have a worker, of which Slurm says when it ends, run a call."""
    play = Play(pooled=True)
    play.running(retries=retries)
    play.poll(HANDLE, RUNS, remaining_seconds=limit)
    return play


def stay(play: Play, seconds: float) -> None:
    play.later(seconds, beats=[b"w"])


def test_a_worker_leaves_before_the_site_ends_it() -> None:
    play = running()
    stay(play, HOUR - spare_of(HOUR) - 1)
    assert play.sent(Stop) == []
    stay(play, 1)
    assert play.sent(Stop) == [Stop()]


@pytest.mark.parametrize("told_first", [True, False])
def test_a_limit_from_the_start_of_a_job_counts_the_time_before_its_worker(
    told_first: bool,
) -> None:
    play = Play(pooled=True)
    play.submit(1)
    play.play(Launched([HANDLE]))
    if told_first:
        play.poll(HANDLE, RUNS, lasts_seconds=HOUR)
    play.hello(log=HANDLE.log, elapsed=600.0)
    stay(play, 60)
    play.poll(HANDLE, RUNS, lasts_seconds=HOUR, limited_by="h_rt=3600 of queue short.q")
    stay(play, HOUR - spare_of(HOUR) - 600 - 60 - 1)
    assert play.sent(Stop) == []
    stay(play, 1)
    assert play.sent(Stop) == [Stop()]


def test_the_end_of_a_worker_is_known_though_it_was_told_before_it_connected() -> None:
    play = Play(pooled=True)
    play.submit(1)
    play.play(Launched([HANDLE]))
    play.poll(HANDLE, RUNS, remaining_seconds=HOUR)
    play.hello(log=HANDLE.log)
    stay(play, HOUR - spare_of(HOUR))
    assert play.sent(Stop) == [Stop()]


def test_a_limit_that_was_raised_meanwhile_holds() -> None:
    play = running()
    play.poll(HANDLE, RUNS, remaining_seconds=2 * HOUR)
    stay(play, HOUR)
    assert play.sent(Stop) == []


def test_the_error_of_a_call_that_had_its_worker_s_whole_life_names_the_limit_and_its_source() -> (
    None
):
    play = running()
    play.poll(HANDLE, RUNS, remaining_seconds=HOUR, limited_by="h_rt=3600 of queue short.q")
    stay(play, HOUR - spare_of(HOUR))
    [settled] = play.seen(CallsFinished)
    assert type(settled.error) is TimeoutError
    assert "took longer than its worker could stay" in str(settled.error)
    assert (
        "the script sets no limit, so this is a default of the site's (h_rt=3600 of queue short.q)"
    ) in str(settled.error)
    assert "time= of the scheduler" in str(settled.error)


def begun_late(retries: int) -> Play:
    """Have the worker begin another call when half of its life is over."""
    play = Play(pooled=True)
    first = play.running(retries=retries)
    play.poll(HANDLE, RUNS, remaining_seconds=HOUR)
    stay(play, HOUR / 2)
    play.done(first)
    play.submit(1, retries=retries)
    return play


def test_a_call_that_a_leaving_worker_cuts_off_runs_again_at_no_charge() -> None:
    play = begun_late(1)
    stay(play, HOUR / 2 - spare_of(HOUR))
    assert play.seen(CallsFinished) == []
    assert set(attempts_to_come(play).values()) == {1}


@pytest.mark.parametrize(("retries", "errors"), [(1, []), (0, [TimeoutError])])
def test_a_call_that_the_batch_system_cut_off_runs_again_where_it_may(
    retries: int, errors: list[type[Exception]]
) -> None:
    play = begun_late(retries)
    stay(play, 4)
    play.poll(HANDLE, ENDED, "it reached its time limit", fault=TimeoutError)
    play.later(1)
    assert [type(one.error) for one in play.seen(CallsFinished)] == errors
    assert play.core.state.calls_waiting == retries


def test_a_call_that_was_all_that_a_worker_did_is_over_its_time() -> None:
    play = running()
    play.poll(HANDLE, ENDED, "it reached its time limit", fault=TimeoutError)
    play.later(1)
    [settled] = play.seen(CallsFinished)
    assert type(settled.error) is TimeoutError
