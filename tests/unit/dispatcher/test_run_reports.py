"""Reports of runs, kept for so many of them, and the file of metrics."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from gridengine.dispatcher.metrics_file import MetricsFile, metrics
from gridengine.dispatcher.run_reports import report_files, write_report
from gridengine.status.rows import FunctionStatus, LaunchStatus, Status


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


STATUS = Status(
    done=7,
    failed=2,
    waiting=3,
    statuses={"idle": 1},
    functions=[FunctionStatus('f"\\', 7, 2, 0, 0.5, 1.0, 1000)],
    launches=[LaunchStatus("", waited_seconds=12.5)],
)


OF = 'run="r",name="n"'


def test_the_metrics_have_the_known_values() -> None:
    lines = metrics(STATUS, "r", "n").splitlines()
    for line in (
        f'gridengine_calls_total{{{OF},outcome="done"}} 7',
        f'gridengine_calls_total{{{OF},outcome="failed"}} 2',
        f'gridengine_open_calls{{{OF},state="waiting"}} 3',
        f'gridengine_workers{{{OF},state="idle"}} 1',
        f"gridengine_queue_wait_seconds{{{OF}}} 12.5",
        f'gridengine_call_seconds_count{{{OF},function="f\\"\\\\"}} 9',
        f'gridengine_call_seconds_sum{{{OF},function="f\\"\\\\"}} 4.5',
        "# TYPE gridengine_calls counter",
    ):
        assert line in lines
    assert lines[-1] == "# EOF"


def test_each_line_is_of_the_form_that_collectors_read() -> None:
    sample = re.compile(r'gridengine_\w+\{(\w+="([^"\\]|\\.)*",?)*\} [0-9.e+-]+')
    for line in metrics(STATUS, "r", "n").splitlines():
        assert line.startswith("# ") or sample.fullmatch(line), line


def test_an_unwritable_file_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = MetricsFile(f"{tmp_path}/nosuch/m.prom", "r", "n")
    file.write(STATUS)
    file.write(STATUS)
    assert [record.message for record in caplog.records] == [
        f"the metrics cannot be written to {tmp_path}/nosuch/m.prom: No such file or directory"
    ]


def test_the_file_is_replaced_as_a_whole_and_at_the_end_for_good(tmp_path: Path) -> None:
    file = MetricsFile(f"{tmp_path}/m.prom", "r", "n")
    file.write(Status())
    file.close(STATUS)
    file.write(Status(done=1))
    [path] = tmp_path.iterdir()
    assert path.name == "m.prom"
    assert f'gridengine_calls_total{{{OF},outcome="done"}} 7' in path.read_text()
