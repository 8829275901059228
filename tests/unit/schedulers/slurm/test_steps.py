"""Workers on the nodes of a job: on which, and how they are asked for."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gridengine.errors import ConfigurationError
from gridengine.resources.kinds import Cores, Memory
from gridengine.schedulers.base import adopt_none
from gridengine.schedulers.launcher import LaunchContext, TryAgain, WorkerStatus
from gridengine.schedulers.slurm import steps
from gridengine.schedulers.slurm.steps import StepLauncher, StepScheduler

JOB = {
    "SLURM_JOB_ID": "17",
    "SLURMD_NODENAME": "n1",
    "SLURM_CPUS_ON_NODE": "4",
    "SLURM_JOB_NUM_NODES": "3",
    "SLURM_JOB_CPUS_PER_NODE": "4(x2),1",
}


class PlayedSrun:
    """An srun that has its step at once."""

    def __init__(self, argv: list[str], *_: object) -> None:
        self.argv, self.is_running, self.status = argv, True, 0
        place = next(word for word in argv if word.startswith("--relative=")).partition("=")[2]
        self.job, self.host, self.words = f"17.{place}", f"n{place}", "Killed"

    def wait_for_answer(self, deadline: float) -> bool:
        return True

    def wait_for_end(self, deadline: float) -> bool:
        return not self.is_running

    def end(self) -> None:
        self.is_running, self.status = False, 137


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StepLauncher:
    guard = SimpleNamespace(add=lambda word: None, dismiss=lambda: None)
    monkeypatch.setattr(steps, "Guard", lambda *arguments: guard)
    monkeypatch.setattr(steps, "Srun", PlayedSrun)
    run = LaunchContext("r", tmp_path, tmp_path / "connection.json", adopt_none)
    return StepLauncher(run, script="", job="17", held=[Cores(4), Cores(1)])


def test_each_node_has_one_worker_with_the_job_s_resources_there(launcher: StepLauncher) -> None:
    handles = launcher.launch(2)
    assert [handle.id for handle in handles] == ["17.0", "17.1"]
    folder = launcher.run.directory
    argv: Any = launcher._steps[1].argv  # type: ignore[attr-defined]
    assert shlex.join(argv) == (
        "srun --jobid=17 --immediate=5 --verbose --relative=1 --nodes=1 --ntasks=1 --overlap "
        "--no-kill --cpu-bind=none --mpi=none --input=none /bin/bash -c "
        """'exec >"$1" 2>&1; shift; exec "$0" "$@"' """
        f"""{folder}/worker.sh {handles[1].log} '[["Cores",[1,null]]]'"""
    )
    with pytest.raises(TryAgain, match="each node of this job has a worker"):
        launcher.launch(1)


def test_a_node_whose_worker_has_died_is_told_and_has_another(launcher: StepLauncher) -> None:
    first, second = launcher.launch(2)
    launcher.delete([first.id])
    reports = launcher.poll([first, second])
    assert [reports[one].state for one in (first, second)] == [
        WorkerStatus.FAILED,
        WorkerStatus.RUNNING,
    ]
    assert reports[first].reason == "killed by SIGKILL: Killed"
    [again] = launcher.launch(1)
    assert (again.id, again.log == first.log) == (first.id, False)


def test_a_node_on_which_nothing_starts_keeps_no_other_from_being_used(
    launcher: StepLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(argv: list[str], *others: object) -> PlayedSrun:
        srun = PlayedSrun(argv, *others)
        if "--relative=0" in argv:
            srun.end()
            srun.job = ""
        return srun

    monkeypatch.setattr(steps, "Srun", start)
    with pytest.raises(TryAgain, match="srun starts no worker on another node of this job: Killed"):
        launcher.launch(2)
    assert [handle.id for handle in launcher.launch(2)] == ["17.1"]


@pytest.mark.parametrize(("cores", "workers"), [(None, 3), (9, 3), (5, 2), (4, 1)])
def test_cores_are_given_of_the_first_nodes(
    cores: int | None, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in JOB.items():
        monkeypatch.setenv(name, value)
    with StepScheduler(max_workers=cores) as scheduler:
        assert (scheduler.cores, scheduler.max_workers) == (cores or 9, workers)
        assert scheduler.slots == 4


def test_each_node_s_worker_holds_the_memory_of_its_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**JOB, "SLURM_MEM_PER_CPU": "256"}.items():
        monkeypatch.setenv(name, value)
    run = LaunchContext("r", tmp_path, tmp_path / "connection.json", adopt_none)
    with StepScheduler() as scheduler:
        held = scheduler.launcher(run)._held
    assert [one.get(Memory) for one in held] == [Memory(1), Memory(1), Memory(0.25)]
    with StepScheduler(max_workers=1) as scheduler:
        assert [one.get(Memory) for one in scheduler.launcher(run)._held] == [Memory(1)]


def test_there_is_none_outside_of_a_job_of_several_nodes() -> None:
    with pytest.raises(ConfigurationError, match="is not the script of a job with several nodes"):
        StepScheduler()


def test_a_fork_of_the_process_ends_no_step_when_it_ends(
    launcher: StepLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher.launch(2)
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: launcher.owner + 1)
        launcher.close()
    assert [step.is_running for step in launcher._steps.values()] == [True, True]
    launcher.close()
    assert [step.is_running for step in launcher._steps.values()] == [False, False]
