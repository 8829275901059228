"""Calls that have several nodes, and nodes that differ: one that starts nothing, one whose clock is
off.
"""

from __future__ import annotations

import pytest

from tests.support.hosts import SlurmOfHosts
from tests.support.mpi import adding_ranks
from tests.support.scenario import play

pytestmark = pytest.mark.hosts

RANKS = """
done = gridengine.run_program(
    WORDS,
    scheduler=lambda: CLUSTER(environment={"SLURM_MPI_TYPE": "pmix_v4"}),
    resources=gridengine.Ranks(3, nodes=2),
)
tell(output=done.stdout)
"""


def test_ranks_of_two_nodes_speak_by_a_real_mpi(slurm: SlurmOfHosts) -> None:
    assert play(slurm, f"WORDS = {adding_ranks()!r}\n{RANKS}").result() == {"output": "6 3\n"}
    slurm.nothing_is_left()


WHERE = """
def where(index):
    return os.environ["SLURMD_NODENAME"], time.time()

def spin(index):
    while True:  # libfaketime breaks time.sleep
        pass

with CLUSTER(max_workers=2, cpus_per_task=4, prologue=[PROLOGUE]) as scheduler:
    begun = time.time()
    found = gridengine.map(where, range(6), scheduler=scheduler, chunksize=1, timeout=60)
    limited = facts_of(lambda: gridengine.map(spin, [0], scheduler=scheduler, timeout=1))
ahead = [now - begun for _, now in found]
tell(nodes=[node for node, _ in found], ahead=ahead, kind=limited["kind"])
"""
FAILS = 'if [ "$SLURMD_NODENAME" = node1 ]; then echo no scratch >&2; exit 1; fi'


def test_a_node_that_starts_no_worker_takes_no_call(slurm: SlurmOfHosts) -> None:
    scenario = play(slurm, f"PROLOGUE = {FAILS!r}\n{WHERE}")
    assert scenario.result()["nodes"] == ["node2"] * 6
    assert "no worker could be started on node1" in scenario.errors
    assert "a line of its prologue failed); node1 is left out of the next" in scenario.errors
    slurm.nothing_is_left()


OFF = (
    "export LD_PRELOAD=/usr/lib/$(uname -m)-linux-gnu/faketime/libfaketimeMT.so.1 FAKETIME={days}d "
    "FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME_DONT_RESET=1"
)
"""Shifts the clock that tells the date, for a worker and all that it starts, by libfaketime."""


@pytest.mark.parametrize("days", ["+1", "-1"])
def test_a_clock_that_is_a_day_off_changes_no_time_limit(slurm: SlurmOfHosts, days: str) -> None:
    scenario = play(slurm, f"PROLOGUE = {OFF.format(days=days)!r}\n{WHERE}")
    told = scenario.result()
    assert {round(ahead / 86400) for ahead in told["ahead"]} == {int(days)}
    assert told["kind"] == "TimeoutError"
    assert scenario.errors == ""
    slurm.nothing_is_left()
