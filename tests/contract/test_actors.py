"""An object that lives in a worker: its answers, and its loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.contract import everywhere
from tests.support.scenario import play

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

SCRIPT = """
class Counter:
    def __init__(self, value):
        self.value = value

    def increment(self, by=1):
        self.value += by
        return self.value

    def hold(self, hold=hold):
        hold(0)


with CLUSTER(max_workers=1) as scheduler:
    with scheduler.actor(Counter, 5) as counter:
        totals = [one.result() for one in [counter.increment() for _ in range(1000)]]
    counter = scheduler.actor(Counter, 0)
    counter.increment().result()
    running, later = counter.hold(), counter.increment()
    lost = [facts_of(one.result) for one in (running, later, counter.increment())]
    with scheduler.actor(Counter, 7) as counter:
        tell(totals=totals, lost=lost, anew=counter.increment().result())
"""


@everywhere
def test_an_actor_answers_in_order_and_is_lost_with_its_worker(place: Cluster) -> None:
    scenario = play(place, SCRIPT)
    [begun] = scenario.began(1)
    place.delete_worker(begun)
    told = scenario.result()
    assert told["totals"] == list(range(6, 1006))
    assert [one["kind"] for one in told["lost"]] == ["ActorLost"] * 3
    for one in told["lost"]:
        assert "Counter-2 is lost: the worker that ran" in one["text"]
        assert "make the actor anew" in one["hint"]
    assert told["anew"] == 8
