"""Which folders of earlier runs go when another begins."""

from __future__ import annotations

import os
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from gridengine.dispatcher import run_directory
from gridengine.dispatcher.run_directory import DAY_SECONDS, new_run_id, remove_old_runs

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


def test_one_that_answers_stays(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reached = left(runs, 900, "connection.json", host=HERE)
    monkeypatch.setattr(run_directory, "is_under_way", lambda file: file.parent == reached)
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


def test_a_folder_that_is_young_by_its_name_stays_though_its_time_is_old(runs: Path) -> None:
    young = left(runs, 1)
    os.utime(young, (1, 1))
    begin(runs)
    assert young.exists()


def test_one_start_removes_a_bounded_number_and_the_next_goes_on(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_directory, "MOST_LOOKED_AT", 3)
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


@pytest.mark.parametrize("kind", ["", "up-"])
def test_the_name_of_a_run_says_on_which_machine_and_by_which_process_it_began(kind: str) -> None:
    found = run_directory.RUN_NAME.fullmatch(new_run_id(kind))
    assert found is not None
    assert found[2] == run_directory._host()
    assert found[3] == str(os.getpid())
