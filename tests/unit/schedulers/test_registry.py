"""What the registry says of each scheduler holds; it imports nothing of a batch system."""

from __future__ import annotations

import inspect
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

import gridengine
from gridengine import schedulers
from gridengine.schedulers import default
from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.batch_commands import BatchCommands
from gridengine.schedulers.batch_system import BatchScheduler
from gridengine.schedulers.launcher import LaunchContext
from gridengine.schedulers.registry import (
    BATCH_SYSTEMS,
    BY_CLASS,
    BY_NAME,
    SCHEDULERS,
    STARTERS,
    SchedulerEntry,
)
from gridengine.schedulers.workerless import InlineScheduler
from gridengine.settings.schema import SchedulerName, choices
from tests.support.contract import BATCH_SYSTEMS as CONTRACT
from tests.support.processes import completed

ENTRIES = pytest.mark.parametrize("entry", SCHEDULERS, ids=lambda entry: entry.name)


@ENTRIES
def test_each_scheduler_is_public_by_the_name_of_its_class(entry) -> None:  # type: ignore[no-untyped-def]
    assert issubclass(entry.scheduler_class(), Scheduler)
    assert getattr(gridengine, entry.class_name) is entry.scheduler_class()
    assert getattr(schedulers, entry.class_name) is entry.scheduler_class()
    assert entry.class_name in schedulers.__all__
    assert entry.class_name in gridengine.__all__


def test_no_other_scheduler_is_public() -> None:
    public = {name for name in schedulers.__all__ if name.endswith("Scheduler")} - {"Scheduler"}
    assert public == set(BY_CLASS)


@pytest.mark.parametrize("entry", BATCH_SYSTEMS, ids=lambda entry: entry.name)
def test_an_entry_of_the_registry_agrees_with_its_class(entry: SchedulerEntry) -> None:
    words = entry.system_class()._commands
    assert (words.key, words.title) == (entry.name, entry.system)
    if issubclass(words, BatchCommands):
        assert words.commands[0] == entry.command
    else:
        assert not entry.command


def test_settings_and_command_line_know_the_schedulers_by_their_names() -> None:
    assert set(BY_NAME) == set(choices(SchedulerName)) - {""}
    assert set(BY_NAME) - set(STARTERS) == {"inline"}
    assert [entry.name for entry in BATCH_SYSTEMS] == [
        *("grid_engine", "slurm", "htcondor", "oar", "pbs", "lsf", "flux")
    ]


def test_doctor_says_which_systems_none_of_our_tests_runs() -> None:
    kinds = (entry.system_class()._commands for entry in BATCH_SYSTEMS if entry.command)
    untested = {kind.key for kind in kinds if not getattr(kind, "tested", True)}
    assert untested == {one.name for one in BATCH_SYSTEMS} - {one.name for one in CONTRACT}


def test_local_processes_are_chosen_without_any_module_of_a_batch_system() -> None:
    code = (
        "import sys\n"
        "from gridengine.schedulers import registry\n"
        "registry.PROCESSES.make(max_workers=1).close()\n"
        "rooms = ('gridengine.schedulers.grid_engine', 'gridengine.schedulers.slurm',\n"
        "    'gridengine.schedulers.batch_system')\n"
        "sys.exit(', '.join(name for name in sys.modules if name.startswith(rooms)) or 0)\n"
    )
    done = completed([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr


def test_threads_that_name_a_scheduler_at_the_same_time_have_the_same() -> None:
    both = threading.Barrier(2, timeout=60)

    def make() -> Scheduler:
        both.wait()
        return InlineScheduler()

    with default.default_in_block(InlineScheduler(), "inline"), ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda name: default._once(name, make), ["one", "one"])
    assert first is second


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("GridEngineScheduler", ["queue", "parallel_environment", "drmaa_library"]),
        ("SlurmScheduler", ["partition", "account", "qos", "strict"]),
        ("OARScheduler", ["queue", "account", "walltime", "strict"]),
    ],
)
def test_a_signature_shows_the_arguments_of_the_system_and_those_that_all_have(
    name: str, own: list[str]
) -> None:
    shown = list(inspect.signature(getattr(schedulers, name)).parameters)
    assert shown[: len(own)] == own
    assert shown[len(own) :][:2] == ["native", "max_workers"]
    assert shown[-1] == "options"


def test_the_signature_of_a_class_with_a_constructor_of_its_own_is_the_constructor_s() -> None:
    class Ours(schedulers.SlurmScheduler):
        def __init__(self, group: str) -> None:
            super().__init__(account=group)

    assert str(inspect.signature(Ours)) == "(group: 'str')"


@pytest.mark.parametrize("entry", BATCH_SYSTEMS, ids=lambda entry: entry.name)
@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ({"container": "/i.sif"}, "apptainer exec --bind /r --bind /c /i.sif python -P -m"),
        (
            {"container": ["singularity", "exec", "--nv", "/i.sif"], "python": "python3"},
            "singularity exec --nv --bind /r --bind /c /i.sif python3 -P -m",
        ),
        ({"python": ["uv", "run", "python"]}, "uv run python -P -m"),
    ],
)
def test_each_batch_system_runs_workers_by_the_command_of_their_environment(
    entry: SchedulerEntry, nodes: dict[str, object], words: str
) -> None:
    """A stand-alone dispatcher's connection file is in another folder than its run directory."""
    run = LaunchContext("run", Path("/r"), Path("/c/connection.json"), lambda *_: None)
    scheduler = cast("BatchScheduler", entry.make(**nodes))
    assert f"exec {words} gridengine.worker /c/connection.json" in scheduler.script(run)
