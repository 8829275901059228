"""A node that loses power, with all that a dispatcher has there."""

from __future__ import annotations

import pytest

from tests.support.hosts import OfHosts, bring_up, hosts
from tests.support.scenario import IMPATIENT, play
from tests.support.waiting import wait_until

pytestmark = pytest.mark.hosts

EVERYTHING = """
import socket

def note(*words):
    Path(FOLDER, " ".join(map(str, words))).touch()

def made(index):
    note("made", index, os.getpid())
    return bytes([index]) * 2_000_000                        # stays at its worker

def sized(blob, gate):
    return len(blob), blob[0]

def resumed(index):
    done = gridengine.saved() or 0
    gridengine.save(done + 1)
    note("at", index, socket.gethostname())
    hold(index)
    return done

class Counter:
    def __init__(self):
        self.value = 0

    def increment(self):
        self.value += 1
        return self.value, socket.gethostname()

with CLUSTER(max_workers=8) as scheduler, gridengine.Executor(scheduler=scheduler) as executor:
    gate = executor.submit(hold, 100)
    sizes = [executor.submit(sized, executor.submit(made, index), gate) for index in range(8)]
    while len([*Path(FOLDER).glob("made *")]) < 8:
        time.sleep(0.02)
    actor = scheduler.actor(Counter)
    value, node = actor.increment().result()
    states = [executor.submit(resumed, index) for index in range(6)]
    tell(node=node)
    found = [one.result() for one in states], [one.result() for one in sizes]
    lost = facts_of(actor.increment().result)
tell(states=found[0], sizes=found[1], lost=lost)
"""


@pytest.mark.parametrize(
    "place", ["slurm", pytest.param("grid_engine", marks=pytest.mark.long)], indirect=True
)
def test_calls_kept_results_and_saved_states_outlive_a_node_and_its_actor_is_told_lost(
    place: OfHosts,
) -> None:
    scenario = play(place, EVERYTHING, environment=IMPATIENT)
    scenario.began(7)
    node = wait_until(scenario.told)["node"]
    at = [path.name.split() for path in scenario.folder.glob("at *")]
    again = [int(index) for _, index, host in at if host == node]
    hosts("kill", node, system=place.up)
    scenario.go()
    told = scenario.result()
    assert told["states"] == [int(index in again) for index in range(6)]
    assert told["sizes"] == [[2_000_000, index] for index in range(8)]
    assert told["lost"]["kind"] == "ActorLost"
    assert node in told["lost"]["text"]
    if place.up == "gridengine":  # its master does not take a new daemon of that host at once
        hosts("down", system=place.up)
        return
    bring_up()
    place.nothing_is_left()
