"""Time limits that the site sets, not the script: what the batch system says of a worker's end,
played on the core.
"""

from __future__ import annotations

import pytest

from gridengine.dispatcher.core.events import Launched
from gridengine.dispatcher.core.policy import spare_of
from gridengine.errors import TimeoutError
from gridengine.requests import CallsFinished
from gridengine.schedulers.launcher import Handle, WorkerStatus
from gridengine.wire.messages import Stop
from tests.support.core_play import Play, attempts_to_come

HANDLE = Handle("41", "/runs/x/1.log")
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
def test_a_limit_that_counts_from_the_start_of_a_job_counts_what_went_before_its_worker(
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


def test_a_call_that_had_all_of_a_worker_s_life_names_the_limit_and_who_set_it() -> None:
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
