"""The tables of the core: which queues and provisioners there are."""

from __future__ import annotations

import signal

from gridengine.dispatcher.core.events import (
    CancelRequested,
    LaunchFailed,
)
from gridengine.dispatcher.core.tasks import CallsFinished
from gridengine.errors import (
    ClusterError,
)
from gridengine.resources import Memory
from gridengine.resources.demand import ANY, Demand
from tests.support.core_play import two_demands


def test_a_demand_is_forgotten_when_it_has_neither_calls_nor_workers() -> None:
    play = two_demands()
    play.play(LaunchFailed(ClusterError("no such memory"), demand=Demand(Memory(1))))
    assert [settled.last for settled in play.seen(CallsFinished)] == [True]
    play.later(0.3, beats=[b"w"])
    assert list(play.core.state.provisioners) == list(play.core.state.queues) == [ANY]


def test_a_demand_is_remembered_while_it_may_not_ask_again() -> None:
    play = two_demands()
    play.play(LaunchFailed(ClusterError("not now"), for_now=True, demand=Demand(Memory(1))))
    play.play(CancelRequested([play.last_task], signal.SIGTERM))
    play.later(0.3, beats=[b"w"])
    assert list(play.core.state.provisioners) == [ANY, Demand(Memory(1))]
    play.later(1.0, beats=[b"w"])
    assert list(play.core.state.provisioners) == list(play.core.state.queues) == [ANY]
