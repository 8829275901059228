"""How many workers there are, at least and at most, played on the core."""

from __future__ import annotations

import pytest

from gridengine.dispatcher.core.events import (
    Launch,
    Launched,
    LaunchFailed,
    Scaled,
    Send,
    Warn,
    Withdraw,
)
from gridengine.dispatcher.core.provisioner import LAST_BACKOFF
from gridengine.errors import ClusterError
from gridengine.resources import Cores
from gridengine.schedulers.launcher import Handle, WorkerStatus
from gridengine.wire.messages import Assignment, Goodbye, Recall, Stop
from tests.support.core_play import CUBE, Play


def launched(play: Play, *numbers: int) -> list[Handle]:
    handles = [Handle(str(number), f"/r/{number}.log") for number in numbers]
    play.play(Launched(handles))
    return handles


def join(play: Play, *numbers: int) -> None:
    """Have workers launched, and connect."""
    launched(play, *numbers)
    for number in numbers:
        play.hello(b"%d" % number, log=f"/r/{number}.log")


def busy(play: Play, *numbers: int) -> list[Assignment]:
    """Have workers launched that are at one call each."""
    play.submit(*[1] * len(numbers))
    launched(play, *numbers)
    given = []
    for number in numbers:
        play.hello(b"%d" % number, log=f"/r/{number}.log")
        given += play.assigned()
    return given


def stopped(play: Play) -> list[bytes]:
    return [one.worker for one in play.seen(Send) if isinstance(one.message, Stop)]


def test_the_least_workers_are_asked_for_though_nothing_waits_and_replaced() -> None:
    play = Play(min_workers=2)
    assert not play.core.state.is_idle
    play.later(0.1)
    assert [one.count for one in play.seen(Launch)] == [2]
    join(play, 1, 2)
    play.say(Goodbye("told to"), worker=b"1")
    assert [one.count for one in play.seen(Launch)] == [1]


def test_the_least_workers_stay_though_they_have_nothing_to_do() -> None:
    play = Play(min_workers=2, idle_seconds=5)
    play.later(0.1)
    join(play, 1, 2, 3)
    play.later(6.0, beats=[b"1", b"2", b"3"])
    assert stopped(play) == [b"1"]
    play.later(60.0, beats=[b"2", b"3"])
    assert stopped(play) == []


def test_workers_that_cannot_be_had_are_asked_for_again_after_a_while() -> None:
    play = Play(min_workers=2)
    play.later(0.1)
    play.play(LaunchFailed(ClusterError("no such partition")))
    assert [one.text for one in play.seen(Warn)] == [
        "the workers that are to be there (min_workers=2) cannot be had: no such partition"
    ]
    play.later(LAST_BACKOFF / 2)
    assert play.seen(Launch) == []
    play.later(LAST_BACKOFF)
    assert [one.count for one in play.seen(Launch)] == [2]


def test_more_workers_are_asked_for_at_once() -> None:
    play = Play(gather_seconds=60.0)
    play.play(Scaled(5, 5))
    assert [one.count for one in play.seen(Launch)] == [5]


def test_idle_workers_beyond_the_limit_leave_at_once() -> None:
    play = Play()
    busy(play, 1, 2)
    join(play, 3, 4)
    play.play(Scaled(2, 2))
    assert stopped(play) == [b"4", b"3"]
    assert not play.core.state.retiring


@pytest.mark.parametrize("shared", [None, Cores(1)], ids=["alike", "shared"])
def test_busy_workers_leave_when_their_calls_have_ended(shared: Cores | None) -> None:
    play = Play(resources=shared)
    first, second = busy(play, 1, 2)
    play.submit(1)
    play.play(Scaled(1, 1))
    assert stopped(play) == []
    play.done(second, worker=b"2")
    assert stopped(play) == [b"2"]
    assert play.assigned() == []
    play.done(first, worker=b"1")
    assert stopped(play) == []
    assert len(play.assigned(b"1")) == 1


def test_calls_not_begun_by_leaving_workers_are_recalled() -> None:
    play = Play()
    play.learn(1e-3)
    play.submit(1000)
    play.play(Scaled(0, 0))
    assert play.sent(Recall)


@pytest.mark.parametrize("shared", [None, Cores(1)], ids=["alike", "shared"])
def test_a_leaving_worker_stays_when_more_are_wanted_again(shared: Cores | None) -> None:
    play = Play(resources=shared)
    first, second = busy(play, 1, 2)
    play.play(Scaled(1, 1))
    play.play(Scaled(2, 2))
    assert play.seen(Launch) == []
    play.done(second, worker=b"2")
    assert stopped(play) == []
    play.submit(1)
    assert len(play.assigned(b"2")) == 1
    assert first.run != second.run


def test_a_leaving_worker_stays_when_another_is_lost() -> None:
    play = Play()
    busy(play, 1, 2)
    play.play(Scaled(1, 1))
    assert list(play.core.state.retiring) == [b"2"]
    play.say(Goodbye("told to"), worker=b"1")
    play.later(0.1, beats=[b"2"])
    assert not play.core.state.retiring
    assert play.seen(Launch) == []


