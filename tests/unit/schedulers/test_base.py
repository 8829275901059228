"""What would be submitted, said before anything is."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from gridengine.errors import ConfigurationError
from gridengine.resources import Cores, Node
from gridengine.schedulers import GridEngineScheduler, ProcessScheduler, SlurmScheduler
from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.worker_command import worker_command
from gridengine.schedulers.workerless import InlineScheduler, NestedScheduler, RemoteScheduler

pytestmark = pytest.mark.usefixtures("here")


def test_a_dry_run_shows_the_whole_request_and_the_script(here: Path) -> None:
    plan = GridEngineScheduler(
        queue="all.q", prologue=["module load x"], python="/opt/python"
    ).dry_run(Node(4, 8), count=3)
    assert plan.count == 3
    assert plan.request == {
        "remoteCommand": f"{here}/RUN/worker.sh",
        "workingDirectory": f"{here}/RUN",
        "jobName": "gridengine",
        "outputPath": f":{here}/RUN/logs/worker.1.$drmaa_incr_ph$.log",
        "joinFiles": True,
        "nativeSpecification": "-l h_vmem=2G -q all.q -pe threads 4",
    }
    lines = plan.script.splitlines()
    assert "module load x" in lines
    assert (
        f"exec {shlex.join(worker_command('/opt/python', here / 'RUN' / 'connection.json'))}"
        in lines
    )


@pytest.mark.parametrize("python", [3, [], ["python3", 3]])
def test_a_wrong_command_is_refused(python: object) -> None:
    with pytest.raises(TypeError, match="python must be a string"):
        SlurmScheduler(python=python)  # type: ignore[arg-type]


def test_resources_of_a_wrong_type_are_named() -> None:
    with pytest.raises(TypeError, match="not 4"):
        GridEngineScheduler().dry_run(4)  # type: ignore[arg-type]


def test_workers_that_calls_share_are_asked_for_with_all_that_they_hold() -> None:
    scheduler = GridEngineScheduler(worker_resources=Node(8, 16))
    assert (
        scheduler.dry_run(Cores(2)).request["nativeSpecification"] == "-l h_vmem=2G -pe threads 8"
    )
    with pytest.raises(ConfigurationError, match=r"no worker can ever hold Cores\(9\)"):
        scheduler.dry_run(Cores(9))


@pytest.mark.parametrize("kind", [GridEngineScheduler, ProcessScheduler, SlurmScheduler])
def test_a_scheduler_has_public_methods_for_users_alone(kind: type[Scheduler]) -> None:
    methods = {name for name in dir(kind) if name[0] != "_" and callable(getattr(kind, name))}
    assert methods <= {"actor", "close", "dry_run", "launcher", "script", "status"}


def test_jobs_are_called_as_the_scheduler_says_or_in_native_words() -> None:
    assert GridEngineScheduler(name="my sweep").dry_run().request["jobName"] == "my-sweep"
    assert "jobName" not in GridEngineScheduler(native="-N sweep").dry_run().request


@pytest.mark.parametrize("native", ["-o /tmp/mine", "-l a=1 -e x", "-t 1-9", "-wd /tmp"])
def test_native_options_that_would_be_dropped_are_refused(native: str) -> None:
    with pytest.raises(ConfigurationError, match="is not for users to set"):
        GridEngineScheduler(native=native).dry_run()


@pytest.mark.parametrize(
    "scheduler", [InlineScheduler(), NestedScheduler(), RemoteScheduler(Path("/r"))]
)
def test_a_scheduler_whose_calls_run_elsewhere_launches_nothing(scheduler: Scheduler) -> None:
    with pytest.raises(NotImplementedError, match="no workers to launch"):
        scheduler.launcher(None)  # type: ignore[arg-type]
