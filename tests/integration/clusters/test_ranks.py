"""Calls whose ranks a batch system gives places, on several nodes too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.mpi import adding_ranks
from tests.support.scenario import play

if TYPE_CHECKING:
    from tests.support.clusters import GridEngine, Slurm
    from tests.support.places import Place

SCRIPT = """
def where(index):
    place = gridengine.allocation()
    return place.hosts, place.ranks, place.launcher[0]

with CLUSTER(max_workers=1, {arguments}) as cluster:
    [facts] = gridengine.map(where, [0], resources={ranks}, scheduler=cluster)
    done = gridengine.run_program({program}, resources={ranks}, scheduler=cluster)
    tell(where=facts, lines=sorted(done.stdout.splitlines()))
"""


def told(place: Place, ranks: str, program: list[str], arguments: str = "") -> dict[str, Any]:
    """Return where ranks are, and what a program of these ranks printed."""
    ranks = f"gridengine.{ranks}"
    text = SCRIPT.format(arguments=arguments, ranks=ranks, program=program)
    return play(place, text).result()


@pytest.mark.slurm
def test_a_call_has_several_nodes_of_slurm_and_a_rank_on_each(slurm: Slurm) -> None:
    program = ["bash", "-c", "echo $SLURM_PROCID on $SLURMD_NODENAME"]
    found = told(slurm, "Nodes(2) & gridengine.Cores(2)", program)
    assert found["where"] == [[["n1", 1], ["n2", 1]], 2, "srun"]
    assert found["lines"] == ["0 on n1", "1 on n2"]


@pytest.mark.slurm
def test_ranks_in_a_job_of_slurm_speak_mpi(slurm: Slurm) -> None:
    # Its nodes are one machine, on which a job has but one folder for PMIx.
    arguments = "environment={'SLURM_MPI_TYPE': 'pmix'}"
    found = told(slurm, "Ranks(3, nodes=1)", adding_ranks(), arguments)
    assert (found["where"][1:], found["lines"]) == ([3, "srun"], ["6 3"])


@pytest.mark.grid_engine
def test_ranks_in_a_parallel_environment_speak_mpi(grid_engine: GridEngine) -> None:
    found = told(grid_engine, "Ranks(3)", adding_ranks(), "parallel_environment='mpi'")
    [[_, slots]], *others = found["where"]
    assert (slots, others, found["lines"]) == (3, [3, "mpirun"], ["6 3"])
