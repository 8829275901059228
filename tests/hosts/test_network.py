"""Names, firewalls and cables between the host of a script and the nodes."""

from __future__ import annotations

import contextlib
import json
import time

import pytest

from tests.support.hosts import (
    LOGIN,
    NODES,
    OfHosts,
    SlurmOfHosts,
    cable_out,
    closed_to_others,
    known_as,
)
from tests.support.scenario import QUICK, Scenario, play
from tests.support.waiting import wait_until

pytestmark = pytest.mark.hosts

SPREAD = """
import socket

def where(index):
    return index, socket.gethostname()

with CLUSTER(**GIVEN) as scheduler:
    found = gridengine.map(where, range(8), scheduler=scheduler, chunksize=1)
tell(results=[index for index, _ in found], hosts=sorted({host for _, host in found}))
"""


BOTH = ["slurm", "grid_engine"]


def check_spread(place: OfHosts, **given: object) -> None:
    """Check that a map has its results, from the nodes, and leaves nothing."""
    told = play(place, f"GIVEN = {dict(given, **place.filling)}\n{SPREAD}").result()
    assert told["results"] == [*range(8)]
    assert set(told["hosts"]) <= set(NODES)
    place.nothing_is_left()


@pytest.mark.parametrize("address", ["127.0.1.1", "192.0.2.1"])
def test_workers_find_a_host_whose_own_name_leads_nowhere(
    slurm: SlurmOfHosts, address: str
) -> None:
    """On Grid Engine's master no command works then: it wants its name to lead to it."""
    with known_as(LOGIN, address):
        check_spread(slurm)


@pytest.mark.parametrize("place", BOTH, indirect=True)
def test_nodes_need_not_accept_any_connection(place: OfHosts) -> None:
    with closed_to_others("node1", system=place.up), closed_to_others("node2", system=place.up):
        check_spread(place)


STRAIGHT = """
import logging, socket

from gridengine.dispatcher.core import worker_messages
from gridengine.wire.messages import Fetched

came, lines = [], []
handle = worker_messages.HANDLERS[Fetched]
worker_messages.HANDLERS[Fetched] = lambda *given: came.append(given) or handle(*given)
log = logging.getLogger("gridengine")
log.setLevel(logging.INFO)
log.addHandler(type("Lines", (logging.Handler,), {
    "emit": lambda self, record: lines.append(record.getMessage())
})())

def made():
    return bytes(range(250)) * 100_000

def met(blob, index):
    Path(FOLDER, f"met {index}").touch()
    while not Path(FOLDER, f"met {1 - index}").exists():
        time.sleep(0.02)
    return blob == made(), socket.gethostname()

with CLUSTER(**FILLING) as scheduler, gridengine.Executor(scheduler=scheduler) as executor:
    blob = executor.submit(made)
    found = [one.result() for one in [executor.submit(met, blob, index) for index in range(2)]]
    through = len(came)
told = [line for line in lines if "cannot connect to workers on" in line]
right, hosts = zip(*found)
tell(right=right, hosts=sorted(hosts), through=through, told=told)
"""


@pytest.mark.parametrize("closed", [False, True])
def test_a_result_goes_straight_between_hosts_and_through_the_script_where_it_cannot(
    slurm: SlurmOfHosts, closed: bool
) -> None:
    with contextlib.ExitStack() as stack:
        for node in NODES if closed else ():
            stack.enter_context(closed_to_others(node))
        told = play(slurm, f"FILLING = {slurm.filling}\n{STRAIGHT}").result()
    assert told["right"] == [True, True]
    assert told["hosts"] == sorted(NODES)
    assert (told["through"], len(told["told"])) == ((1, 1) if closed else (0, 0))


HELD = """
with CLUSTER(**FILLING) as scheduler:
    tell(**facts_of(lambda: gridengine.map(hold, range(2), scheduler=scheduler, chunksize=1)))
"""


@pytest.mark.parametrize(
    ("place", "verdict"),
    [
        ("slurm", "drop"),
        pytest.param("slurm", "reject", marks=pytest.mark.long),
        pytest.param("grid_engine", "drop", marks=pytest.mark.long),
    ],
    indirect=["place"],
)
def test_a_firewall_before_the_host_is_named_and_files_pass_it(
    place: OfHosts, verdict: str
) -> None:
    """On Slurm srun cannot be reached either: its job starts nothing."""
    with closed_to_others(LOGIN, verdict, place.up):
        patience = {**QUICK, "GRIDENGINE_START_SECONDS": "18"}
        scenario = play(place, f"FILLING = {place.filling}\n{HELD}", environment=patience)
        told = explained(place, scenario, "unreachable")
        assert "gets no answer from this dispatcher: tcp://10.77.0.1:" in told["text"]
        assert "transport='files'" in told["next_step"]
        error = scenario.result()
        assert error["kind"] == "WorkerNotStarted"
        assert "see that no firewall is between them" in error["text"]
        assert "never connected within 18 s to tcp://10.77.0.1:" in error["text"]
        place.nothing_is_left()
        check_spread(place, transport="files")


def explained(place: OfHosts, scenario: Scenario, cause: str) -> dict[str, str]:
    """Wait until `explain` tells of this cause, and return what it says."""

    def look() -> dict[str, str] | None:
        assert scenario.process.poll() is None, scenario.output + scenario.errors
        told = place.on(LOGIN, place.python, "-m", "gridengine", "explain", "--json")
        with contextlib.suppress(json.JSONDecodeError):  # no run can be watched yet
            return next((one for one in json.loads(told) if one["cause"] == cause), None)
        return None

    return dict(wait_until(look))


TWO_CALLS = """
with CLUSTER(max_workers=2, cpus_per_task=4) as scheduler:
    tell(results=gridengine.map(hold, range(2), scheduler=scheduler, chunksize=1, retries=RETRIES))
"""


@pytest.mark.parametrize("seconds", [20, pytest.param(200, marks=pytest.mark.long)])
def test_a_node_s_cable_may_be_out_for_some_time(slurm: SlurmOfHosts, seconds: int) -> None:
    """Its call goes on, and its result comes when the cable is in again; after a lease the call
    runs again elsewhere.
    """
    retries = 0 if seconds < 60 else 1
    scenario = play(slurm, f"RETRIES = {retries}\n{TWO_CALLS}")
    node = slurm.node_of(scenario.began(2)[0])
    with cable_out(node):
        scenario.go()
        time.sleep(seconds)
    assert scenario.result()["results"] == [0, 1]
    assert len(scenario.begun()) == 2 + retries
    slurm.nothing_is_left()


def test_the_cable_of_the_script_s_host_may_be_out_for_some_time(slurm: SlurmOfHosts) -> None:
    scenario = play(slurm, f"RETRIES = 0\n{TWO_CALLS}")
    scenario.began(2)
    with cable_out(LOGIN):
        scenario.go()
        time.sleep(20)
    assert scenario.result()["results"] == [0, 1]
    assert len(scenario.begun()) == 2
    slurm.nothing_is_left()
