"""What lies in a run directory, and what is left of it when the run has ended."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from gridengine.dispatcher import run_directory
from gridengine.dispatcher.run_directory import (
    CONNECTION,
    LOGS,
    SUCCEEDED,
    WORKER,
    Home,
    StoredIdentity,
    check_lease,
    policy_of,
    python_version,
    tidy,
    tidy_logs,
    write_connection,
)
from gridengine.errors import ConfigurationError
from gridengine.resources.kinds import Cores, Memory
from gridengine.schedulers.base import Scheduler, adopt_none
from gridengine.schedulers.launcher import LaunchContext
from gridengine.schedulers.slurm.scheduler import SlurmScheduler
from gridengine.schedulers.workerless import HandStartedScheduler
from gridengine.settings.values import Settings
from gridengine.wire.connection_file import Connection, ServerKeys

KEYS = ServerKeys("server's", "secret", "workers'", "workers' secret", 4711)
SERVER: Any = SimpleNamespace(addresses=("tcp://10.0.0.7:4711",), keys=KEYS)


class SomeScheduler(Scheduler):
    """Starts nothing."""

    def launcher(self, run: LaunchContext) -> NoReturn:
        raise NotImplementedError


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(run_directory=tmp_path / "runs")


@pytest.fixture
def scheduler() -> SomeScheduler:
    return SomeScheduler(max_workers=3)


def test_workers_find_the_dispatcher_by_a_file_that_is_closed_to_others(
    settings: Settings, scheduler: SomeScheduler
) -> None:
    run = write_connection(SERVER, scheduler, settings, "some-run")
    assert run.connection == settings.runs / "some-run" / CONNECTION
    assert run.directory.stat().st_mode & 0o777 == 0o700
    assert run.connection.stat().st_mode & 0o777 == 0o600
    said = json.loads(run.connection.read_text())
    assert said["addresses"] == ["tcp://10.0.0.7:4711"]
    assert said["worker_secret"] == "workers' secret"
    assert "secret" not in said.values()  # the server's own stays here
    assert not said.get("returns")


def test_the_workers_of_a_stand_alone_dispatcher_come_back_to_it(
    tmp_path: Path, settings: Settings, scheduler: SomeScheduler
) -> None:
    home = Home(tmp_path / "sweeps", StoredIdentity("kept", KEYS, KEYS), epoch=2)
    home.folder.mkdir()
    run = write_connection(SERVER, scheduler, settings, "kept", home)
    assert (run.connection, run.epoch) == (home.folder / WORKER, 2)
    assert json.loads(run.connection.read_text())["returns"] is True
    assert not settings.runs.exists()


def test_an_unwritable_run_directory_leaves_nothing(
    settings: Settings, scheduler: SomeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_directory, "replace_private", full)
    with pytest.raises(ConfigurationError, match="cannot write ") as raised:
        write_connection(SERVER, scheduler, settings, "some-run")
    assert "No space left" in str(raised.value)
    assert list(settings.runs.iterdir()) == []


@pytest.mark.parametrize(("given", "timeout"), [(None, 600.0), (7.0, 7.0), (math.inf, math.inf)])
def test_the_schedulers_own_numbers_go_before_the_settings(
    settings: Settings, given: float | None, timeout: float
) -> None:
    scheduler = SomeScheduler(max_workers=3, start_timeout=given)
    run = write_connection(SERVER, scheduler, settings, "some-run")
    settings = Settings(run_directory=settings.runs, start_timeout=600.0)
    policy = policy_of(scheduler, settings, run)
    assert policy.max_workers == 3
    assert policy.start_timeout == timeout
    assert policy.python == python_version()
    assert policy.addresses == SERVER.addresses


@pytest.mark.parametrize(
    ("transport", "lease", "beat", "seconds"),
    [("tcp", 60, 2, 2), ("files", 60, 2, 5), ("files", 24, 0.5, 2), ("files", 60, 20, 20)],
)
def test_by_files_workers_give_signs_of_life_less_often(
    tmp_path: Path, scheduler: SomeScheduler, transport: Any, lease: int, beat: float, seconds: int
) -> None:
    settings = Settings(run_directory=tmp_path / "runs", lease_seconds=lease, beat_seconds=beat)
    scheduler.transport = transport
    run = write_connection(SERVER, scheduler, settings, "some-run")
    policy = policy_of(scheduler, settings, run)
    assert Connection.load(run.connection).beat_seconds == policy.beat_seconds == seconds
    assert (policy.message_seconds > 0) is (transport == "files")


def test_by_files_a_lease_is_long_enough_for_them() -> None:
    check_lease(Settings(lease_seconds=10))
    with pytest.raises(ConfigurationError, match="lease_seconds=9 is too short"):
        check_lease(Settings(lease_seconds=9))


@pytest.fixture
def ended(settings: Settings, scheduler: SomeScheduler) -> LaunchContext:
    """A run that has ended, with a log in which something stands and one that is empty."""
    run = write_connection(SERVER, scheduler, settings, "some-run")
    logs = run.directory / LOGS
    logs.mkdir()
    (logs / "worker.1.1.log").write_text("a line")
    (logs / "worker.1.2.log").touch()
    (run.directory / "script").write_text("#!/bin/sh")
    return run


@pytest.mark.parametrize("failed", [True, False])
def test_logs_in_which_something_stands_are_left_and_success_is_marked(
    ended: LaunchContext, failed: bool
) -> None:
    tidy(ended, failed=failed)
    left = {path.name for path in ended.directory.rglob("*") if path.is_file()}
    assert left == {"worker.1.1.log", *([] if failed else [SUCCEEDED])}


def test_a_run_without_logs_leaves_nothing(ended: LaunchContext) -> None:
    (ended.directory / LOGS / "worker.1.1.log").write_text("")
    for _ in range(2):
        tidy(ended, failed=False)
    assert not ended.directory.exists()


def test_empty_logs_are_removed_and_what_is_no_log_stays(ended: LaunchContext) -> None:
    logs = ended.directory / LOGS
    (logs / "notes").touch()
    (logs / "folder.log").mkdir()
    tidy_logs(logs)
    assert sorted(path.name for path in logs.iterdir()) == [
        "folder.log",
        "notes",
        "worker.1.1.log",
    ]
    tidy_logs(logs / "gone")


def test_no_workers_may_be_asked_for_where_people_start_them(settings: Settings) -> None:
    run = LaunchContext("run", Path(), Path(), adopt_none)
    policy = policy_of(HandStartedScheduler(worker_resources=Memory(4)), settings, run)
    assert (policy.max_workers, policy.pooled) == (0, False)
    assert policy.resources == Cores(1) & Memory(4)


@pytest.mark.parametrize(("kind", "name"), [(SlurmScheduler, "slurm"), (HandStartedScheduler, "")])
def test_the_file_says_what_starts_the_workers(
    settings: Settings, kind: type[Scheduler], name: str
) -> None:
    run = write_connection(SERVER, kind(), settings, "some-run")
    assert Connection.load(run.connection).scheduler == name
