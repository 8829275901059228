"""Calls that have several nodes, and nodes that differ: one that starts nothing, one whose clock is
off.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.hosts import NODES, GridEngineOfHosts, OfHosts, SlurmOfHosts
from tests.support.mpi import adding_ranks
from tests.support.scenario import play

pytestmark = pytest.mark.hosts

RANKS = """
def solve(words):
    import subprocess
    place = gridengine.allocation()
    done = subprocess.run([*place.launcher, *words], capture_output=True, text=True)
    return done.stdout + done.stderr, [host.name for host in place.hosts]

with CLUSTER(**GIVEN) as scheduler:
    [found] = gridengine.map(solve, [WORDS], scheduler=scheduler, resources=gridengine.RANKS)
tell(found=found)
"""


def ranks_on(place: OfHosts, ranks: str, **given: object) -> Any:
    """Return what the ranks of a call print by a real MPI, and their hosts."""
    text = RANKS.replace("RANKS", ranks)
    return play(place, f"WORDS, GIVEN = {adding_ranks()!r}, {given!r}\n{text}").result()["found"]


def test_ranks_of_two_nodes_of_slurm_speak_by_a_real_mpi(slurm: SlurmOfHosts) -> None:
    pmix = {"SLURM_MPI_TYPE": "pmix_v4"}
    assert ranks_on(slurm, "Ranks(3, nodes=2)", environment=pmix) == ["6 3\n", [*NODES]]
    slurm.nothing_is_left()


def test_ranks_of_two_hosts_of_grid_engine_speak_by_a_real_mpi(
    grid_engine: GridEngineOfHosts,
) -> None:
    """Each has four slots, and the environment has control_slaves."""
    output, found = ranks_on(grid_engine, "Ranks(6)", parallel_environment="mpi")
    assert (output, sorted(found)) == ("21 6\n", [*NODES])
    grid_engine.nothing_is_left()


BAD_NODE = """
import logging, socket

class Told(logging.Handler):
    texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())

def where(index):
    return socket.gethostname()

logging.getLogger("gridengine").addHandler(Told())
with CLUSTER(prologue=[PROLOGUE], **FILLING) as scheduler:
    nodes, has_failed = set(), False
    while not has_failed:                                   # node2 may have done all calls before
        has_failed = any("left out of the next" in text for text in Told.texts)
        nodes.update(gridengine.map(where, range(6), scheduler=scheduler, chunksize=1))
tell(nodes=sorted(nodes), texts=Told.texts)
"""
FAILS = 'if [ "$(hostname)" = node1 ]; then echo no scratch >&2; exit 1; fi'


@pytest.mark.parametrize(
    "place",
    ["slurm", "grid_engine", pytest.param("htcondor", marks=pytest.mark.htcondor)],
    indirect=True,
)
def test_a_node_that_starts_no_worker_takes_no_call(place: OfHosts) -> None:
    told = play(place, f"PROLOGUE, FILLING = {FAILS!r}, {place.filling}\n{BAD_NODE}").result()
    assert told["nodes"] == ["node2"]
    [text] = [text for text in told["texts"] if "left out" in text]
    assert "no worker could be started on node1" in text
    assert "a line of its prologue failed); node1 is left out of the next" in text
    place.nothing_is_left()


CLOCK = """
def now(index):
    return time.time()

def spin(index):
    while True:  # libfaketime breaks time.sleep
        pass

with CLUSTER(max_workers=2, prologue=[PROLOGUE]) as scheduler:
    begun = time.time()
    found = gridengine.map(now, range(6), scheduler=scheduler, chunksize=1, timeout=60)
    limited = facts_of(lambda: gridengine.map(spin, [0], scheduler=scheduler, timeout=1))
tell(ahead=[now - begun for now in found], kind=limited["kind"])
"""
OFF = (
    "export LD_PRELOAD=/usr/lib/$(uname -m)-linux-gnu/faketime/libfaketimeMT.so.1 FAKETIME={days}d "
    "FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME_DONT_RESET=1"
)
"""Shifts the clock that tells the date, for a worker and all that it starts, by libfaketime."""


@pytest.mark.parametrize("days", ["+1", "-1"])
def test_a_clock_that_is_a_day_off_changes_no_time_limit(slurm: SlurmOfHosts, days: str) -> None:
    scenario = play(slurm, f"PROLOGUE = {OFF.format(days=days)!r}\n{CLOCK}")
    told = scenario.result()
    assert {round(ahead / 86400) for ahead in told["ahead"]} == {int(days)}
    assert told["kind"] == "TimeoutError"
    assert scenario.errors == ""
    slurm.nothing_is_left()
