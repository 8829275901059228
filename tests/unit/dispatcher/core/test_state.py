"""The tables of the core: which queues and provisioners there are, and what it counts."""

from __future__ import annotations

import signal

from gridengine.dispatcher.core.events import Launched, LaunchFailed
from gridengine.errors import ClusterError
from gridengine.requests import CallsFinished, Submitted, Task, TasksCancelled
from gridengine.resources import Cores, Memory
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.launcher import Handle
from gridengine.status.snapshot import DemandCounts, Snapshot
from gridengine.wire.messages import RETRYABLE, Result, Results
from tests.support.core_play import SQUARE, Play, two_demands


def test_a_demand_is_forgotten_when_it_has_neither_calls_nor_workers() -> None:
    play = two_demands()
    play.play(LaunchFailed(ClusterError("no such memory"), demand=Demand(Memory(1))))
    assert [settled.last for settled in play.seen(CallsFinished)] == [True]
    play.later(0.3, beats=[b"w"])
    assert list(play.core.state.provisioners) == list(play.core.state.queues) == [ANY]


def test_a_demand_is_remembered_while_it_may_not_ask_again() -> None:
    play = two_demands()
    play.play(LaunchFailed(ClusterError("not now"), for_now=True, demand=Demand(Memory(1))))
    play.play(TasksCancelled([play.last_task], signal.SIGTERM))
    play.later(0.3, beats=[b"w"])
    assert list(play.core.state.provisioners) == [ANY, Demand(Memory(1))]
    play.later(1.0, beats=[b"w"])
    assert list(play.core.state.provisioners) == list(play.core.state.queues) == [ANY]


def test_a_call_is_in_the_state_of_its_place() -> None:
    play = Play(max_workers=1)
    play.play(Submitted(SQUARE, [Task(1, (b"",), 2, kept=((0, 7),)), Task(2, (b"",), after=(7,))]))
    play.play(Launched([Handle("41", "/runs/x/1.log")]))
    play.hello(log="/runs/x/1.log")
    state = play.core.state
    first, second = state.open_tasks[1], state.open_tasks[2]

    def states() -> list[str]:
        return [state.state_of(*one) for one in ((first, 0), (first, 1), (second, 0))]

    assert states() == ["assigned", "waiting", "missing"]
    play.done(*play.assigned())
    assert states() == ["settled", "waiting", "assigned"]  # inputs take memory: first who has them


def seen(play: Play) -> Snapshot:
    return play.core.state.snapshot()


def test_attempts_that_are_followed_by_another_are_counted() -> None:
    play = Play()
    one = play.running(1)
    play.crash(one, 0)
    [one] = play.assigned()
    play.say(Results([Result(one.run, 0, 1, RETRYABLE, 1.0)]), b"exception")
    assert (seen(play).retried, seen(play).failed, seen(play).calls_running) == (2, 0, 1)


def test_workers_are_counted_by_their_states() -> None:
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


def test_calls_are_counted_by_their_requests() -> None:
    play = Play(resources=Cores(2) & Memory(4), slots=2)
    play.hello(slots=2)
    play.submit(3)
    play.submit(2, demand=Demand(Memory(3)))
    assert dict(seen(play).demands) == {
        ANY: DemandCounts(waiting=1, running=2, slots=2),
        Demand(Memory(3)): DemandCounts(waiting=2, running=0, slots=0),
    }


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
