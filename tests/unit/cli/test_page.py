"""`gridengine page`: the folder with the file by which a browser is let in."""

from __future__ import annotations

import os
from pathlib import Path

from gridengine.cli.pages import FOLDER, remove_left_folders

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
