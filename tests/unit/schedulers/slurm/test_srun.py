"""What srun is asked for, and what is left to sbatch."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from gridengine.schedulers.slurm.srun import (
    HAS_JOB,
    STARTED,
    Srun,
    Unsuitable,
    srun_command,
    srun_options,
)

RECORDED = Path(__file__).parents[1] / "recorded" / "slurm"


def test_srun_gets_the_options_of_sbatch_and_a_step_like_a_batch_script() -> None:
    log, script = "/runs/r/logs/worker.1.\0.log", Path("/runs/r/worker.sh")
    shell = ["/bin/bash", "-l"]
    command = srun_command(["--mem=3M"], name="me", log=log, script=script, shell=shell)
    assert shlex.join(command) == (
        "srun --verbose --immediate --mem=3M --nodes=1 --ntasks=1 --overlap --no-kill "
        "--cpu-bind=none --mpi=none --input=none --job-name=me "
        "--output=/runs/r/logs/worker.1.%t.log --chdir=/runs/r /bin/bash -l /runs/r/worker.sh"
    )


@pytest.mark.parametrize("folder", ["/runs/50%", "/a\\b"])
def test_a_folder_in_whose_name_slurm_finds_a_placeholder_is_left_to_sbatch(folder: str) -> None:
    log, script = f"{folder}/logs/worker.1.\0.log", Path(folder, "worker.sh")
    with pytest.raises(Unsuitable):
        srun_command([], name="me", log=log, script=script, shell=["/bin/bash"])


def test_srun_has_the_options_of_sbatch() -> None:
    options = shlex.split("--mem-per-cpu=5M -C 'a&b' -c4 --time=5 --signal=B:TERM@30 --gres gpu:2")
    variables = {"SBATCH_ACCOUNT": "a", "SBATCH_TIMELIMIT": "9", "SBATCH_MEM_PER_NODE": "7"}
    assert shlex.join(srun_options(options, {**variables, "HOME": "/h"})) == (
        "--account=a --mem-per-cpu=5M -C 'a&b' -c4 --time=5 --signal=TERM@30 --gres gpu:2"
    )


@pytest.mark.parametrize(
    "options",
    ["--nodes=2", "-N 2", "--ntasks=2", "--exclusive", "--requeue", "--export=NONE", "-n2"],
)
def test_workers_whose_options_may_mean_another_thing_to_srun_are_left_to_sbatch(
    options: str,
) -> None:
    with pytest.raises(Unsuitable, match=options.replace("=", " ").split()[0]):
        srun_options(options.split(), {})


@pytest.mark.parametrize(
    "name", ["SBATCH_EXPORT", "SBATCH_EXCLUSIVE", "SLURM_CLUSTERS", "SBATCH_SOMETHING_NEW"]
)
def test_variables_for_sbatch_that_srun_has_no_option_for_leave_workers_to_sbatch(
    name: str,
) -> None:
    with pytest.raises(Unsuitable, match=name):
        srun_options([], {name: "1"})


def test_a_backslash_in_the_run_directory_leaves_it_to_sbatch_to_say_so() -> None:
    with pytest.raises(Unsuitable, match="backslash"):
        srun_command([], name="me", log="/a\\b/1.log", script=Path("/a\\b/worker.sh"), shell=[])


def test_srun_names_its_job_and_says_later_that_the_node_has_started_the_worker() -> None:
    lines = (RECORDED / "srun-started.txt").read_text().splitlines(keepends=True)
    [job] = [at for at, line in enumerate(lines) if re.match(HAS_JOB, line)]
    [started] = [at for at, line in enumerate(lines) if line.endswith(STARTED)]
    assert job < started


def test_an_srun_whose_output_no_thread_can_read_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[subprocess.Popen[str]] = []

    class Noted(subprocess.Popen[str]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            begun.append(self)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(subprocess, "Popen", Noted)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError):
        Srun(["sleep", "30"], os.environ, "log")
    with begun[0] as process:
        assert process.wait() == -signal.SIGKILL
