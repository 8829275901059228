"""Which folders of earlier runs go when another begins."""

from __future__ import annotations

import os
import shutil
import socket
import time
from pathlib import Path

import pytest

from gridengine.dispatcher import old_runs
from gridengine.dispatcher.old_runs import DAY_SECONDS, new_run_id, remove_old_runs

DEAD = 2**22 + 1
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
    monkeypatch.setattr(old_runs, "MOST_SECONDS", float("inf"))
    return tmp_path / "runs"


def test_a_start_that_takes_too_long_leaves_the_rest_to_the_next(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_runs, "MOST_SECONDS", -1.0)
    folders = [left(runs, 900) for _ in range(3)]
    begin(runs)
    assert sum(folder.exists() for folder in folders) == 2


def test_a_start_removes_no_more_logs_than_it_has_time_for(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = left(runs, 900)
    for number in range(2, 4):
        (old / "logs" / f"worker.1.{number}.log").write_text("a line")
    monkeypatch.setattr(old_runs, "MOST_SECONDS", -1.0)
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


def test_runs_that_succeeded_are_kept_for_so_long_and_others_longer(runs: Path) -> None:
    old, young = left(runs, 15, "succeeded"), left(runs, 13, "succeeded")
    failed, long_failed = left(runs, 15), left(runs, 57)
    begin(runs)
    assert not old.exists()
    assert not long_failed.exists()
    assert young.exists()
    assert failed.exists()
    begin(runs, keep_days=1)
    assert not young.exists()
    assert not failed.exists()


def test_the_end_of_a_run_counts_and_not_its_beginning(runs: Path) -> None:
    long = left(runs, 60, "succeeded", changed=50 * DAY_SECONDS)
    begin(runs)
    assert long.exists()


def test_what_may_be_under_way_stays(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = socket.gethostname()
    elsewhere = left(runs, 900, "connection.json")
    alive = left(runs, 900, "connection.json", host=host, pid=os.getpid())
    killed = left(runs, 900, "connection.json", host=host)
    begin(runs)
    assert elsewhere.exists()
    assert alive.exists()
    assert not killed.exists()
    reached = left(runs, 900, "connection.json", host=host)
    monkeypatch.setattr(old_runs, "is_under_way", lambda file: file.parent == reached)
    begin(runs)
    assert reached.exists()


def test_links_and_what_is_no_run_stay(runs: Path, tmp_path: Path) -> None:
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


def test_a_clock_that_was_wrong_costs_no_young_run(runs: Path) -> None:
    """Its name says that it is old, the file system that it is not; and the other way round."""
    by_name, by_time = left(runs, 900, "succeeded", changed=900 * DAY_SECONDS), left(runs, 1)
    os.utime(by_time, (1, 1))
    begin(runs)
    assert by_name.exists()
    assert by_time.exists()


def test_one_start_removes_a_bounded_number_and_the_next_goes_on(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_runs, "MOST_LOOKED_AT", 3)
    folders = [left(runs, 900) for _ in range(5)]
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


def test_a_keeping_time_beyond_all_calendars_removes_nothing(runs: Path) -> None:
    old = left(runs, 900)
    begin(runs, keep_days=1e9)
    assert old.exists()


@pytest.mark.parametrize("kind", ["", "up-"])
def test_the_name_of_a_run_says_on_which_machine_and_by_which_process_it_began(kind: str) -> None:
    found = old_runs.RUN_NAME.fullmatch(new_run_id(kind))
    assert found is not None
    assert found[2] == old_runs._host()
    assert found[3] == str(os.getpid())
