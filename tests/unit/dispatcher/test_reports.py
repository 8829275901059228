"""How runs were is kept, for so many of them."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from gridengine.dispatcher.reports import report_files, write_report


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "gridengine" / "reports"


def test_a_report_is_kept_for_its_user_alone_and_none_when_nobody_wants_one(folder: Path) -> None:
    write_report("20260101-1", b"{}", 0)
    assert not folder.exists()
    write_report("20260101-1", b"{}", 5)
    [path] = report_files()
    assert path == folder / "20260101-1.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_last_report_of_a_restarted_dispatcher_is_kept() -> None:
    for content in (b"[1]", b"[2]"):
        write_report("20260101-1", content, 5)
    assert [path.read_bytes() for path in report_files()] == [b"[2]"]


def test_only_the_last_reports_are_kept() -> None:
    for number in range(5):
        write_report(f"20260101-{number}", b"{}", 3)
    assert [path.stem for path in report_files()] == ["20260101-4", "20260101-3", "20260101-2"]


def test_an_unwritable_folder_keeps_no_report_and_fails_nothing(folder: Path) -> None:
    folder.parent.parent.joinpath("gridengine").write_text("in the way")
    write_report("20260101-1", b"{}", 5)
    assert report_files() == []
