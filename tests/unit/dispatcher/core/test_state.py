"""The tables of the core: which queues and provisioners there are."""

from __future__ import annotations

import signal

from gridengine.dispatcher.core.events import Launched, LaunchFailed
from gridengine.errors import ClusterError
from gridengine.requests import CallsFinished, Submitted, TasksCancelled
from gridengine.resources import Memory
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.launcher import Handle
from tests.support.core_play import SQUARE, Play, two_demands
from tests.support.tasks import make_task


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
    play.play(
        Submitted(
            SQUARE, [make_task(1, (b"",), 2, kept=((0, 7),)), make_task(2, (b"",), after=(7,))]
        )
    )
    play.play(Launched([Handle("41", "/runs/x/1.log")]))
    play.hello(log="/runs/x/1.log")
    state = play.core.state
    first, second = state.open_tasks[1], state.open_tasks[2]

    def states() -> list[str]:
        return [state.state_of(*one) for one in ((first, 0), (first, 1), (second, 0))]

    assert states() == ["assigned", "waiting", "missing"]
    play.done(*play.assigned())
    assert states() == ["settled", "waiting", "assigned"]  # inputs take memory: first who has them
