"""Stand-alone dispatchers on a node, with clients and workers on other hosts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from tests.support.command_line import command
from tests.support.hosts import SlurmOfHosts, bring_up, closed_to_others, hosts
from tests.support.scenario import play
from tests.support.waiting import wait_until

pytestmark = pytest.mark.hosts

MAP = """
import gridengine, socket

def where(number):
    return number * number, socket.gethostname()

with gridengine.Client("sweeps") as client:
    found = gridengine.map(where, range(20), scheduler=client, chunksize=1)
print(sum(square for square, _ in found), *sorted({host for _, host in found}))
"""
STATUS = ("dispatcher", "status", "sweeps")
DIED = 1
"""The status of `gridengine dispatcher status` then."""
OF_THE_OTHER = "--nodelist=node2"


@pytest.fixture
def sweeps(slurm: SlurmOfHosts) -> Iterator[dict[str, str]]:
    """A dispatcher in a job on node1, with workers on node2; gives the variables of clients."""
    runs = {"GRIDENGINE_RUN_DIRECTORY": str(slurm.folder / "runs")}
    begin(slurm, runs)
    yield runs
    bring_up()
    command(slurm, "dispatcher", "stop", "sweeps", "--now", environment=runs)
    slurm.nothing_is_left()


def begin(slurm: SlurmOfHosts, runs: dict[str, str]) -> None:
    """Start the dispatcher, and wait until clients can connect."""
    words = ["dispatcher", "start", "sweeps", "--foreground", "--scheduler", "slurm"]
    words += ["--max-workers", "2", "--native", OF_THE_OTHER]
    variables = [f"{name}={value}" for name, value in {**slurm.environment, **runs}.items()]
    script = slurm.folder / "dispatcher.sh"
    line = shlex.join(["env", *variables, slurm.python, "-m", "gridengine", *words])
    script.write_text(f"#!/bin/sh\nexec {line}\n")
    script.chmod(0o755)
    told = slurm.command(
        "sbatch", "--no-requeue", "--nodelist=node1", "--output=/dev/null", str(script)
    )
    assert "Submitted" in told, told
    wait_until(lambda: command(slurm, *STATUS, environment=runs)[0] == 0)


def test_a_dispatcher_on_a_node_serves_other_hosts_or_names_the_obstacle(
    slurm: SlurmOfHosts, sweeps: dict[str, str]
) -> None:
    assert slurm.run(MAP, environment=sweeps).stdout == "2470 node2\n"
    with closed_to_others("node1"):
        told = slurm.run(MAP, environment=sweeps, check=False).stderr
        assert "the client on login gets no answer of its dispatcher: tcp://10.77.0.11:" in told
        assert "that no firewall is between" in told
        status, told = command(slurm, *STATUS, environment=sweeps)
        assert (status, "silent" in told) == (4, True)
    assert slurm.run(MAP, environment=sweeps).stdout == "2470 node2\n"


HELD = """
with gridengine.Client("sweeps") as client:
    tell(results=gridengine.map(hold, range(4), scheduler=client, chunksize=1))
"""


@pytest.mark.long
def test_the_dispatcher_of_a_node_that_lost_power_goes_on_elsewhere(
    slurm: SlurmOfHosts, sweeps: dict[str, str]
) -> None:
    scenario = play(slurm, HELD, environment=sweeps)
    scenario.began(2)
    hosts("kill", "node1")
    start = ("dispatcher", "start", "sweeps")
    status, told = command(slurm, *start, environment=sweeps)
    assert (status, "if that machine is down, start it here 60 s after that" in told) == (1, True)
    wait_until(lambda: command(slurm, *STATUS, environment=sweeps)[0] == DIED)
    assert command(slurm, *start, environment=sweeps)[0] == 0
    scenario.go()
    assert scenario.result()["results"] == [*range(4)]
