"""Calls that start ranks on this machine, by a real MPI."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine import Cores, Program, Ranks, run_program
from tests.support.agent_driver import alive
from tests.support.mpi import AS_ROOT, adding_ranks
from tests.support.waiting import wait_until


@pytest.fixture
def adding(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A program that prints the sum of the numbers of its ranks, and how many they are."""
    for name, value in AS_ROOT.items():
        monkeypatch.setenv(name, value)
    return adding_ranks()


def test_a_program_runs_as_the_ranks_of_its_call(adding: list[str], scheduler: Any) -> None:
    assert run_program(adding, resources=Ranks(2), scheduler=scheduler).stdout == "3 2\n"


@pytest.mark.parametrize("inline", [False, True])
def test_a_function_starts_ranks_where_it_is_told(
    adding: list[str], scheduler: Any, inline: bool
) -> None:
    def start(count: int) -> tuple[int, str]:
        place = gridengine.allocation()
        assert [host.slots for host in place.hosts] == [place.ranks] == [count]
        done = subprocess.run([*place.launcher, *adding], stdout=subprocess.PIPE, check=True)
        return place.ranks, done.stdout.decode()

    chosen = gridengine.InlineScheduler() if inline else scheduler
    assert gridengine.map(start, [2], resources=Ranks(2), scheduler=chosen) == [(2, "3 2\n")]


def test_each_rank_has_its_own_number_of_threads(adding: list[str], scheduler: Any) -> None:
    def threads(resources: gridengine.Resource) -> str:
        program = ["bash", "-c", "echo $OMP_NUM_THREADS"]
        return run_program(program, resources=resources, scheduler=scheduler).stdout

    assert threads(Ranks(2)) == "1\n1\n"
    assert threads(Ranks(1) & Cores(2)) == "2\n"


def test_ranks_end_with_their_call(adding: list[str], scheduler: Any, tmp_path: Path) -> None:
    program = Program(["bash", "-c", "touch $$; exec sleep 600"], cwd=tmp_path)
    job = gridengine.Job(target=program, resources=Ranks(2), scheduler=scheduler)
    job.start()
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    job.terminate()
    job.join()
    wait_until(lambda: not any(alive(int(path.name)) for path in tmp_path.iterdir()))


def test_a_missing_mpirun_is_an_error_that_says_so(scheduler: Any) -> None:
    with pytest.raises(FileNotFoundError, match="mpirun") as caught:
        run_program(["./a"], env={"PATH": "/nosuch"}, resources=Ranks(2), scheduler=scheduler)
    assert "looked for in PATH=/nosuch" in caught.value.__notes__[0]
