"""Where the ranks of a call run, and the words that start a program there."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridengine.api.program import Program
from gridengine.call_context.current_call import GVAR, CurrentJob
from gridengine.errors import ConfigurationError
from gridengine.resources import ZERO, Cores, Memory, Nodes, Ranks, Resource
from gridengine.schedulers import ranks
from gridengine.schedulers.ranks import (
    RankAllocation,
    RankHost,
    allocation,
    launcher_of,
    spans_nodes,
)
from gridengine.schedulers.slurm.allocation import expanded
from gridengine.settings.systems import SYSTEMS


@pytest.fixture(autouse=True)
def _no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for system in SYSTEMS for one in (*system.job, *system.of_mpirun)]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(ranks.socket, "gethostname", lambda: "here")


def allocated(given: Resource) -> RankAllocation:
    with GVAR.running(CurrentJob(7, 1, given, lambda: 0)):
        return allocation()


def hosts_in(launcher: list[str]) -> list[str]:
    """The names in the file that an mpirun is given."""
    return Path(launcher[launcher.index("--machinefile") + 1]).read_text().split()


def set_slurm(monkeypatch: pytest.MonkeyPatch, nodes: str, tasks: str) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "5")
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    monkeypatch.setenv("SLURM_JOB_NODELIST", nodes)
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", tasks)


def set_grid_engine(monkeypatch: pytest.MonkeyPatch, folder: Path, *lines: str) -> None:
    file = folder / "pe_hostfile"
    file.write_text("".join(f"{line}\n" for line in lines))
    for name, value in {"JOB_ID": "5", "NSLOTS": "7", "PE_HOSTFILE": str(file)}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("given", [Ranks(3), Ranks(3) & Memory(1) & Cores(6, range(6))], ids=repr)
def test_on_one_machine_mpirun_has_a_slot_for_each_rank_and_binds_none(given: Resource) -> None:
    hosts, count, launcher = allocated(given)
    assert (hosts, count) == ((RankHost("here", 3),), 3)
    assert launcher[0] == "mpirun"
    assert launcher[3:] == ["-n", "3", "--bind-to", "none"]
    assert hosts_in(launcher) == ["localhost"] * 3


def test_on_a_shared_worker_in_a_job_mpirun_does_not_see_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_slurm(monkeypatch, "n[1-2]", "4(x2)")
    launcher = allocated(Ranks(2) & Cores(2, [0, 1])).launcher
    assert launcher[: launcher.index("mpirun")] == (
        ["env", "-u", "SLURM_JOB_ID", "-u", "SLURM_JOB_NODELIST"]
    )


def test_in_a_slurm_job_of_its_own_srun_starts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    set_slurm(monkeypatch, "n[1-2],m", "2(x2),1")
    assert allocated(Ranks(5) & Cores(3)) == (
        (RankHost("n1", 2), RankHost("n2", 2), RankHost("m", 1)),
        5,
        ["srun", "--ntasks=5", "--nodes=3", "--cpus-per-task=3"],
    )


def test_in_a_grid_engine_job_mpirun_has_the_hosts_of_the_parallel_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    set_grid_engine(monkeypatch, tmp_path, "a.x 4 all.q@a.x UNDEFINED", "b.x 3 all.q@b.x UNDEFINED")
    hosts, count, launcher = allocated(Ranks(3) & Cores(2))
    assert (hosts, count) == ((RankHost("a.x", 2), RankHost("b.x", 1)), 3)
    assert hosts_in(launcher) == ["a.x", "a.x", "b.x"]
    words = "4 ranks of 2 cores each do not fit: Grid Engine gives 4 on a.x, 3 on b.x"
    with pytest.raises(ConfigurationError, match=words):
        allocated(Ranks(4) & Cores(2))


@pytest.mark.parametrize(
    ("nodes", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3,07],m", ["n1", "n2", "n3", "n07", "m"]),
        ("n[09-11]", ["n09", "n10", "n11"]),
        ("r[1-2]n[3-4]x,b", ["r1n3x", "r1n4x", "r2n3x", "r2n4x", "b"]),
    ],
)
def test_a_list_of_slurm_s_nodes_is_read_as_slurm_writes_it(nodes: str, names: list[str]) -> None:
    assert expanded(nodes) == names


@pytest.mark.parametrize("given", [ZERO, Cores(4)], ids=repr)
def test_a_call_that_asked_for_no_ranks_has_no_launcher(given: Resource) -> None:
    with GVAR.running(CurrentJob(7, 1, given, lambda: 0)):
        assert launcher_of(["./solve"]) == []
        with pytest.raises(ConfigurationError, match="for calls that ask for ranks"):
            allocation()


@pytest.mark.parametrize(
    ("given", "may_be"), [(Nodes(2), True), (Ranks(2) & Cores(2, [0, 1]), False), (ZERO, False)]
)
def test_ranks_may_be_on_several_nodes_unless_their_cores_have_numbers(
    given: Resource, may_be: bool
) -> None:
    with GVAR.running(CurrentJob(7, 1, given, lambda: 0)):
        assert spans_nodes() is may_be


def test_a_program_that_starts_ranks_itself_is_not_started_as_ranks() -> None:
    program = Program(["/usr/bin/mpirun", "-n", "2", "./solve"])
    with (
        GVAR.running(CurrentJob(7, 1, Nodes(2), lambda: 0)),
        pytest.raises(ConfigurationError, match="starts ranks, and so does the call's Ranks"),
    ):
        program()
