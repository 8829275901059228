"""An HTCondor whose hosts share no files."""

from __future__ import annotations

import pytest

from tests.support.hosts import LOGIN, NODES, HTCondorOfHosts, bring_up, closed_to_others, hosts
from tests.support.scenario import IMPATIENT, QUICK, play
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.hosts, pytest.mark.htcondor]

EVERYTHING = """
import helpers, socket

class Counter:
    def __init__(self):
        self.value = 0

    def increment(self):
        self.value += 1
        return self.value, socket.gethostname()

with CLUSTER(max_workers=4, request_cpus=4, **GIVEN) as scheduler:
    at, nodes = [], set()
    while len(nodes) < 2:                                # one may have done all calls before
        at = gridengine.map(helpers.where, range(24), scheduler=scheduler, chunksize=1)
        nodes.update(node for _, node, _ in at)
    with gridengine.Executor(scheduler=scheduler) as executor:
        kept = [executor.submit(bytes, 3_000_000) for _ in range(4)]
        sizes = [executor.submit(len, one) for one in kept]
        sums = [executor.submit(helpers.nested, 4).result()]
        sizes = [one.result() for one in sizes]
    counter = scheduler.actor(Counter)
    counts = [counter.increment().result()[0] for _ in range(2)]
    named = [gridengine.map(abs, range(n), scheduler=scheduler, name="apart") for n in (3, 6)]
tell(at=at, nodes=sorted(nodes), sizes=sizes, sums=sums, counts=counts, named=named)
"""
HELPERS = """
import os, socket
import gridengine

def where(index):
    return index, socket.gethostname(), os.path.exists("HOME")

def nested(count):
    return sum(gridengine.map(abs, range(count)))
"""


def test_all_kinds_of_calls_run_on_nodes_that_share_nothing(htcondor: HTCondorOfHosts) -> None:
    script = EVERYTHING.replace("GIVEN", str(htcondor.nothing_shared))
    files = {"helpers.py": HELPERS.replace('"HOME"', repr(htcondor.user.pw_dir))}
    told = play(htcondor, script, files=files).result()
    assert [index for index, *_ in told["at"]] == [*range(24)]
    assert told["nodes"] == [*NODES]
    assert not any(sees_home for *_, sees_home in told["at"])
    assert told["sizes"] == [3_000_000] * 4
    assert (told["sums"], told["counts"]) == ([6], [1, 2])
    assert told["named"] == [[*range(3)], [*range(6)]]
    htcondor.nothing_is_left()


REMOVED = "3"
POWER = """
import socket

def where(index):
    time.sleep(15)
    return index, socket.gethostname()

with CLUSTER(max_workers=4, request_cpus=4, **GIVEN) as scheduler:
    with gridengine.Executor(scheduler=scheduler) as executor:
        calls = [executor.submit(where, index) for index in range(4)]
        while len([one for one in scheduler.status().workers if one.running]) < 4:
            time.sleep(0.1)
        tell(hosts=sorted({one.host for one in scheduler.status().workers}))
        found = [one.result() for one in calls]
tell(found=found)
"""


def test_the_calls_of_a_node_that_lost_power_run_elsewhere(htcondor: HTCondorOfHosts) -> None:
    scenario = play(
        htcondor, POWER.replace("GIVEN", str(htcondor.nothing_shared)), environment=IMPATIENT
    )
    assert wait_until(scenario.told)["hosts"] == [*NODES]
    hosts("kill", "node1", system="htcondor")
    told = scenario.result()
    assert [index for index, _ in told["found"]] == [*range(4)]
    assert {host for _, host in told["found"]} == {"node2"}
    bring_up("htcondor")
    # What was removed on a node that is gone stays in the queue for HTCondor's own lease, 40 min.
    wait_until(lambda: {*htcondor.command("condor_q", "-af", "JobStatus").split()} == {REMOVED})
    htcondor.administer("condor_rm", "-forcex", "-all")
    htcondor.nothing_is_left()


HELD = """
with CLUSTER(max_workers=4, request_cpus=4, **GIVEN) as scheduler:
    tell(**facts_of(lambda: gridengine.map(abs, range(2), scheduler=scheduler)))
"""


def test_a_firewall_before_the_host_is_named(htcondor: HTCondorOfHosts) -> None:
    patience = {**QUICK, "GRIDENGINE_START_SECONDS": "18"}
    with closed_to_others(LOGIN, system="htcondor"):
        script = HELD.replace("GIVEN", str(htcondor.nothing_shared))
        error = play(htcondor, script, environment=patience).result()
    assert error["kind"] == "WorkerNotStarted"
    assert "never connected within 18 s to tcp://10.77.0.1:" in error["text"]
    assert "see that no firewall is between them" in error["text"]
    htcondor.nothing_is_left()
