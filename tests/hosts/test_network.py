"""Names, addresses, cables and firewalls between the host of a script and the nodes."""

from __future__ import annotations

import pytest

from tests.support.hosts import LOGIN, NODES, SlurmOfHosts, cable_out, closed_to_others, known_as
from tests.support.scenario import play

pytestmark = pytest.mark.hosts

SPREAD = """
import socket

def where(index):
    return index, socket.gethostname()

with CLUSTER(max_workers=2, cpus_per_task=4) as scheduler:
    found = gridengine.map(where, range(8), scheduler=scheduler, chunksize=1)
tell(results=[index for index, _ in found], hosts=sorted({host for _, host in found}))
"""


@pytest.mark.parametrize("address", ["127.0.1.1", "192.0.2.1"])
def test_workers_find_a_host_whose_own_name_leads_nowhere(
    slurm: SlurmOfHosts, address: str
) -> None:
    with known_as(LOGIN, address):
        told = play(slurm, SPREAD).result()
    assert told["results"] == [*range(8)]
    assert set(told["hosts"]) <= set(NODES)
    slurm.nothing_is_left()
