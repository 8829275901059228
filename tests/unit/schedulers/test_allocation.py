"""The batch job that a process runs in, as its environment says."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import gridengine
from gridengine.resources.kinds import Memory
from gridengine.schedulers import default
from gridengine.schedulers.allocation import Allocation, allocation_here
from gridengine.system import processors

BATCH = {"SLURM_JOB_ID": "17", "SLURMD_NODENAME": "n1", "SLURM_CPUS_ON_NODE": "4"}
STEP = {**BATCH, "SLURM_STEP_TASKS_PER_NODE": "2(x3),1"}
HOSTS = "n1.site.org 3 all.q@n1 UNDEFINED\nn2.site.org 5 all.q@n2 UNDEFINED\n"


@pytest.mark.parametrize(
    ("environment", "cores", "nodes"),
    [
        (BATCH, 4, 1),
        ({**BATCH, "SLURM_CPUS_PER_TASK": "2"}, 4, 1),
        ({**BATCH, "SLURM_JOB_NUM_NODES": "3"}, 4, 3),
        (STEP, 2, 1),
        ({**STEP, "SLURM_CPUS_PER_TASK": "3"}, 3, 1),
        ({**STEP, "SLURM_STEP_TASKS_PER_NODE": "9"}, 1, 1),
    ],
)
def test_a_job_of_slurm_has_the_cores_of_its_tasks_here(
    environment: dict[str, str], cores: int, nodes: int
) -> None:
    assert allocation_here(environment, "n1") == Allocation("Slurm", "17", cores, nodes)


@pytest.mark.parametrize(
    ("said", "shares"),
    [
        ({"SLURM_JOB_CPUS_PER_NODE": "4(x2),1"}, (4, 4, 1)),
        ({"SLURM_JOB_CPUS_PER_NODE": "4"}, ()),  # not of each node
        ({}, ()),
        ({"SLURM_JOB_CPUS_PER_NODE": "4(x3)", "SLURM_STEP_TASKS_PER_NODE": "1"}, ()),
    ],
)
def test_the_script_of_a_slurm_job_may_use_all_its_nodes_and_a_step_of_it_may_not(
    said: dict[str, str], shares: tuple[int, ...]
) -> None:
    allocation = allocation_here({**BATCH, "SLURM_JOB_NUM_NODES": "3", **said}, "n1")
    assert allocation is not None
    assert allocation.shares == shares
    assert bool(allocation.why_here) == (not shares)
    if shares:
        assert str(allocation) == "the 9 cores of Slurm job 17, on its 3 nodes"


def test_a_job_within_a_job_of_another_system_is_the_one_that_counts() -> None:
    inner = {"FLUX_JOB_ID": "f1", "FLUX_JOB_NNODES": "1"}
    allocation = allocation_here({**BATCH, **inner}, "n1")
    assert allocation is not None
    assert allocation.system == "Flux"


def test_a_job_of_htcondor_has_the_resources_of_its_slot(tmp_path: Path) -> None:
    machine = tmp_path / ".machine.ad"
    machine.write_text('Activity = "Idle"\nCpus = 4\nMemory = 512\nTotalSlotCpus = 8\n')
    job = {"_CONDOR_SLOT": "slot1_2", "_CONDOR_MACHINE_AD": str(machine)}
    found = Allocation("HTCondor", "slot1_2", 4, memory=2**29)
    assert allocation_here(job, "n1") == found
    named = allocation_here({**job, "CONDOR_JOB_ID": "7.0"}, "n1")
    assert named is not None
    assert named.job == "7.0"
    machine.unlink()
    assert allocation_here(job, "n1") is None


def test_a_job_of_oar_has_the_cores_of_its_node(tmp_path: Path) -> None:
    nodes = tmp_path / "17"
    nodes.write_text("n1.site.org\n" * 3 + "n2.site.org\n" * 5)
    job = {"OAR_JOB_ID": "17", "OAR_NODEFILE": str(nodes)}
    assert allocation_here(job, "n2") == Allocation("OAR", "17", 5, 2)
    assert allocation_here(job, "elsewhere") == Allocation("OAR", "17", 3, 2)
    allocation = allocation_here(job, "n1")
    assert allocation is not None
    assert "ask for one node" in allocation.why_here
    nodes.write_text("")
    assert allocation_here(job, "n1") is None


def test_a_job_of_pbs_has_the_cores_of_its_first_chunk(tmp_path: Path) -> None:
    nodes = tmp_path / "17.server"
    nodes.write_text("n1.site.org\nn2.site.org\n")
    job = {"PBS_JOBID": "17.server", "PBS_NODEFILE": str(nodes)}
    assert allocation_here({**job, "NCPUS": "4"}, "n1") == Allocation("PBS", "17.server", 4, 2)
    of_torque = allocation_here({**job, "PBS_NUM_PPN": "3"}, "n1")
    assert of_torque == Allocation("PBS", "17.server", 3, 2)
    assert allocation_here(job, "n1") is None


def test_a_job_of_lsf_has_the_slots_of_its_host() -> None:
    job = {"LSB_JOBID": "17", "LSB_MCPU_HOSTS": "n1 4 n2 2"}
    assert allocation_here(job, "n2.site.org") == Allocation("LSF", "17", 2, 2)
    assert allocation_here(job, "elsewhere") == Allocation("LSF", "17", 4, 2)
    assert allocation_here({**job, "LSB_MCPU_HOSTS": " "}, "n1") is None


def test_a_job_of_flux_has_the_cores_that_it_is_bound_to() -> None:
    job = {"FLUX_JOB_ID": "f17", "FLUX_JOB_NNODES": "2"}
    assert allocation_here(job, "n1") == Allocation("Flux", "f17", len(processors()), 2)


def test_a_job_of_grid_engine_has_its_slots() -> None:
    job = {"JOB_ID": "17", "NSLOTS": "4"}
    assert allocation_here(job, "n1") == Allocation("Grid Engine", "17", 4)


def test_a_job_of_a_parallel_environment_has_the_slots_of_its_host(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(HOSTS)
    job = {"JOB_ID": "17", "NSLOTS": "8", "PE_HOSTFILE": str(tmp_path / "hosts")}
    allocation = allocation_here(job, "N2")
    assert allocation == Allocation("Grid Engine", "17", 5, 2)
    assert "ask for slots of one host" in allocation.why_here


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"SLURM_JOB_ID": "17", "SLURM_CPUS_ON_NODE": "4"},  # as in a shell of salloc
        {**BATCH, "SLURM_CPUS_ON_NODE": ""},
        {"JOB_ID": "17"},  # which other programs set too
        {"JOB_ID": "17", "NSLOTS": "undefined"},
    ],
)
def test_other_processes_are_in_no_job(environment: dict[str, str]) -> None:
    assert allocation_here(environment, "n1") is None


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be in a job of Slurm with one core, in a process that has chosen no scheduler yet."""
    for name, value in {**BATCH, "SLURM_CPUS_ON_NODE": "1", "SLURM_JOB_NUM_NODES": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(default, "_MADE", {})
    monkeypatch.setattr(default, "_ANNOUNCED", set())


@pytest.mark.usefixtures("job")
def test_in_a_job_calls_run_on_its_cores_and_the_output_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scheduler = default.default_scheduler(7)
    try:
        assert isinstance(scheduler, gridengine.ProcessScheduler)
        assert scheduler.slots == 1
    finally:
        scheduler.close()
    assert capsys.readouterr().err == (
        "gridengine: map of 7 calls on the 1 core of Slurm job 17, on one of its 2 nodes "
        "(this is a step of srun's; run the script without srun to have calls use all nodes), "
        "up to 1 call at a time; scheduler= or GRIDENGINE_SCHEDULER names another place\n"
    )


@pytest.mark.usefixtures("job")
def test_the_best_available_in_a_job_is_its_own_cores(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="gridengine"):
        assert isinstance(gridengine.best_available(), gridengine.ProcessScheduler)
    assert "this process has the 1 core of Slurm job 17" in caplog.text


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize(
    ("said", "gigabytes"),
    [
        ({"SLURM_MEM_PER_NODE": "512"}, 0.5),
        ({"SLURM_MEM_PER_CPU": "256", "SLURM_CPUS_ON_NODE": "1"}, 0.25),
        ({"SLURM_MEM_PER_NODE": "512", "SLURM_STEP_TASKS_PER_NODE": "2"}, 0.25),
    ],
)
def test_calls_in_a_job_share_the_memory_that_it_has(
    said: dict[str, str], gigabytes: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    held = gridengine.ProcessScheduler().worker_resources
    assert held is not None
    assert held.get(Memory) == Memory(gigabytes)


@pytest.mark.usefixtures("job")
def test_fewer_processes_have_all_the_memory_of_their_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_MEM_PER_CPU", "256")
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "4")
    held = gridengine.ProcessScheduler(1).worker_resources
    assert held is not None
    assert held.get(Memory) == Memory(1)


@pytest.mark.usefixtures("job")
def test_processors_that_a_job_may_not_use_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "1000")
    assert gridengine.ProcessScheduler().slots == len(processors())
