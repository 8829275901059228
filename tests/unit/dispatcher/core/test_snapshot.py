"""What the core counts, and lets others see."""

from __future__ import annotations

from gridengine.dispatcher.core.events import Launched
from gridengine.resources import Cores, Memory
from gridengine.resources.demand import Demand
from gridengine.schedulers.launcher import Handle
from gridengine.status.snapshot import Snapshot
from gridengine.wire.messages import RETRYABLE, Result, Results
from tests.support.core_play import Play


def seen(play: Play) -> Snapshot:
    return play.core.state.snapshot()


def test_attempts_that_are_followed_by_another_are_counted() -> None:
    play = Play()
    one = play.running(1)
    play.crash(one, 0)
    [one] = play.assigned()
    play.say(Results([Result(one.run, 0, 1, RETRYABLE, 1.0)]), b"exception")
    assert (seen(play).retried, seen(play).failed, seen(play).calls_running) == (2, 0, 1)


def test_workers_are_counted_by_their_phase() -> None:
    play = Play(max_workers=5)
    play.submit(1, 1, 1, 1, 1)
    assert seen(play).statuses["requested"] == 5
    play.play(Launched([Handle(str(number), f"/r/{number}.log") for number in range(5)]))
    assert seen(play).statuses["launched"] == 5
    for number in range(2):
        play.hello(b"%d" % number, log=f"/r/{number}.log")
    play.done(play.assigned()[0], worker=b"1")
    assert seen(play).statuses == {
        "requested": 0,
        "launched": 3,
        "idle": 0,
        "busy": 2,
        "silent": 0,
        "stopping": 0,
    }
    play.later(30.0, beats=[b"0"])
    assert (seen(play).statuses["busy"], seen(play).statuses["silent"]) == (1, 1)
    assert seen(play).workers == 2


def test_the_slots_of_all_queues_are_counted() -> None:
    play = Play(resources=Cores(2) & Memory(4), slots=2)
    play.hello(slots=2)
    play.submit(1)
    play.submit(1, demand=Demand(Memory(3)))
    assert [queue.slots for queue in play.core.state.queues.values()] == [1, 1]
    assert seen(play).slots == 2


def test_a_snapshot_shows_the_batches_of_one_submitter() -> None:
    play = Play(slots=3)
    play.hello(slots=3)
    play.submit(2, submitter=1)
    play.submit(1, submitter=2)
    assert seen(play).running == 3
    assert [seen(play).of(one).running for one in (1, 2, 3)] == [2, 1, 0]


def test_a_snapshot_does_not_change() -> None:
    play = Play()
    one = play.running(2)
    before = seen(play)
    play.done(one)
    assert (before.waiting, before.done, before.batches) == (1, 0, {0: 1})
