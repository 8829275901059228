"""How Slurm's commands are called."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from gridengine.errors import ConfigurationError
from gridengine.schedulers.batch_commands import WorkerArray
from gridengine.schedulers.command import command_environment
from gridengine.schedulers.slurm.commands import SlurmCommands
from gridengine.schedulers.slurm.site import Site


def command(
    run: Path = Path("/runs/r"), count: int = 3, options: tuple[str, ...] = ()
) -> list[str]:
    slurm = SlurmCommands(Site() if count else Site(largest=0))
    log = f"{run}/logs/worker.1.{{}}.log".format
    return slurm.submit(WorkerArray("me", count or 1, run / "worker.sh", options, log))


def test_an_array_is_submitted_in_one_command() -> None:
    assert shlex.join(command(options=("--time=5", "--requeue"))) == (
        "sbatch --parsable --no-requeue --time=5 --requeue --job-name=me --array=1-3 "
        "--output=/runs/r/logs/worker.1.%a.log --chdir=/runs/r /runs/r/worker.sh"
    )


def test_without_arrays_a_single_job_is_submitted() -> None:
    assert "--output=/runs/r/logs/worker.1.1.log" in command(count=0)
    assert not any(word.startswith("--array") for word in command(count=0))


def test_percent_signs_in_the_run_directory_are_no_placeholders() -> None:
    assert "--output=/a%%j/logs/worker.1.%a.log" in command(Path("/a%j"))
    assert "--chdir=/a%j" in command(Path("/a%j"))


def test_a_backslash_in_the_run_directory_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="backslash"):
        command(Path("/a\\b"))


def test_variables_of_the_job_that_we_are_in_are_not_handed_on() -> None:
    given = {
        "SLURM_JOB_ID": "3",
        "SLURM_CONF": "/c",
        "SBATCH_WAIT": "1",
        "SBATCH_ACCOUNT": "a",
        "SQUEUE_FORMAT": "%i",
        "HOME": "/h",
    }
    assert command_environment(SlurmCommands(), given) == {
        "SLURM_CONF": "/c",
        "SBATCH_ACCOUNT": "a",
        "HOME": "/h",
        "SLURM_BITSTR_LEN": "0",
        "SLURM_TIME_FORMAT": "standard",
    }
