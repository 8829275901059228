"""The runs that are known by their folders alone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gridengine.settings.schema import Settings
from gridengine.watching import other_runs as module
from gridengine.watching.other_runs import MOST_LOOKED_AT, OtherRun, other_runs


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run directory; of runs that have a connection file somebody is to be reached."""
    monkeypatch.setattr(module, "settings", lambda: Settings(run_directory=tmp_path))
    monkeypatch.setattr(module, "is_under_way", lambda file: True)
    return tmp_path


def names(found: list[OtherRun]) -> list[str]:
    return [Path(one.folder).name for one in found]


def test_a_run_is_read_from_the_name_of_its_folder(runs: Path) -> None:
    folder = runs / "20261123-093000-node-7-4242-0a1b2c"
    folder.mkdir()
    began = time.mktime((2026, 11, 23, 9, 30, 0, 0, 0, -1))
    assert other_runs(set()) == [OtherRun(str(folder), "node-7", 4242, began, False)]


def test_workers_by_hand_are_on_a_host_as_others_are(runs: Path) -> None:
    (runs / "20261123-093000-up-node7-4242-0a1b2c").mkdir()
    assert [one.host for one in other_runs(set())] == ["node7"]


def test_one_with_a_connection_file_is_under_way_if_it_can_be_reached(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = runs / "20261123-093000-node7-4242-0a1b2c"
    folder.mkdir()
    (folder / "connection.json").touch()
    assert [one.under_way for one in other_runs(set())] == [True]
    monkeypatch.setattr(module, "is_under_way", lambda file: False)
    assert [one.under_way for one in other_runs(set())] == [False]


def test_the_last_come_first_and_neither_what_is_known_nor_other_folders(runs: Path) -> None:
    made = [f"2026112{day}-093000-node7-1-0a1b2c" for day in (3, 1, 2)]
    for name in (*made, "dispatchers", "20261123", "notes-20261123-093000-node7-1-0a1b2c"):
        (runs / name).mkdir()
    assert names(other_runs({made[2]})) == [made[0], made[1]]


def test_of_very_many_only_the_last_are_looked_at(runs: Path) -> None:
    for number in range(MOST_LOOKED_AT + 5):
        (runs / f"20261123-0930{number:02}-node7-1-0a1b2c").mkdir()
    found = names(other_runs(set()))
    assert len(found) == MOST_LOOKED_AT
    assert found[0] == f"20261123-0930{MOST_LOOKED_AT + 4:02}-node7-1-0a1b2c"


def test_without_a_run_directory_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(run_directory=tmp_path / "nosuch")
    monkeypatch.setattr(module, "settings", lambda: settings)
    assert other_runs(set()) == []
