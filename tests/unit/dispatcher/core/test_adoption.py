"""A core that is told what a dispatcher before it has left, and workers that come back to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gridengine.dispatcher.core.events import (
    Closing,
    Grant,
    Launched,
    Lost,
    Restored,
    RestoredRun,
    RestoredWorker,
    Warn,
    Withdraw,
)
from gridengine.errors import WorkerLost
from gridengine.requests import CallsFinished, Submitted, TasksCancelled
from gridengine.resources import Cores
from gridengine.resources.demand import Demand
from gridengine.schedulers.launcher import Handle, WorkerStatus
from gridengine.wire.messages import (
    NUMBER_BITS,
    VALUES,
    VERSION,
    Assign,
    Cancel,
    Define,
    Forget,
    Held,
    HeldBatch,
    HeldRun,
    Hello,
    Refuse,
    Release,
    Result,
    Results,
    Stop,
    Welcome,
)
from tests.support.core_play import SQUARE, Play, attempts_to_come, calls
from tests.support.tasks import make_task

HELLO = Hello(VERSION, "1", "3.11", "run", "node-w", 7, 1, "/runs/x/1.log")
OTHER = Hello(VERSION, "1", "3.11", "run", "node-v", 8, 1, "")
HANDLE = Handle("41", "/runs/x/1.log")
EPOCH = 2


def restored(
    *runs: RestoredRun,
    count: int = 10,
    settled: Sequence[tuple[int, int]] = (),
    policy: dict[str, Any] | None = None,
    launched: Sequence[Launched] = (),
    **options: Any,
) -> Play:
    """A core that goes on with one task, of which the worker `w` had these runs."""
    play = Play(epoch=EPOCH, **(policy or {}))
    task = make_task(1, (b"calls",), count, **options)
    workers = [RestoredWorker(b"w", HELLO), RestoredWorker(b"v", OTHER)]
    play.play(
        Restored(
            [Submitted(SQUARE, [task])], {1: settled} if settled else {}, runs, workers, launched
        )
    )
    return play


def a_run(start: int = 0, stop: int = 10, number: int = 5, **other: Any) -> RestoredRun:
    return RestoredRun(number, b"w", 1, start, stop, **other)


def back(
    play: Play, *runs: HeldRun, allocation: int = 0, taken: int = 1, **held: Any
) -> list[HeldRun]:
    """The worker comes back with these runs."""
    play.hello(
        log=HELLO.log,
        held=Held([HeldBatch(runs, allocation)] if runs else [], taken=taken, **held),
    )
    return list(runs)


def answer(play: Play, start: int, stop: int, number: int = 5) -> list[CallsFinished]:
    play.say(Results([Result(number, start, stop, VALUES, 1.0)]), b"values")
    return play.seen(CallsFinished)


def ends(settled: Sequence[CallsFinished]) -> list[tuple[int, int, int]]:
    return [(one.task, one.start, one.stop) for one in settled]


def test_calls_that_a_worker_may_be_at_are_assigned_to_nobody_else() -> None:
    play = restored(a_run(2, 6))
    play.hello(b"other", pid=8)
    assigned = calls(play.assigned(b"other"))
    while play.assigned(b"other"):
        [one] = play.assigned(b"other")
        play.done(one, worker=b"other")
        assigned += calls(play.assigned(b"other"))
    covered = {call for _, start, stop in assigned for call in range(start, stop)}
    assert covered == {0, 1, 6, 7, 8, 9}


def test_calls_of_adopted_workers_count_in_their_clients_share() -> None:
    play = restored(a_run(0, 2), a_run(2, 4, number=6))
    own = play.core.state.own
    assert own.share == own.load > 0


def test_settled_calls_are_not_run_again() -> None:
    play = restored(settled=[(0, 4), (5, 10)])
    assert play.core.state.own.unsettled == play.core.state.counts_of("square").unsettled == 1
    play.hello(b"other", pid=8)
    assert calls(play.assigned(b"other")) == [(1, 4, 5)]
    [one] = play.assigned(b"other")
    play.done(one, worker=b"other")
    [last] = play.seen(CallsFinished)
    assert last.last
    assert not play.core.state.open_tasks


def test_a_worker_that_comes_back_goes_on_with_its_run() -> None:
    play = restored(a_run())
    back(play, HeldRun(5, 1, 0, 10))
    assert play.sent(Welcome, b"w") == [Welcome(EPOCH)]
    assert not play.sent(Cancel)
    assert not play.assigned()
    [settled] = answer(play, 0, 10)
    assert settled.last
    assert not play.core.state.runs
    assert not play.core.state.open_tasks


def test_a_result_that_was_settled_before_is_dropped_when_it_comes_again() -> None:
    play = restored(a_run(), settled=[(0, 3)])
    back(play, HeldRun(5, 1, 0, 10))
    assert answer(play, 0, 3) == []
    assert ends(answer(play, 3, 10)) == [(1, 3, 10)]
    play = restored(settled=[(0, 9)])
    back(play, HeldRun(5, 1, 0, 9))
    assert play.sent(Cancel) == [Cancel([5], 9)]
    assert answer(play, 0, 9) == []


@pytest.mark.parametrize(("retries", "attempt"), [(2, 2), (0, 1)])
def test_calls_that_the_worker_was_not_given_wait_again_uncharged(
    retries: int, attempt: int
) -> None:
    play = restored(a_run(0, 1, attempt=attempt), count=1, retries=retries)
    back(play)
    assert [one.attempt for one in play.assigned(b"w")] == [attempt]
    assert play.core.state.retried == 0


@pytest.mark.parametrize("retries", [2, 0])
def test_a_worker_that_does_not_come_back_within_its_lease_is_lost(retries: int) -> None:
    policy = {"lease_seconds": 60.0, "beat_seconds": 2.0}
    play = restored(a_run(), retries=retries, policy=policy)
    play.later(63)
    assert not play.seen(Lost)
    play.later(2)
    assert play.seen(Lost) == [Lost(b"w"), Lost(b"v")]
    assert set(attempts_to_come(play, 10).values()) == ({2} if retries else set())
    assert {type(one.error) for one in play.seen(CallsFinished)} <= {WorkerLost}


def test_the_schedulers_word_that_a_worker_has_ended_counts_at_once() -> None:
    play = restored(a_run(), launched=[Launched([HANDLE])])
    play.poll(HANDLE, WorkerStatus.FAILED, "node failure")
    play.later(1)
    assert play.seen(Lost) == [Lost(b"w")]


def test_a_launched_worker_is_counted_and_recognised_by_its_log() -> None:
    play = restored(a_run(), launched=[Launched([HANDLE])], policy={"max_workers": 1})
    back(play, HeldRun(5, 1, 0, 10))
    [one] = play.core.state.launched_workers()
    assert one.handle == HANDLE
    assert one.worker == b"w"
    play.later(70)
    assert play.seen(Withdraw) == [Withdraw((HANDLE,))]


def test_an_unknown_worker_is_accepted_without_its_runs() -> None:
    play = restored(a_run())
    held = Held([HeldBatch([HeldRun(7, 3, 0, 2)], 4)], [4], [b"cube"], 9)
    play.hello(b"stranger", pid=9, held=held)
    assert play.sent(Cancel, b"stranger") == [Cancel([7], 9)]
    assert play.sent(Release, b"stranger") == [Release([4])]
    assert play.sent(Forget, b"stranger") == [Forget([b"cube"])]
    assert play.sent(Welcome, b"stranger")


def test_a_run_that_was_shortened_has_the_rest_assigned() -> None:
    play = restored(a_run())
    back(play, HeldRun(5, 1, 2, 6))
    waiting = attempts_to_come(play, 10)
    assert set(waiting) == {0, 1, 6, 7, 8, 9}
    assert set(waiting.values()) == {1}


def test_a_call_that_may_run_only_once_fails_when_its_result_was_lost() -> None:
    play = restored(a_run(), retries=0)
    back(play, HeldRun(5, 1, 2, 10))
    [settled] = play.seen(CallsFinished)
    assert (settled.start, settled.stop) == (0, 2)
    assert isinstance(settled.error, WorkerLost)


def test_calls_cancelled_meanwhile_are_ended_when_their_worker_is_back() -> None:
    play = restored(a_run())
    play.play(TasksCancelled([1], 15))
    back(play, HeldRun(5, 1, 0, 10))
    assert play.sent(Cancel) == [Cancel([5], 15)]


def test_a_worker_has_no_more_batches_than_slots_when_it_is_back() -> None:
    play = restored(a_run(0, 1), count=3)
    back(play, HeldRun(5, 1, 0, 1))
    assert not play.assigned(b"w")
    answer(play, 0, 1)
    assert calls(play.assigned(b"w")) == [(1, 1, 2)]


def test_the_slot_of_a_demand_goes_on_with_its_allocation() -> None:
    demand = Demand(Cores(2))
    play = restored(
        a_run(0, 1),
        count=2,
        demand=demand,
        policy={"pooled": True},
        launched=[Launched([HANDLE], demand)],
    )
    back(play, HeldRun(5, 1, 0, 1), allocation=3, allocations=[2, 3])
    assert play.sent(Release) == [Release([2])]
    assert not play.seen(Grant)
    answer(play, 0, 1)
    [message] = play.sent(Assign)
    assert message.allocation == 3


def test_shared_requests_are_granted_when_all_adopted_runs_have_ended() -> None:
    demand = Demand(Cores(1))
    play = restored(a_run(0, 1), count=4, demand=demand, policy={"resources": Cores(2)})
    back(play, HeldRun(5, 1, 0, 1), allocation=3, allocations=[3])
    play.later(0.5, beats=[b"w"])
    assert not play.assigned()
    assert not play.sent(Release)
    answer(play, 0, 1)
    assert play.sent(Release) == [Release([3])]
    assert calls(play.assigned(b"w")) == [(1, 1, 2), (1, 2, 3)]


def test_functions_that_a_worker_has_are_not_sent_again() -> None:
    play = restored(a_run(0, 1), count=2)
    back(play, HeldRun(5, 1, 0, 1), defined=[b"square", b"cube"])
    assert play.sent(Forget) == [Forget([b"cube"])]
    answer(play, 0, 1)
    assert play.assigned(b"w")
    assert not play.sent(Define)


def test_a_worker_that_has_done_its_share_leaves() -> None:
    play = restored(a_run(0, 1), count=2, policy={"jobs_per_worker": 4})
    back(play, HeldRun(5, 1, 0, 1), taken=4)
    answer(play, 0, 1)
    assert play.sent(Stop, b"w")


def test_a_returning_worker_of_another_version_is_refused() -> None:
    play = restored(a_run())
    play.hello(log=HELLO.log, held=Held([HeldBatch([HeldRun(5, 1, 0, 10)])]), version="2")
    assert play.sent(Refuse)
    assert set(attempts_to_come(play, 10).values()) == {2} or play.seen(CallsFinished)


def test_a_worker_that_ended_while_the_dispatcher_was_away_is_no_failed_start() -> None:
    handles = [Handle(str(number)) for number in range(5)]
    play = restored(policy={"failed_starts": 3, "max_workers": 9}, launched=[Launched(handles)])
    for handle in handles:
        play.poll(handle, WorkerStatus.FAILED, "its process is gone")
        assert not play.seen(Warn)


def test_numbers_of_runs_do_not_begin_anew() -> None:
    play = restored()
    play.hello(b"other", pid=8)
    [one, *_] = play.assigned()
    assert one.run >> NUMBER_BITS == EPOCH


@pytest.mark.parametrize(
    "item",
    [HeldRun(5, 2, 0, 10), HeldRun(5, 1, 0, 11), HeldRun(5, 1, 7, 3)],
    ids=["another task", "more calls", "backwards"],
)
def test_false_words_of_a_worker_about_a_run_are_not_believed(item: HeldRun) -> None:
    play = restored(a_run())
    back(play, item)
    assert play.sent(Cancel) == [Cancel([5], 9)]
    assert not play.core.state.runs or play.core.state.runs.keys() != {5}


def test_a_core_that_closes_stops_a_worker_that_comes_back() -> None:
    play = restored(a_run())
    play.play(Closing())
    back(play, HeldRun(5, 1, 0, 10))
    assert play.sent(Stop, b"w")


@pytest.mark.parametrize("retries", [0, 2])
def test_a_worker_that_has_ended_with_its_dispatcher_is_lost_at_once(retries: int) -> None:
    play = restored(RestoredRun(5, b"local", 1, 0, 1), count=1, retries=retries)
    assert b"local" not in play.core.state.workers
    if retries:
        assert attempts_to_come(play) == {0: 2}
    else:
        [settled] = play.seen(CallsFinished)
        assert isinstance(settled.error, WorkerLost)
        assert "ended with its dispatcher" in str(settled.error)
