"""`gridengine page`, with the file by which a browser is let in, and `gridengine report`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gridengine.cli.main import main
from gridengine.cli.pages import FOLDER, remove_left_folders
from gridengine.dispatcher.watch_messages import REPORT, WatchAnswer
from gridengine.status.rows import Status
from tests.support.watched import WHO, FakeWatched, Machine

NOBODY = 1 << 23
"""The number of no process: larger than any (proc(5), pid_max)."""


def test_folders_of_pages_that_were_killed_are_removed_and_no_others(tmp_path: Path) -> None:
    left = tmp_path / f"{FOLDER.format(NOBODY)}a1"
    under_way = tmp_path / f"{FOLDER.format(os.getpid())}a2"
    shared = tmp_path / f"{FOLDER.format(NOBODY)}a3"
    unknown = tmp_path / "gridengine-page-a4"
    for folder in (left, under_way, shared, unknown):
        folder.mkdir(mode=0o700)
        (folder / "page.html").touch()
    shared.chmod(0o755)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    link, file = (tmp_path / f"{FOLDER.format(NOBODY)}a{number}" for number in (5, 6))
    link.symlink_to(elsewhere)
    file.touch()
    before = set(tmp_path.iterdir())
    remove_left_folders(tmp_path)
    assert before - set(tmp_path.iterdir()) == {left}
    assert (under_way / "page.html").exists()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Machine) -> Path:
    """A folder of the test's own, and a run whose report alone has its calls."""
    report = WatchAnswer(WHO, Status(done=3))
    machine.add(FakeWatched(lambda ask: report if ask == REPORT else WatchAnswer(WHO)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def report(*words: str) -> Result:
    return CliRunner().invoke(main, ["report", *words])


@pytest.mark.parametrize(("words", "name"), [((), "sweep.html"), (("-o", "a.html"), "a.html")])
def test_the_page_is_written_where_it_is_said_to_be(
    here: Path, words: tuple[str, ...], name: str
) -> None:
    result = report("sweep", *words)
    assert (result.exit_code, result.output) == (0, f"{name}: sweep.py, {WHO.run_id}\n")
    assert '"done":3' in (here / name).read_text(encoding="utf-8")


def test_a_folder_that_is_not_there_is_a_line_and_no_traceback() -> None:
    result = report("sweep", "-o", "nosuch/a.html")
    assert (result.exit_code, result.output) == (
        1,
        "Error: nosuch/a.html: No such file or directory\n",
    )
