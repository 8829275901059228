"""A home folder whose changes hosts see late, as on NFS."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.support.command_line import command
from tests.support.hosts import NODES, SlurmOfHosts, seen_late
from tests.support.scenario import play
from tests.support.waiting import wait_until

pytestmark = pytest.mark.hosts


@pytest.fixture
def late(slurm: SlurmOfHosts) -> Iterator[SlurmOfHosts]:
    """The Slurm, on whose nodes the home is seen late."""
    with contextlib.ExitStack() as stack:
        for node in NODES:
            stack.enter_context(seen_late(node))
        yield slurm
        slurm.nothing_is_left()


NAMED = """
def square(index):
    return index * index

with CLUSTER(max_workers=2, cpus_per_task=4, **GIVEN) as scheduler:
    first = gridengine.map(square, range(20), scheduler=scheduler, name="late", chunksize=1)
    again = gridengine.map(square, range(40), scheduler=scheduler, name="late", chunksize=1)
    actor = scheduler.actor(list)
    actor.append(1).result()
    gone = [len(gridengine.map(bytes, [3_000_000] * 4, scheduler=scheduler)[3]) for _ in range(3)]
tell(first=first, again=again, gone=gone)
"""


@pytest.mark.parametrize("given", [{}, {"transport": "files"}], ids=["tcp", "files"])
def test_calls_run_where_the_home_is_seen_late(late: SlurmOfHosts, given: dict[str, str]) -> None:
    told = play(late, f"GIVEN = {given!r}\n{NAMED}").result()
    assert told["first"] == [index * index for index in range(20)]
    assert told["again"] == [index * index for index in range(40)]
    assert told["gone"] == [3_000_000] * 3


MAP = """
import gridengine
with gridengine.Client("late") as client:
    print(sum(gridengine.map(abs, range(10), scheduler=client)))
"""


@pytest.mark.long
def test_a_dispatcher_is_found_where_its_folder_is_seen_late(late: SlurmOfHosts) -> None:
    runs = {"GRIDENGINE_RUN_DIRECTORY": str(late.folder / "late-runs")}

    def on_node(*words: str) -> str:
        variables = [f"{name}={value}" for name, value in runs.items()]
        return late.on("node1", "env", *variables, late.python, *words)

    def act(*words: str) -> None:
        status, told = command(late, "dispatcher", *words, environment=runs)
        assert status == 0, told

    assert "there is no dispatcher 'late'" in on_node("-c", MAP)  # which the node remembers
    act("start", "late", "--scheduler", "slurm", "--max-workers", "1", "--native=--nodelist=node2")
    try:
        assert "there is no dispatcher 'late'" in on_node("-c", MAP)
        wait_until(lambda: on_node("-c", MAP).endswith("45\n"))
        act("restart", "late")
        wait_until(lambda: on_node("-c", MAP).endswith("45\n"))
    finally:
        act("stop", "late", "--now")
