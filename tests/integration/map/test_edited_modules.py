"""Modules of the caller's own that are edited or reloaded between two submissions: calls run what
is there when they are submitted.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import gridengine
from gridengine import ProcessScheduler
from gridengine.serialize.users_modules import own_modules
from tests.support.tcp_scheduler import TcpScheduler
from tests.support.waiting import wait_until

NUMBERS = itertools.count()


@pytest.fixture(params=[ProcessScheduler, TcpScheduler])
def scheduler(request: pytest.FixtureRequest) -> Iterator[ProcessScheduler]:
    with request.param(2) as one:
        yield one


class Project:
    """A folder with a module `model` that uses a module `helper`; their names are nobody else's."""

    def __init__(self, folder: Path) -> None:
        number = next(NUMBERS)
        self.files = folder / f"helper_{number}.py", folder / f"model_{number}.py"
        self.write("VALUE = 1")
        self.files[1].write_text(
            f"import os, helper_{number} as helper\ndef value(_): return helper.VALUE\ndef pid(_): "
            "return os.getpid()\n"
        )
        importlib.invalidate_caches()
        self.model: ModuleType = importlib.import_module(f"model_{number}")
        self.helper: ModuleType = self.model.helper

    def write(self, text: str) -> None:
        self.files[0].write_text(text)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.syspath_prepend(tmp_path)
    one = Project(tmp_path)
    yield one
    for module in (one.model, one.helper):
        sys.modules.pop(module.__name__)


def reloaded(project: Project) -> None:
    project.write("VALUE = 22")
    importlib.reload(project.helper)


def edited(project: Project) -> None:
    project.write("VALUE = 22")


@pytest.mark.parametrize("change", [edited, reloaded])
def test_a_map_runs_the_module_as_it_is_at_its_begin(
    scheduler: ProcessScheduler,
    project: Project,
    change: Callable[[Project], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="gridengine")
    assert set(gridengine.map(project.model.value, range(20), scheduler=scheduler)) == {1}
    change(project)
    for _ in range(2):
        assert set(gridengine.map(project.model.value, range(20), scheduler=scheduler)) == {22}
    name = project.helper.__name__
    said = f"edited or reloaded: {name}; calls from now on import the module anew"
    assert [line for line in caplog.messages if line.startswith("edited")] == [said]


@pytest.mark.promise
def test_single_calls_and_jobs_run_the_module_as_it_is_at_their_submission(
    scheduler: ProcessScheduler, project: Project
) -> None:
    with gridengine.Executor(scheduler=scheduler) as executor:
        assert executor.submit(project.model.value, 0).result() == 1
        edited(project)
        job = gridengine.Job(target=project.model.value, args=(0,), scheduler=scheduler)
        job.start()
        assert job.result() == 22
        project.write("VALUE = 333")
        own_modules().due = 0.0  # as if the time had come
        assert executor.submit(project.model.value, 0).result() == 333


def test_calls_that_run_meanwhile_are_not_disturbed(
    scheduler: ProcessScheduler, project: Project, tmp_path: Path
) -> None:
    with gridengine.Executor(scheduler=scheduler) as executor:
        slow = executor.submit(wait_until, (tmp_path / "go").exists)
        assert executor.submit(project.model.value, 0).result() == 1
        edited(project)
        assert set(gridengine.map(project.model.value, range(20), scheduler=scheduler)) == {22}
        (tmp_path / "go").touch()
        assert slow.result()


def test_while_nothing_changes_the_same_processes_go_on(
    scheduler: ProcessScheduler, project: Project
) -> None:
    pids = [
        set(gridengine.map(project.model.pid, range(50), scheduler=scheduler)) for _ in range(5)
    ]
    assert len(set().union(*pids)) <= 2


def test_a_function_of_the_script_runs_the_edited_module(
    scheduler: ProcessScheduler, project: Project
) -> None:
    helper = project.helper
    assert set(gridengine.map(lambda _: helper.VALUE, range(20), scheduler=scheduler)) == {1}
    edited(project)
    assert set(gridengine.map(lambda _: helper.VALUE, range(20), scheduler=scheduler)) == {22}
