"""What the page always shows."""

from __future__ import annotations

import time

from msgspec.structs import replace

from gridengine.dispatcher.status_views import status_of
from gridengine.dispatcher.watch_messages import WatchAnswer
from gridengine.errors import ClusterError
from gridengine.page.overview import gone, overview
from gridengine.status.rows import LaunchStatus, Status
from gridengine.wire.messages import Measured, RunnerFigures
from tests.support.core_play import Play
from tests.support.watched import WHO


def test_progress_and_reasons_of_waiting_are_told() -> None:
    status = Status(
        done=3,
        failed=1,
        cancelled=4,
        running=2,
        waiting=1500,
        elapsed_seconds=120.0,
        left_seconds=0.0,
        statuses={"busy": 2},
        launches=[LaunchStatus("", queued=4), LaunchStatus("Cores(2)", queued=1)],
        worker_count=2,
        max_workers=1000,
    )
    told = overview(WatchAnswer(WHO, status, memory=48 * 1024**2), actions=True)
    assert (told.where, told.elapsed, told.left) == (
        "process 4242 on login1, SlurmScheduler",
        "02:00",
        "0.0 ms",
    )
    assert (told.total, told.calls["waiting"], told.actions) == (1510, 1500, True)
    assert told.workers == {"busy": 2, "queued": 5}
    assert told.facts["workers"] == "2 of 1,000"
    assert told.facts["dispatcher"] == "48 MB"
    assert told.facts["busy slots"] == "0 of 0"
    assert told.explanations


def test_processes_of_this_machine_are_counted_as_its_user_does_and_their_memory_is_added() -> None:
    play = Play(max_workers=1, slots=2)
    play.running(3)
    play.say(Measured(1.0, 2**20, [RunnerFigures(7, 0, 0, 2**20)]))
    status = status_of(play.core.state, 0.0, play.now, most=9)
    told = overview(WatchAnswer(WHO, status), actions=False)
    assert (told.facts["workers"], told.facts["busy slots"]) == ("1 of 2", "1 of 1")
    assert (told.facts["workers' memory"], told.memory, told.workers) == ("2 MB", 2**21, {})
    two = replace(status, worker_count=2)  # and of one of them no figures are sampled
    assert overview(WatchAnswer(WHO, two), actions=False).memory == 2**22


def test_nothing_is_estimated_of_a_run_that_has_just_begun() -> None:
    told = overview(WatchAnswer(WHO, Status()), actions=False)
    assert (told.left, told.total, told.gone) == ("", 0, "")


def test_an_ended_run_tells_its_end_and_offers_no_cancellation() -> None:
    status = Status(done=299, failed=1, elapsed_seconds=60.0, left_seconds=0.2)
    report = WatchAnswer(replace(WHO, since=time.mktime((2026, 11, 29, 3, 0, 0, 0, 0, -1))), status)
    told = overview(report, actions=True, is_report=True)
    assert (told.ended, told.left, told.gone) == ("03:01 on 2026-11-29", "", "")
    assert (told.calls["done"], told.calls["failed"]) == (299, 1)
    assert not told.actions
    assert "workers" not in told.facts
    assert overview(report, actions=True).ended == ""


def test_a_lost_run_is_told_with_its_name_and_the_reason() -> None:
    told = gone(WHO, ClusterError("it has ended", hint="start it"))
    assert (told.name, told.run, told.gone, told.calls) == (
        "sweep.py",
        WHO.run_id,
        "it has ended",
        {},
    )
