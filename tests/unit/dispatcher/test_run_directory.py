"""What lies in a run directory, and what is left of it when the run has ended."""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from gridengine.dispatcher import run_directory
from gridengine.dispatcher.core_policy import check_lease, policy_of
from gridengine.dispatcher.run_directory import (
    CONNECTION,
    DAY_SECONDS,
    LOGS,
    MOST_LOOKED_AT,
    SUCCEEDED,
    WORKER,
    Home,
    StoredIdentity,
    new_run_id,
    remove_old_runs,
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
from gridengine.serialize.byte_code import PYTHON
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
    assert policy.python == PYTHON
    assert policy.addresses == SERVER.addresses


@pytest.mark.parametrize(
    ("transport", "workers", "lease", "beat", "seconds"),
    [
        ("tcp", 1000, 60, 2, 2),
        ("tcp", 2000, 60, 2, 4),
        ("tcp", 10_000, 60, 2, 5),
        ("files", 3, 60, 2, 5),
        ("files", 3, 24, 0.5, 2),
        ("files", 3, 60, 20, 20),
    ],
)
def test_many_workers_and_those_that_exchange_files_give_signs_of_life_less_often(
    *,
    tmp_path: Path,
    scheduler: SomeScheduler,
    transport: Any,
    workers: int,
    lease: int,
    beat: float,
    seconds: int,
) -> None:
    settings = Settings(run_directory=tmp_path / "runs", lease_seconds=lease, beat_seconds=beat)
    scheduler.transport, scheduler.max_workers = transport, workers
    run = write_connection(SERVER, scheduler, settings, "some-run")
    policy = policy_of(scheduler, settings, run)
    assert Connection.load(run.connection).beat_seconds == policy.beat_seconds == seconds
    assert (policy.message_seconds > 0) is (transport == "files")


def test_a_lease_is_long_enough_for_workers_that_exchange_files() -> None:
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


def test_empty_logs_are_removed_and_other_files_stay(ended: LaunchContext) -> None:
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
def test_the_connection_file_names_the_scheduler(
    settings: Settings, kind: type[Scheduler], name: str
) -> None:
    run = write_connection(SERVER, kind(), settings, "some-run")
    assert Connection.load(run.connection).scheduler == name


DEAD = 2**22 + 1


HERE = socket.gethostname()


"""No process can have this number (proc(5), pid_max)."""


def left(
    runs: Path, days: float, *files: str, host: str = "node7", pid: int = DEAD, changed: float = 0
) -> Path:
    """Make the folder of a run that began, and ended, so many days ago, with these files."""
    began = time.time() - days * DAY_SECONDS
    name = time.strftime("%Y%m%d-%H%M%S", time.localtime(began))
    folder = runs / f"{name}-{host}-{pid}-{os.urandom(3).hex()}"
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "worker.1.1.log").write_text("a line")
    for file in files:
        (folder / file).touch()
    os.utime(folder, (began + changed, began + changed))
    return folder


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run directory in which a start may take its time."""
    monkeypatch.setattr(run_directory, "MOST_SECONDS", float("inf"))
    return tmp_path / "runs"


def test_a_start_that_takes_too_long_leaves_the_rest_to_the_next(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_directory, "MOST_SECONDS", -1.0)
    folders = [left(runs, 900) for _ in range(3)]
    begin(runs)
    assert sum(folder.exists() for folder in folders) == 2


def test_a_start_removes_no_more_logs_than_it_has_time_for(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = left(runs, 900)
    for number in range(2, 4):
        (old / "logs" / f"worker.1.{number}.log").write_text("a line")
    monkeypatch.setattr(run_directory, "MOST_SECONDS", -1.0)
    begin(runs)
    assert len(list((old / "logs").iterdir())) == 2
    begin(runs)
    begin(runs)
    assert not old.exists()


def begin(runs: Path, keep_days: float = 14) -> None:
    new = runs / new_run_id()
    new.mkdir(parents=True)
    remove_old_runs(new, keep_days)
    assert new.exists()


@pytest.mark.parametrize(
    ("days", "file", "options", "keep_days", "stays"),
    [
        pytest.param(13, "succeeded", {}, 14, True, id="young"),
        pytest.param(15, "succeeded", {}, 14, False, id="old"),
        pytest.param(15, "", {}, 14, True, id="failed"),
        pytest.param(57, "", {}, 14, False, id="failed long ago"),
        pytest.param(57, "exchange", {}, 14, False, id="killed elsewhere, with messages"),
        pytest.param(5, "", {}, 1, False, id="kept for a day"),
        pytest.param(900, "", {}, 1e9, True, id="kept beyond all calendars"),
        pytest.param(60, "succeeded", {"changed": 50 * DAY_SECONDS}, 14, True, id="has just ended"),
        pytest.param(9e2, "", {"changed": 9e2 * DAY_SECONDS}, 14, True, id="a wrong clock"),
        pytest.param(900, "connection.json", {}, 14, True, id="may run elsewhere"),
        pytest.param(900, "connection.json", {"host": HERE}, 14, False, id="killed here"),
        pytest.param(
            900, "connection.json", {"host": HERE, "pid": os.getpid()}, 14, True, id="runs here"
        ),
    ],
)
def test_runs_are_kept_for_so_long_as_they_succeeded_failed_or_may_run(
    runs: Path, days: float, file: str, options: dict[str, Any], keep_days: float, stays: bool
) -> None:
    folder = left(runs, days, *file.split(), **options)
    begin(runs, keep_days)
    assert folder.exists() is stays


def test_the_folder_of_a_run_that_answers_stays(
    runs: Path, settings: Settings, scheduler: SomeScheduler
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        server: Any = SimpleNamespace(addresses=(address,), keys=KEYS)
        run = write_connection(server, scheduler, settings, "some-run")
        reached = left(runs, 900, host=HERE)
        run.connection.rename(reached / CONNECTION)
        os.utime(reached, (1, 1))
        begin(runs)
    assert reached.exists()


def test_links_and_folders_of_no_run_stay(runs: Path, tmp_path: Path) -> None:
    mine = tmp_path / "results"
    mine.mkdir()
    (mine / "precious").touch()
    old = left(runs, 900)
    link = runs / old.name.replace("node7", "node8")
    link.symlink_to(mine)
    inner = old / "logs" / "link"
    inner.symlink_to(mine)
    os.utime(old, (1, 1))
    others = [runs / "20000101-notes", runs / "data"]
    for folder in others:
        folder.mkdir()
    os.utime(mine, (1, 1))
    begin(runs)
    assert not old.exists()
    assert link.is_symlink()
    assert (mine / "precious").exists()
    assert all(folder.exists() for folder in others)


def test_a_folder_that_is_young_by_its_name_stays_though_its_time_is_old(runs: Path) -> None:
    young = left(runs, 1)
    os.utime(young, (1, 1))
    begin(runs)
    assert young.exists()


def test_a_start_removes_a_bounded_number_of_folders(runs: Path) -> None:
    folders = [left(runs, 900) for _ in range(MOST_LOOKED_AT + 2)]
    begin(runs)
    assert sum(folder.exists() for folder in folders) == 2
    begin(runs)
    assert not any(folder.exists() for folder in folders)


def test_a_folder_that_another_process_removes_meanwhile_is_no_error(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = left(runs, 900)
    look = Path.lstat

    def lstat(path: Path) -> os.stat_result:
        if path == gone:
            shutil.rmtree(gone)
        return look(path)

    monkeypatch.setattr(Path, "lstat", lstat)
    begin(runs)
    assert not gone.exists()


@pytest.mark.parametrize("kind", ["", "up-"])
def test_the_name_of_a_run_says_on_which_machine_and_by_which_process_it_began(kind: str) -> None:
    found = run_directory.RUN_NAME.fullmatch(new_run_id(kind))
    assert found is not None
    assert found[2] == run_directory._host()
    assert found[3] == str(os.getpid())