def test_workers_that_have_not_come_yet_are_withdrawn_first() -> None:
    play = Play()
    busy(play, 1)
    _, last = launched(play, 2, 3)
    play.play(Scaled(2, 2))
    assert [one.handles for one in play.seen(Withdraw)] == [(last,)]


def test_workers_asked_for_before_are_withdrawn_when_they_are_known() -> None:
    play = Play()
    play.submit(1, 1, 1)
    assert [one.count for one in play.seen(Launch)] == [3]
    play.play(Scaled(1, 1))
    handles = launched(play, 1, 2, 3)
    assert [set(one.handles) for one in play.seen(Withdraw)] == [set(handles[1:])]


@pytest.mark.parametrize(("minimum", "maximum"), [(-1, 1), (2, 1)])
def test_the_least_are_not_more_than_the_most(minimum: int, maximum: int) -> None:
    with pytest.raises(ValueError, match="there cannot be"):
        Play().play(Scaled(minimum, maximum))


def test_workers_by_hand_take_the_place_of_none_of_the_schedulers_nor_leave_for_the_bounds() -> (
    None
):
    play = Play(max_workers=1, keeps_others=True)
    play.hello(b"a")
    play.submit(5)
    assert [launch.count for launch in play.seen(Launch)] == [1]
    play.hello(b"b")
    play.play(Scaled(0, 0))
    assert play.sent(Stop) == []
    play.play(Scaled())
    policy = play.core.state.policy
    assert (policy.min_workers, policy.max_workers) == (0, 1), "the first bounds hold again"


def few_at_first(calls: int) -> Play:
    """Two workers are asked for at first; here they have connected, each with a call."""
    play = Play(max_workers=100, first_workers=2, pooled=True)
    play.submit(*[1] * calls)
    assert [one.count for one in play.seen(Launch)] == [2]
    join(play, 1, 2)
    return play


def asked(play: Play) -> list[int]:
    return [one.count for one in play.seen(Launch)]


def test_a_few_workers_are_asked_for_at_first_and_no_more_for_quick_calls() -> None:
    play = few_at_first(3)
    play.later(0.1)
    assert asked(play) == []
    play.submit(*[1] * 50)
    assert asked(play) == []


def test_further_workers_are_asked_for_by_how_long_the_calls_have_taken() -> None:
    play = Play(max_workers=100, first_workers=2, pooled=True)
    play.submit(*[1] * 100)
    launched(play, 1, 2)
    play.hello(b"1", log="/r/1.log")
    [first, *_] = play.assigned()
    play.now += 2.0
    play.done(first, seconds=2.0, worker=b"1")
    counts = asked(play)
    play.later(0.0)
    # About 98 calls of 2 s are worth a worker for each 10 s, of which one is to come.
    assert 18 <= sum(counts + asked(play)) <= 20


def test_calls_in_progress_count_for_as_long_as_they_have_run() -> None:
    play = few_at_first(60)
    play.later(5.0, beats=[b"1", b"2"])
    [count] = asked(play)
    assert 25 <= count <= 30
    play.play(Launched([Handle(str(10 + one)) for one in range(count)]))
    play.later(20.0, beats=[b"1", b"2"])
    assert asked(play) == [58 - count]


def test_all_workers_are_asked_for_when_the_few_have_waited_in_the_queue_for_a_minute() -> None:
    play = Play(max_workers=100, first_workers=2, pooled=True)
    play.submit(*[1] * 50)
    launched(play, 1, 2)
    play.later(59.0)
    assert asked(play) == []
    play.later(2.0)
    assert asked(play) == [48]


@pytest.mark.parametrize("state", [WorkerStatus.QUEUED, WorkerStatus.SUSPENDED, WorkerStatus.ENDED])
def test_a_worker_that_has_connected_does_not_wait_in_the_queue(state: WorkerStatus) -> None:
    play = Play(max_workers=100, first_workers=2, pooled=True)
    for number, one in enumerate(busy(play, 1, 2), 1):
        play.done(one, seconds=0.001, worker=b"%d" % number)
    play.later(100.0, beats=[b"1", b"2"])
    play.poll(Handle("1", "/r/1.log"), state)
    play.submit(*[1] * 50)
    counts = asked(play)
    play.later(0.1, beats=[b"2"])
    assert sum(counts + asked(play)) <= 1


def test_jobs_are_asked_for_at_once() -> None:
    play = Play(max_workers=100, first_workers=2, pooled=True)
    play.submit(*[1] * 50, watched=True)
    assert asked(play) == [50]


def test_calls_that_wait_behind_those_of_others_are_worth_as_long_as_these_run() -> None:
    play = few_at_first(2)
    play.submit(*[1] * 30, function=CUBE)
    play.later(60.0, beats=[b"1", b"2"])
    assert asked(play) == [30]


def test_workers_asked_for_after_a_minute_are_not_taken_back_when_the_first_comes() -> None:
    play = Play(max_workers=100, first_workers=2, pooled=True, idle_seconds=5.0)
    play.submit(*[1] * 50)
    launched(play, 1, 2)
    play.later(61.0)
    assert asked(play) == [48]
    launched(play, *range(3, 51))
    play.hello(b"1", log="/r/1.log")
    for _ in range(10):
        play.later(2.0, beats=[b"1"])
        assert play.seen(Withdraw) == []
